"""Shared fixtures: where the data lies, and a fixed seed for every test."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

# Test tensors are small; one thread is quicker than two, and steadier on a busy machine.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data; tests that need it are skipped without it."""
    root = os.environ.get("PIXELDIFF_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("PIXELDIFF_DATA is not set to the data folder")
    return Path(root)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
