"""The plan of tiles: everything once, on the grid, within the budget."""

import numpy as np
import pytest

from pixeldiff.inference.tiles import plan_tiles


@pytest.mark.parametrize("height", [16, 333, 1200, 4000])
@pytest.mark.parametrize("width", [17, 1600, 3001])
def test_tiles_cover_once_and_stay_in_the_budget(height, width):
    budget = 600 * 600
    tiles = plan_tiles(height, width, budget, margin=82, stride=8)
    covered = np.zeros((height, width), np.uint8)
    for tile in tiles:
        covered[tile.core] += 1
        window = [s.stop - s.start for s in tile.window]
        assert window[0] * window[1] <= budget
        for core, window_, length in zip(tile.core, tile.window, (height, width), strict=True):
            assert window_.start % 8 == core.start % 8 == 0
            assert window_.start == 0 or core.start - window_.start >= 82
            assert window_.stop == length or (window_.stop - core.stop >= 82 and window_.stop % 8 == 0)
    assert (covered == 1).all()


def test_tiles_of_a_hopeless_budget_are_small():
    tiles = plan_tiles(900, 900, 1, margin=80, stride=8)
    assert len(tiles) > 100
