"""The comparison of pruning methods of Li et al. 2021, §4: train, choose heads, score, test, tabulate."""
