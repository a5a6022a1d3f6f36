"""The mathematics of learned gates, without fairseq: hard concrete, soft and hard top-K, and their learner."""
