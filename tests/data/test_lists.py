"""Which folder a data set is in."""

import pytest

from pixeldiff.data.lists import find_root, find_within
from pixeldiff.errors import InputError


def test_a_data_set_is_found_as_itself_or_within(tmp_path, monkeypatch):
    (tmp_path / "BSDS500" / "images").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for given in (tmp_path, tmp_path / "BSDS500"):
        assert find_within(given, "BSDS500", "the web") == tmp_path / "BSDS500"
    monkeypatch.delenv("PIXELDIFF_DATA", raising=False)
    assert find_within(None, "BSDS500", "the web").resolve() == tmp_path / "elsewhere"
    monkeypatch.setenv("PIXELDIFF_DATA", str(tmp_path))
    assert find_within(None, "BSDS500", "the web") == tmp_path / "BSDS500"
    assert find_root("BSDS500", "the web") == tmp_path / "BSDS500"
    with pytest.raises(InputError, match=r"no data folder 'NYUD'.*get it: the web"):
        find_within("NYUD", "NYUD", "the web")
