"""The GLUE tasks (Wang et al. 2019): their files, labels and metrics. Nothing here knows fairseq but the dataset."""
