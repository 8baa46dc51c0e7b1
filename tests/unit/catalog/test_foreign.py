import csv
import io
from pathlib import Path
from typing import Any

import pytest

from trnbench.errors import DataFileError, InputError, UnitError
from trnbench.facts.catalog.foreign import foreign, json_value, reads

FILE = Path("a.log")


def _anything(value: object) -> Any:
    """Return plain data as a reader has it: of any shape."""
    return value


def _deep(depth: int = 0) -> int:
    return _deep(depth + 1)


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        (lambda: float("x"), "could not convert string to float: 'x'"),
        (lambda: float(_anything(("1", "2"))), "it has a value of another kind (float() argument"),
        (lambda: _anything({})["tokens"], "it lacks 'tokens'"),
        (lambda: [][0], "it has fewer values than it should"),
        (
            lambda: _anything(7).get("a"),
            "it has a value of another kind ('int' object has no attribute",
        ),
        (lambda: float(10**400), "it has a number out of range"),
        (lambda: 1 / 0, "it has a 0 where none can be"),
        (lambda: int("9" * 5_000), "it has a number of too many digits"),
        (lambda: _deep(), "it is nested too deeply"),
        (lambda: [0] * (1 << 60), "it is too large for the memory of this machine"),
        (lambda: b"\xff".decode(), "it has bytes that are not UTF-8"),
        (lambda: "\udcff".encode(), "it has bytes that are not UTF-8"),
        (lambda: next(csv.reader(io.StringIO("x" * 200_000))), "field larger than field limit"),
    ],
)
def test_what_fails_in_a_reader_is_one_clear_message(fails, said):
    def read() -> None:
        with foreign(FILE, "a log") as place:
            place.where = "line 7"
            fails()

    with pytest.raises(DataFileError) as caught:
        read()
    assert caught.value.exit_code == 2
    message = caught.value.message
    assert message.startswith(f"a.log: line 7: is not a log: {said}")
    assert message.endswith("; correct it or leave it out")


def test_the_project_s_own_errors_pass_as_they_are():
    error = UnitError("1 parsec is no time")
    with pytest.raises(InputError) as caught, foreign(FILE, "a log"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, OSError, RuntimeError])
def test_what_is_no_fault_of_content_passes(kind):
    with pytest.raises(kind), foreign(FILE, "a log"):
        raise kind


def test_a_message_is_one_short_line_whatever_the_content_was():
    with pytest.raises(DataFileError) as caught, foreign(FILE, "a log"):
        raise ValueError("\x1b[31m\n" + "x" * 1_000)
    assert len(caught.value.message) < 200
    assert "\\x1b[31m\\n" in caught.value.message


def test_a_function_that_reads_is_guarded():
    @reads("an answer")
    def first(path: Path, keys: list[str], *, times: int = 1) -> str:
        return keys[0] * times

    assert first(FILE, ["ab"], times=2) == "abab"
    with pytest.raises(DataFileError, match=r"^a\.log: is not an answer: it has fewer values"):
        first(FILE, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,\n "b": ' + "9" * 400 + "}", "line 2: a number of 400 digits; correct it"),
        ("-" + "9" * 302, "line 1: a number of 302 digits; correct it"),
        ("[" * 100_000, "not valid JSON: nested too deeply"),
        ('{"a": }', "not valid JSON: Expecting value: line 1 column 7"),
        ("", "not valid JSON: Expecting value"),
    ],
)
def test_json_that_is_none_or_has_no_number(text, said):
    with pytest.raises(DataFileError) as caught:
        json_value(FILE, text)
    assert said in caught.value.message


def test_long_digits_in_text_are_no_number():
    text = '["' + "9" * 400 + '", ' + "9" * 300 + "]"
    found = json_value(FILE, text)
    assert found == ["9" * 400, int("9" * 300)]
    assert float(found[1]) < float("inf")
