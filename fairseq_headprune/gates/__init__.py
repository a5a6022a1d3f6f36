"""The mathematics of learned gates, independent of fairseq: hard concrete, soft and hard top-K, and their learner."""
