"""Vector lines: each link is traced once, no pixel is further off than the tolerance, and SVG readers read them."""

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from pixeldiff import _native, cli
from pixeldiff.render.vector import LineDrawing, _linked_length, encode_svg, lines, simplify
from tests.extras import optional

csr_matrix = optional("scipy.sparse").csr_matrix
connected_components = optional("scipy.sparse.csgraph").connected_components


SVG = "{http://www.w3.org/2000/svg}"


def links(on):
    """The definition, pixel by pixel: neighbors, but no diagonal where two straight steps do."""
    height, width = on.shape
    found = set()
    for row, column in zip(*np.nonzero(on), strict=True):
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
            r, c = row + down, column + right
            if not (r < height and 0 <= c < width and on[r, c]):
                continue
            if down and right and (on[row, c] or on[r, column]):
                continue
            found.add((int(row * width + column), int(r * width + c)))
    return found


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (7, 1), (33, 40)])
@pytest.mark.parametrize("density", [0.1, 0.4, 0.8, 1.0])
def test_chains_use_every_link_once_and_end_at_ends_and_junctions(size, density, rng):
    on = _native.thin((rng.random(size) < density).astype(np.uint8))
    pixels, starts = _native.trace(on)
    assert starts[0] == 0
    assert starts[-1] == len(pixels)
    chains = [pixels[a:b].tolist() for a, b in pairwise(starts)]
    used = [tuple(sorted(pair)) for chain in chains for pair in pairwise(chain)]
    assert len(used) == len(set(used))
    assert set(used) == links(on)
    degree = np.bincount(np.array(used, int).ravel(), minlength=on.size)
    for chain in chains:
        assert all(degree[pixel] == 2 for pixel in chain[1:-1])
        assert chain[0] == chain[-1] or degree[chain[0]] != 2 != degree[chain[-1]]


def to_segment(point, a, b):
    along = b - a
    part = np.clip(np.dot(point - a, along) / max(np.dot(along, along), 1), 0, 1)
    return np.linalg.norm(point - a - part * along)


@pytest.mark.parametrize("tolerance", [0.0, 0.5, 1.0, 3.0])
def test_no_point_is_further_off_than_the_tolerance(tolerance, rng):
    lengths = [1, 2, 3, 50, 7]
    walks = [np.cumsum(rng.integers(-1, 2, (n, 2)), axis=0) for n in lengths]
    starts = np.cumsum([0, *lengths])
    points = np.concatenate(walks)
    kept = simplify(points, starts, tolerance)
    for a, b in pairwise(starts):
        own = kept[(kept >= a) & (kept < b)]
        assert own[0] == a
        assert own[-1] == b - 1
        for i, j in pairwise(own):
            between = [to_segment(points[k], points[i], points[j]) for k in range(i + 1, j)]
            assert max(between, default=0) <= tolerance + 1e-9


def test_straight_lines_keep_their_two_ends():
    edge_map = np.zeros((40, 50), np.float32)
    edge_map[5, 10:30] = 0.5
    edge_map[range(10, 30), range(10, 30)] = 1
    found = sorted(lines(edge_map, 0.2, 0.5), key=lambda one: one[1])
    assert found == [([[5, 10], [5, 29]], 0.5), ([[10, 10], [29, 29]], 1.0)]


def read_svg(content):
    """(size, [(opacity, polylines as absolute x, y)])"""
    root = ElementTree.fromstring(content)
    groups = []
    for path in root.iter(f"{SVG}path"):
        own = []
        # M is followed by a place, l by steps; z goes back to the place.
        for text in path.get("d").removeprefix("M").split("M"):
            place, steps = text.removesuffix("z").split("l")
            steps = np.array([*place.split(), *steps.split()], int).reshape(-1, 2)
            corners = np.cumsum(steps, axis=0)
            own.append(np.concatenate([corners, corners[:1]]) if text.endswith("z") else corners)
        groups.append((float(path.get("stroke-opacity")), own))
    return (int(root.get("width")), int(root.get("height"))), groups


def test_svg_holds_the_lines_with_strength_as_opacity():
    edge_map = np.zeros((20, 30), np.float32)
    edge_map[4, 3:20] = 0.5
    edge_map[8:15, 5:12] = 1
    edge_map[9:14, 6:11] = 0  # a square ring
    size, groups = read_svg(encode_svg(LineDrawing(edge_map)))
    assert size == (30, 20)
    assert [opacity for opacity, _ in groups] == [0.5, 1]
    np.testing.assert_array_equal(groups[0][1][0], [[3, 4], [19, 4]])
    ring = groups[1][1][0]
    np.testing.assert_array_equal(ring[0], ring[-1])
    assert {tuple(corner) for corner in ring.tolist()} <= {(x, y) for x in range(5, 12) for y in range(8, 15)}


def test_threshold_and_colors():
    edge_map = np.zeros((20, 30), np.float32)
    edge_map[4, 3:20] = 0.5
    assert b'fill="#000"' in encode_svg(LineDrawing(edge_map))
    assert b'fill="#fff"' in encode_svg(LineDrawing(edge_map, background="white"))
    assert read_svg(encode_svg(LineDrawing(edge_map, threshold=0.6)))[1] == []
    # Zero is never an edge, whatever the threshold.
    assert len(read_svg(encode_svg(LineDrawing(edge_map, threshold=0.0)))[1]) == 1
    assert read_svg(encode_svg(LineDrawing(np.zeros((1, 1), np.float32))))[0] == (1, 1)


def test_detect_writes_svg(tmp_path, rng, edge_weights):
    photo = tmp_path / "photo.png"
    Image.fromarray(rng.integers(0, 256, (40, 60, 3), dtype=np.uint8)).save(photo)

    def written(*options):
        with pytest.raises(SystemExit) as stop:
            cli.main(["detect", str(photo), "--model", str(edge_weights), "--format", "svg", "--overwrite", *options])
        assert stop.value.code == 0
        return (tmp_path / "photo.edges.svg").read_bytes()

    size, groups = read_svg(written())
    assert size == (60, 40)
    assert groups
    assert len(written("--tolerance", "5")) < len(written())
    assert b'fill="#fff"' in written("--background", "white")


def test_specks_are_linked_chains_with_few_pixels(rng):
    edges = np.zeros((40, 60), np.float32)
    edges[5, 3:50] = 1
    edges[5:15, 20] = 1  # a long line with a branch of 10
    edges[30, 3:11] = 1  # a speck of 8
    everything = list(lines(edges, 0.5, 0))
    some = list(lines(edges, 0.5, 0, min_length=9))
    assert len(everything) == len(some) + 1
    assert all(row < 20 for line, _ in some for row, _ in line)
    assert len(list(lines(edges, 0.5, 0, min_length=50))) == len(some), "the branch belongs to the line"
    assert not list(lines(edges, 0.5, 0, min_length=500))


@pytest.mark.parametrize("density", [0.05, 0.2, 0.5])
def test_length_of_linked_chains(density, rng):
    """The definition: chains in one component of the graph of chains, their pixels added up."""
    pixels, starts = _native.trace(_native.thin((rng.random((60, 70)) < density).astype(np.uint8)))
    ends = [(int(pixels[a]), int(pixels[b - 1])) for a, b in pairwise(starts)]
    places = sorted({place for pair in ends for place in pair})
    graph = csr_matrix(
        (np.ones(len(ends)), ([places.index(a) for a, _ in ends], [places.index(b) for _, b in ends])),
        (len(places), len(places)),
    )
    label = connected_components(graph, directed=False)[1]
    own = np.array([label[places.index(a)] for a, _ in ends])
    expected = [sum(np.diff(starts)[own == one]) for one in own]
    np.testing.assert_array_equal(_linked_length(pixels, starts), expected)


def test_line_width_background_and_provenance():
    edges = np.zeros((10, 20), np.float32)
    edges[5, 2:18] = 1
    root = ElementTree.fromstring(
        encode_svg(LineDrawing(edges, line_width=2.5, background="transparent"), "a <b> & --c")
    )
    assert root.find(f"{SVG}g").get("stroke-width") == "2.5"
    assert root.find(f"{SVG}rect") is None
    assert root.find(f"{SVG}desc").text == "a <b> & --c"
    assert ElementTree.fromstring(encode_svg(LineDrawing(edges))).find(f"{SVG}rect") is not None
