"""The GLUE tasks (Wang et al. 2019): their files, labels and metrics. Only the dataset depends on fairseq."""
