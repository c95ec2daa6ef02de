"""Five points from files: the layouts in use, names, and what is no such file."""

import json

import numpy as np
import pytest

from pixeldiff import UserError
from pixeldiff.data.landmarks import name_of, read_landmarks

POINTS = [[1, 2], [3, 4.5], [5, 6], [7, 8], [9, 10]]
LINE = "1 2 3 4.5 5 6 7 8 9 10"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (json.dumps({"a/01": POINTS}), "a/01"),
        (json.dumps({"a/01.jpg": [value for point in POINTS for value in point]}), "a/01"),
        (f"a/01.jpg {LINE}\n", "a/01"),
        (f"1\nlefteye_x lefteye_y righteye_x righteye_y nose_x ...\n000001.jpg  {LINE}\n\n", "000001"),
        (f"name,x,y\nJosé Ángel/02.png,{LINE.replace(' ', ',')}\n", "José Ángel/02"),
        (f"a\\b.c.png\t{LINE}", "a/b.c"),
    ],
)
def test_layouts_in_use(tmp_path, text, name):
    path = tmp_path / "points"
    path.write_text(text)
    ((found, points),) = read_landmarks(path).items()
    assert found == name == name_of(f"{name}.webp")
    np.testing.assert_array_equal(points, POINTS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no image"),
        ("\n", "names no image"),
        ("{", "is not JSON"),
        ('{"a": [[1, 2]]}', "a: 1 points; give five"),
        ('{"a": [[1, 2], [3]]}', "five points are x and y each"),
        ('{"a": {}}', "five points are x and y each"),
        ('{"": [1,2,3,4,5,6,7,8,9,10]}', "for the name of an image"),
        (f"a {LINE}\nb {LINE}\nc 1 2\n", "line 3: a line is: person/01.jpg x1 y1"),
        (f"a {LINE[:-2]}nan", "points; give five"),
        (f"a {LINE[:-2]}1e9", "points; give five"),
        (f"a\0 {LINE}", "lists are text"),
    ],
)
def test_other_files_are_refused(tmp_path, text, why):
    path = tmp_path / "points.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=why) as error:
        read_landmarks(path)
    assert str(path) in str(error.value)
    with pytest.raises(UserError, match="no list"):
        read_landmarks(tmp_path / "none")
