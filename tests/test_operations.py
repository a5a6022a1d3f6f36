"""Counted operations."""

import torch

from fairseq_headprune.speed.size import operations


def test_operations_are_counted_without_views():
    a, b = torch.ones(2, 3), torch.ones(3, 2)
    # By hand: a product and a sum; transposing moves nothing.
    assert operations(lambda: (a @ b).t() + 1) == 2


def test_operations_of_the_backward_pass_count():
    w = torch.ones(3, requires_grad=True)
    forward = operations(lambda: (w * 2).sum())
    # By hand: a product and a sum; back come a tensor of ones and its product with 2. (The expansion is a view.)
    assert forward == 2 and operations(lambda: (w * 2).sum().backward()) >= forward + 2
