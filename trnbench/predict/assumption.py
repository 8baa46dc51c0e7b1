"""A value that a question did not state, and why that value was taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import KNOBS, Value

NAMED = 2
"""Places of one assumption that a line names."""


class Assumption(Record):
    """A value that nobody stated, with its reason in plain words."""

    name: str
    value: Value
    why: str
    place: str = ""
    """The cluster for which alone the value holds; empty where it holds for all."""

    @property
    def reason(self) -> str:
        return f"{self.why} ({self.place})" if self.place else self.why

    @property
    def pair(self) -> str:
        """Name and value as text: micro-batch 4."""
        title = KNOBS[self.name].title if self.name in KNOBS else self.name
        return f"{title} {_shown(self.value)}"

    @property
    def text(self) -> str:
        """The assumption as text: micro-batch 4: the fastest that fits."""
        return f"{self.pair}: {self.reason}"

    @property
    def plain(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "why": self.reason}


def merged(by_place: Mapping[str, Sequence[Assumption]]) -> tuple[Assumption, ...]:
    """Assumptions of several places, each once; those that differ say where they hold."""
    places = {place: dict.fromkeys(listed) for place, listed in by_place.items()}
    every = dict.fromkeys(assumption for listed in places.values() for assumption in listed)
    # An assumption that holds at every place is said once, without a place.
    shared = [
        assumption
        for assumption in every
        if all(assumption in listed for listed in places.values())
    ]
    own = [
        replace(assumption, place=place)
        for place, listed in places.items()
        for assumption in listed
        if assumption not in shared
    ]
    return tuple(dict.fromkeys((*shared, *own)))


def assumed_lines(assumed: Iterable[Assumption]) -> list[str]:
    """Assumptions as lines of text, those with one reason together, and equal lines once."""
    # Reasons keep the order in which they first occur.
    alike: dict[tuple[str, str], list[str]] = {}
    for one in assumed:
        alike.setdefault((one.why, one.place), []).append(one.pair)
    places: dict[str, list[str]] = {}
    for (why, place), pairs in alike.items():
        places.setdefault(f"{', '.join(pairs)}: {why}", []).append(place)
    return [f"{line}{_held_at(held)}" for line, held in places.items()]


def _held_at(places: Sequence[str]) -> str:
    """The places where a line holds, in brackets; empty where it holds at all."""
    named = [place for place in places if place]
    more = len(named) - NAMED
    text = "; ".join(named[:NAMED]) + (f" and {more} more" if more > 0 else "")
    return f" ({text})" if text else ""


def of_all_places(assumed: Iterable[Assumption]) -> list[Assumption]:
    """Assumptions that hold for every cluster compared."""
    return [assumption for assumption in assumed if not assumption.place]


def _shown(value: Value) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:g}"
        case _:
            return str(value)
