"""Records: fields by keyword or position, notes about them, equality, copies, cached values."""

from __future__ import annotations

import copy
import math
import pickle
from functools import cached_property
from typing import Any, ClassVar, cast

import pytest

from trnbench.facts.records import MISSING, Record, State, asdict, field, fields, replace


class _Bolt(Record):
    """A record with every kind of field."""

    KIND: ClassVar[str] = "m"
    length: float
    head: str = "hex"
    marks: list[int] = field(default_factory=list)
    share: float = field(default=1.0, metadata={"most": 1.0})

    @cached_property
    def sizes(self) -> list[float]:
        """The length, in a list that is made once."""
        return [self.length]


class _Screw(_Bolt):
    pitch: float = field(metadata={"least": 0.5})


class _Pin(Record, kw_only=False):
    size: float
    inside: tuple[_Bolt, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("below 0")


class _Count(State):
    count: int = 0


class _Tool(Record, eq=False):
    name: str


def test_fields_are_those_of_the_bases_first_with_defaults_and_notes() -> None:
    told = {one.name: one for one in fields(_Screw)}
    assert tuple(told) == ("length", "head", "marks", "share", "pitch")
    assert told["length"].default is told["pitch"].default is MISSING
    assert told["marks"].default is not MISSING
    assert told["head"].default == "hex"
    assert told["share"].metadata == {"most": 1.0}
    assert told["pitch"].metadata == {"least": 0.5}
    assert told["head"].metadata == {}
    assert fields(_Screw(length=1.0, pitch=2.0)) == fields(_Screw)
    assert _Screw(length=1.0, pitch=2.0).share == 1.0


def test_fields_go_by_keyword_unless_the_class_takes_positions() -> None:
    assert _Pin(2.0) == _Pin(size=2.0)
    with pytest.raises(TypeError):
        cast(Any, _Bolt)(2.0)
    for wrong in ({}, {"length": 1.0, "width": 2.0}):
        with pytest.raises(TypeError):
            cast(Any, _Bolt)(**wrong)


def test_a_default_that_records_would_share_is_refused() -> None:
    assert _Bolt(length=2.0).marks is not _Bolt(length=2.0).marks
    with pytest.raises(TypeError, match="default_factory"):

        class _Shared(Record):
            marks: list[int] = [1]  # noqa: RUF012


def test_a_replaced_record_is_checked_and_has_what_was_not_named_but_no_cached_value() -> None:
    bolt = _Bolt(length=2.0, marks=[1])
    assert bolt.sizes is bolt.sizes
    changed = replace(bolt, length=3.0)
    assert changed == _Bolt(length=3.0, marks=[1])
    assert changed.marks is bolt.marks
    assert changed.sizes == [3.0]
    with pytest.raises(TypeError):
        replace(bolt, width=1.0)
    with pytest.raises(ValueError, match="below 0"):
        replace(_Pin(1.0), size=-1.0)


def test_equal_records_are_one_key_and_classes_are_told_apart() -> None:
    assert hash(_Pin(1.5)) == hash(_Pin(1.5))
    assert _Pin(1.5) != _Pin(2.5)
    assert _Pin(math.nan) == _Pin(math.nan)  # as tuples compare: the same object is equal to itself
    assert _Bolt(length=1.0) != _Screw(length=1.0, pitch=1.0)
    with pytest.raises(TypeError, match="unhashable"):
        hash(_Count())


def test_identity_counts_where_equality_is_not_asked_for() -> None:
    saw = _Tool(name="saw")
    assert saw != _Tool(name="saw")
    assert {saw: 1}[saw] == 1


def test_a_record_does_not_change_and_travels_but_a_state_does_change() -> None:
    bolt = _Bolt(length=2.0, marks=[1])
    with pytest.raises(AttributeError):
        bolt.length = 3.0  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        bolt.width = 3.0  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(bolt)) == copy.deepcopy(bolt) == copy.copy(bolt) == bolt
    state = _Count()
    state.count += 1
    assert state == _Count(count=1)


def test_a_table_of_a_record_has_tables_of_the_records_in_it() -> None:
    told = {"length": 1.0, "head": "hex", "marks": [], "share": 1.0}
    assert asdict(_Pin(2.0, (_Bolt(length=1.0),))) == {"size": 2.0, "inside": (told,)}
