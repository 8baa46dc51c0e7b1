"""Records do what the standard library's dataclasses do, though they write their methods later."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from dataclasses import FrozenInstanceError, field
from threading import Barrier, Thread
from typing import Any, ClassVar, cast

import pytest

from trnbench.records import _FEW, dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bolt:
    """A record with every kind of field."""

    length: float
    head: str = "hex"
    marks: list[int] = field(default_factory=list)
    note: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Screw(_Bolt):
    pitch: float = 1.0


@dataclass
class _Counter:
    start: int
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = self.start + 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Standard:
    length: float
    head: str = "hex"
    marks: list[int] = dataclasses.field(default_factory=list)
    note: str = dataclasses.field(default="", repr=False, compare=False)


def test_fields_defaults_and_text_are_as_the_standard_ones() -> None:
    ours, standard = _Bolt(length=2.0), _Standard(length=2.0)
    assert repr(ours) == repr(standard).replace("_Standard", "_Bolt")
    assert dataclasses.asdict(ours) == dataclasses.asdict(standard)
    assert ours.marks is not _Bolt(length=2.0).marks
    assert _Screw(length=1.0, pitch=2.0) == dataclasses.replace(_Screw(length=1.0), pitch=2.0)
    assert repr(_Screw(length=1.0)).endswith("marks=[], pitch=1.0)")
    assert (_Counter(3).count, _Counter(start=4).count) == (4, 5)


def test_fields_are_those_that_the_standard_library_finds() -> None:
    def bolts(made: Any, kind: str) -> list[type]:
        @made(frozen=True, slots=True)
        class _Plain:
            """A base."""

            KIND: ClassVar[str] = kind
            length: float
            head: str = "hex"
            shown: str = field(default="shown", init=False, metadata={"derived": True})

        @made(frozen=True, slots=True, kw_only=True)
        class _Threaded(_Plain):
            """Of other defaults, and with a field more."""

            head: str = "flat"
            pitch: float = 1.0
            marks: list[int] = field(default_factory=list)

        @made
        class _Open:
            """Neither frozen nor in slots."""

            size: int
            notes: list[str] = field(default_factory=list, repr=False)
            colour: str = "grey"

        return [_Plain, _Threaded, _Open]

    for ours, standard in zip(
        bolts(dataclass, "m"), bolts(dataclasses.dataclass, "m"), strict=True
    ):
        told = [repr(one) for one in dataclasses.fields(cast(Any, ours))]
        assert told == [repr(one) for one in dataclasses.fields(cast(Any, standard))]
        for name in ("__slots__", "__match_args__", "__qualname__", "__module__", "KIND", "colour"):
            assert getattr(ours, name, None) == getattr(standard, name, None)
        assert hasattr(ours, "notes") == hasattr(standard, "notes")
        assert dataclasses.is_dataclass(ours)


def test_a_default_that_records_would_share_is_refused() -> None:
    with pytest.raises(ValueError, match="marks"):

        @dataclass(frozen=True)
        class _Shared:
            marks: list[int] = []  # noqa: RUF012


def test_the_first_records_and_later_ones_are_alike() -> None:
    @dataclass(frozen=True, slots=True)
    class _Rivet:
        size: float
        marks: list[int] = field(default_factory=list)
        note: str = field(default="", kw_only=True)
        shown: str = field(default="shown", init=False)
        area: float = field(init=False)

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("below 0")
            object.__setattr__(self, "area", self.size**2)

    made, refused = [], cast(Any, _Rivet)
    for _ in range(2 * _FEW):
        made.append((_Rivet(2.0, [1]), _Rivet(2.0, note="n"), _Rivet(size=2.0, marks=[1])))
        for given, named in (((), {}), ((1.0, [], "n"), {}), ((1.0,), {"size": 1.0})):
            with pytest.raises(TypeError, match="__init__"):
                refused(*given, **named)
        with pytest.raises(ValueError, match="below 0"):
            _Rivet(-1.0)
    assert made == [made[0]] * len(made)
    first, second, third = made[0]
    assert (first.area, first.shown, first.note, second.note) == (4.0, "shown", "", "n")
    assert first == third
    assert second.marks is not made[1][1].marks


def test_a_replaced_record_has_what_was_not_named() -> None:
    bolt = _Bolt(length=2.0, marks=[1], note="n")
    changed = replace(bolt, length=3.0)
    assert changed == _Bolt(length=3.0, marks=[1])
    assert changed.note == "n"
    assert changed.marks is bolt.marks
    assert replace(_Counter(3), start=5).count == 6
    with pytest.raises(TypeError, match="__init__"):
        replace(bolt, width=1.0)  # type: ignore[call-arg]


@pytest.mark.parametrize("named", [{}, {"length": 1.0, "width": 2.0}])
def test_a_wrong_call_is_refused(named: dict[str, float]) -> None:
    with pytest.raises(TypeError, match="__init__"):
        _Bolt(**named)  # type: ignore[arg-type]


def test_equal_records_are_one_key_and_classes_are_told_apart() -> None:
    @dataclass(frozen=True, slots=True)
    class _Pin:
        size: float

    assert _Pin(1.5) == _Pin(1.5)
    assert hash(_Pin(1.5)) == hash(_Pin(1.5))
    assert _Pin(1.5) != _Pin(2.5)
    assert _Pin(math.nan) == _Pin(math.nan)  # as tuples compare: the same object is equal to itself
    assert _Bolt(length=1.0, note="a") == _Bolt(length=1.0, note="b")
    assert _Bolt(length=1.0) != _Screw(length=1.0)
    with pytest.raises(TypeError, match="unhashable"):
        hash(_Counter(1))


def test_identity_counts_where_equality_is_not_asked_for() -> None:
    @dataclass(frozen=True, slots=True, eq=False)
    class _Tool:
        name: str

    saw = _Tool("saw")
    assert saw != _Tool("saw")
    assert {saw: 1}[saw] == 1


def test_a_frozen_record_does_not_change_and_travels() -> None:
    bolt = _Bolt(length=2.0, marks=[1])
    with pytest.raises(FrozenInstanceError):
        bolt.length = 3.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del bolt.length
    with pytest.raises((AttributeError, TypeError)):
        bolt.width = 3.0  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(bolt)) == copy.deepcopy(bolt) == bolt


def test_threads_that_make_the_first_record_at_once_all_get_it() -> None:
    for _ in range(20):

        @dataclass(frozen=True, slots=True, kw_only=True)
        class _Nut:
            size: float

        made: list[_Nut] = []
        start = Barrier(4)

        def make(kind: type[_Nut] = _Nut, start: Barrier = start, made: list = made) -> None:
            start.wait()
            made.append(kind(size=1.0))

        threads = [Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [_Nut(size=1.0)] * 4
