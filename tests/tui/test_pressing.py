"""What a terminal sends, read as the keys that were pressed."""

from __future__ import annotations

import pytest
from textual import events

from trnbench.tui.pressing import KeyParser, read_apart


def pressed(*chunks, typing=False, wanted=()):
    """Names of the keys that these chunks mean, one after the other."""
    parser = KeyParser()
    names: list[object] = []
    for chunk in chunks:
        for event in parser.feed(chunk):
            if isinstance(event, events.Key):
                names += [key.key for key in read_apart(event, wanted, typing=typing)]
            else:
                names.append(event)
    return names


@pytest.mark.parametrize(
    ("chunks", "names"),
    [
        (["\x1b?"], ["escape", "question_mark"]),
        (["\x1b/trn2"], ["escape", "slash", "t", "r", "n", "2"]),
        (["\x1b", "+"], ["escape", "plus"]),
        (["\x1bf"], ["escape", "f"]),
        (["\x1bG"], ["escape", "G"]),
        (["\x1b1\x1b2"], ["escape", "1", "escape", "2"]),
        (["\x1b\t"], ["escape", "tab"]),
        (["\x1b\r"], ["escape", "enter"]),
        (["\x1bj" + 40 * "j"], ["escape", *41 * "j"]),
        (["\x1bx\x1b[A"], ["escape", "x", "up"]),
        (["\x1b[A", "\x1b", "[B", "\x1bOP"], ["up", "down", "f1"]),
        (["\x1b\x7f"], ["ctrl+w"]),
    ],
)
def test_escape_and_what_follows_are_two_keys(chunks, names):
    assert pressed(*chunks) == names


def test_alt_leads_from_word_to_word_in_a_text_and_where_a_user_binds_it():
    assert pressed("\x1bb", "\x1bf", typing=True) == ["ctrl+left", "ctrl+right"]
    assert pressed("\x1bx", wanted=("alt+x",)) == ["alt+x"]


def test_a_paste_has_no_keys():
    (paste,) = pressed("\x1b[200~one f two\x1b[201~")
    assert isinstance(paste, events.Paste)


def test_escape_alone_is_a_key_once_nothing_follows(monkeypatch):
    parser = KeyParser()
    assert [*parser.feed("\x1b"), *parser.tick()] == []
    monkeypatch.setattr("trnbench.tui.pressing.time.monotonic", lambda: float("inf"))
    (key,) = parser.tick()
    assert isinstance(key, events.Key)
    assert key.key == "escape"
