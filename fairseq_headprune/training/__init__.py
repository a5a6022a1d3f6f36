"""Faster updates of fairseq's trainer: recorded forward and backward passes, multi-tensor copies, a fused Adam."""
