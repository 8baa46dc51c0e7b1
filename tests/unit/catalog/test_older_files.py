"""Tables that earlier versions wrote, in the form of today; and what their schema refuses."""

from __future__ import annotations

import pytest

from trnbench.catalog.older_files import modern
from trnbench.catalog.quantity import Correlation
from trnbench.catalog.structure import structure
from trnbench.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    correlations: dict[str, dict[str, Correlation]]


def faults(table):
    found = structure(table, Pairs)
    assert isinstance(found, list)
    return found


def test_correlations_written_as_texts_become_tables():
    texts = ["factor ~ chip.tensor_share: 0.51", "factor ~ step: -0.20", "step ~ releases.a: 1"]
    found = modern({"name": "x", "correlations": texts})
    assert found == {
        "name": "x",
        "correlations": {
            "factor": {"chip.tensor_share": 0.51, "step": -0.2},
            "step": {"releases.a": 1.0},
        },
    }
    assert isinstance(structure({"correlations": found["correlations"]}, Pairs), Pairs)


@pytest.mark.parametrize("text", ["factor chip.tensor_share: 0.5", "a ~ b", "a ~ b: 2.5", "", 7])
def test_texts_that_are_none_are_left_for_the_schema_to_refuse(text):
    table = {"correlations": ["a ~ b: 0.5", text]}
    assert modern(table) == table
    assert [str(fault) for fault in faults(table)] == [
        "correlations: expected a table, found a list"
    ]


def test_tables_of_today_stay_as_they_are():
    table = {"correlations": {"a": {"b": 0.5}}, "list": [1]}
    assert modern(table) == table


@pytest.mark.parametrize("value", [2.5, -1.01, float("nan"), True, "0.5"])
def test_a_correlation_that_is_none_is_refused(value):
    found = faults({"correlations": {"a": {"b": value}}})
    assert [fault.path for fault in found] == ["correlations.a.b"]


@pytest.mark.parametrize("schedules", [2.5, "1f1b", {"gpipe": 1}])
def test_what_is_supported_is_left_to_the_schema_where_a_list_is_none(schedules):
    old = {
        **{"schedules": schedules, "recompute": ["none"], "zero": [0]},
        **{"sequence_parallel": True, "context_parallel": True, "expert_parallel": True},
    }
    assert modern({"supports": old}) == {"supports": old}
