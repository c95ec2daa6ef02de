"""Batch norms of networks with random weights, which tests and benchmarks run."""

from __future__ import annotations

import torch
from torch import nn


def calibrate_batch_norm(model: nn.Module) -> nn.Module:
    """Set the batch norms of a network with random weights from noise images; without this the numbers of a deep
    network grow without bounds, and no export would agree with it."""
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    before = [layer.momentum for layer in norms]
    for layer in norms:
        layer.momentum = None  # the mean of all batches
    with torch.no_grad():
        model.train()(torch.randn(4, 3, 96, 96, generator=torch.Generator().manual_seed(0)))
    for layer, momentum in zip(norms, before, strict=True):
        layer.momentum = momentum
    return model.eval()
