"""Tables of data files kept in the user's cache folder: the same tables, and never a wrong one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trnbench.errors import DataFileError
from trnbench.facts.catalog.kept import FILES_KEPT, digest_of, keep
from trnbench.facts.catalog.toml_file import read_known, read_toml

TEXT = """
title = "an \\u00e9tude"
rate = 2.9e12
least = -0.0
most = inf
big = 9007199254740993
seen = 2024-02-29
[[part]]
dates = [2025-01-01, [2025-01-02]]
empty = {}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "trnbench" / "tables"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.toml"
    path.write_text(TEXT)
    return path


def never(_):
    raise AssertionError("parsed anew")


def test_what_is_kept_is_what_was_read(folder, file, monkeypatch):
    parsed = read_toml(file)
    assert read_known(file) == parsed
    assert len(list(folder.iterdir())) == 1
    monkeypatch.setattr("tomli.loads", never)
    again = read_known(file)
    assert repr(again) == repr(parsed)
    assert [*map(type, again.values())] == [*map(type, parsed.values())]
    file.write_text(TEXT + "more = 1\n")
    with pytest.raises(AssertionError, match="anew"):
        read_known(file)


@pytest.mark.parametrize("harm", [b"", b"{", b"\xff\n{}", None])
def test_a_damaged_table_is_read_anew_and_replaced(folder, file, harm):
    parsed = read_known(file)
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole.replace(b"2.9", b"3.9") if harm is None else harm)
    assert read_known(file) == parsed
    assert kept.read_bytes() == whole


def test_what_json_cannot_hold_or_nobody_may_show_is_not_kept(folder, file):
    file.write_text("at = 07:32:00\n")
    assert str(read_known(file)["at"]) == "07:32:00"
    file.write_text('title = "\\u001b[2J"\n')
    for _ in range(2):
        with pytest.raises(DataFileError, match=r"U\+001B"):
            read_known(file)
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_does_no_harm_and_one_that_is_full_is_swept(
    folder, file, monkeypatch
):
    for number in range(FILES_KEPT + 2):
        keep("tables", f"{number:064x}", {})
    assert len(list(folder.iterdir())) <= FILES_KEPT
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    assert read_known(file) == read_toml(file)


FORMS = [7, "text", [], {}, {"table": 7, "dates": []}, {"table": {}, "dates": [7]}, {"table": {}}]
FORMS += [{"table": {}, "dates": [[["a", "b"], "2024-02-29"]]}, {"table": {"a": 1}, "dates": None}]


@pytest.mark.parametrize("form", FORMS)
def test_a_whole_table_of_another_form_is_read_anew(folder, file, form):
    keep("tables", digest_of(TEXT), form)
    assert read_known(file) == read_toml(file)


@pytest.mark.parametrize("what", ["pipe", "folder", "writable"])
def test_what_others_may_have_put_there_is_not_believed(folder, file, what):
    keep("tables", digest_of(TEXT), {"table": {"rate": 1}, "dates": []})
    assert read_known(file) == {"rate": 1}
    (kept,) = folder.iterdir()
    if what == "writable":
        kept.chmod(0o660)
    else:
        kept.unlink()
        os.mkfifo(kept) if what == "pipe" else kept.mkdir()
    assert read_known(file) == read_toml(file)
