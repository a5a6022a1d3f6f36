"""Training losses with learned gates, registered with fairseq."""
