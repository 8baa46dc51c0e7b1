"""A value that a question did not state, and why that value was taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import KNOBS, Value


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
    """Assumptions as lines of text, those with one reason together."""
    # Reasons keep the order in which they first occur.
    order = dict.fromkeys(assumption.reason for assumption in assumed)
    ranked = sorted(assumed, key=lambda assumption: list(order).index(assumption.reason))
    return [
        f"{', '.join(assumption.pair for assumption in alike)}: {why}"
        for why, alike in groupby(ranked, key=lambda assumption: assumption.reason)
    ]


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
