"""The file that tests of the light world run is what export writes today."""

import numpy as np
import onnx

from pixeldiff import EdgeDetector
from tests.references import small_network


def test_the_small_network_is_what_export_writes(tmp_path, rng):
    small_network.write(tmp_path / "small-random.onnx")
    files = (small_network.FILE, tmp_path / "small-random.onnx")
    kept, new = (onnx.load(path) for path in files)
    assert {entry.key: entry.value for entry in kept.metadata_props} == {
        entry.key: entry.value for entry in new.metadata_props
    }
    image = rng.integers(0, 256, (37, 53, 3), dtype=np.uint8)
    maps = [EdgeDetector(path)(image) for path in files]
    np.testing.assert_allclose(*maps, atol=1e-6)
    assert maps[0].min() < 0.2
    assert maps[0].max() > 0.8
