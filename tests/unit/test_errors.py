"""The error tree: exit codes, one-line messages, nearest names."""

from __future__ import annotations

import pytest

from trnbench import errors
from trnbench.errors import DataFileError, Fault, TrnbenchError, UnknownNameError, did_you_mean

CODES = {
    "TrnbenchError": 70,
    "InputError": 2,
    "UnitError": 2,
    "OutOfRange": 2,
    "UnknownNameError": 2,
    "DataFileError": 2,
    "EnvironmentFault": 3,
    "GapError": 70,
}


def test_every_class_has_its_documented_exit_code():
    classes = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, TrnbenchError)
    }
    assert {name: value.exit_code for name, value in classes.items()} == CODES
    for name, code in CODES.items():
        assert name in (errors.__doc__ or "")
        assert str(code) in (errors.__doc__ or "")


def test_unknown_name_proposes_the_nearest_and_says_where():
    error = UnknownNameError("chip", "trn3", ["trn2", "h100"], where="my.toml (chip)")
    assert str(error) == "unknown chip 'trn3' in my.toml (chip); did you mean 'trn2'?"
    assert error.hint == "known: h100, trn2"


def test_unknown_name_does_not_list_a_catalogue():
    error = UnknownNameError("model", "x", [f"model-{i}" for i in range(100)])
    assert error.hint is None


def test_a_file_error_names_the_file_the_first_fault_and_how_many_more():
    faults = [Fault(path="a.b", message="missing"), Fault(path="", message="odd")]
    error = DataFileError("x.toml", faults)
    assert str(error) == "x.toml: a.b: missing (and 1 more)"
    assert "validate" in (error.hint or "")
    assert DataFileError("x.toml", faults[1:]).hint is None


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("bandwith", ["bandwidth", "latency"], "; did you mean 'bandwidth'?"),
        ("zzz", ["bandwidth"], ""),
        ("x", [], ""),
    ],
)
def test_did_you_mean(name, known, said):
    assert did_you_mean(name, known) == said
