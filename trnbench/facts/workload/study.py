"""A study as its file describes it: one verb asked in every combination of some options.

    name = "trn1-layouts"
    title = "..."
    verb = "train"

    [fixed]                       # options of every cell, by their names on the command line
    global_batch = 1024

    [axes]                        # every combination is a cell
    model = ["llama2-7b", "llama2-13b"]
    tp = [8, 16, 32]
    place = [                     # options that go together are one axis of tables
        { on = "trn1.32xlarge:4" },
        { on = "trn2.48xlarge:1", stack = "nxd-trn2" },
    ]

    [[exclude]]                   # leaves out cells where all of these hold
    model = "llama2-7b"
    tp = { above = 16 }

It is a question, so nothing in it needs a source.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trnbench.errors import InputError
from trnbench.facts.catalog.document import load_question
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.records import Record, field

VERB = "verb"
"""Key in an axis' table for another verb than the study's."""
STUDIED = ("matrix", "collective", "train", "compare", "plan", "fleet", "validate", "numerics")
"""Verbs available to studies."""
_BOUNDS = ("above", "below")
_PLAIN = (str, int, float, bool)


class Cell(Record):
    """One question of a study: position, label on each axis, verb and options."""

    position: int
    axes: Mapping[str, str]
    verb: str
    options: Mapping[str, Any]


class Study(Sourced):
    """A study: `verb` with the options `fixed`, in every combination of `axes` not excluded."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    verb: str
    fixed: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, Any] = field(default_factory=dict)
    exclude: tuple[dict[str, Any], ...] = ()
    keep: tuple[str, ...] = ()
    """Figures kept of each answer; empty: those shown to people."""

    def __post_init__(self) -> None:
        verbs = [self.verb]
        for name, values in self.axes.items():
            if not isinstance(values, list) or not values:
                raise ValueError(f"the axis {name!r} is a list of values")
            for value in values:
                if not (isinstance(value, _PLAIN) or _is_table(value)):
                    raise ValueError(f"the axis {name!r} has texts, numbers or tables of options")
                verbs += [value[VERB]] if isinstance(value, dict) and VERB in value else []
        for verb in verbs:
            if verb not in STUDIED:
                raise ValueError(f"`verb` is one of {', '.join(STUDIED)}; found {verb!r}")
        if not self.axes:
            raise ValueError("`axes` has at least one axis")
        for limits in self.exclude:
            for name, limit in limits.items():
                if name not in self.axes:
                    raise ValueError(f"`exclude` names {name!r}, which is not an axis")
                if not (_is_limit(limit) if isinstance(limit, dict) else _is_option(limit)):
                    raise ValueError(
                        f"`exclude` of {name!r} takes values, or numbers above and below"
                    )
        for name, value in self.fixed.items():
            if not _is_option(value):
                raise ValueError(f"`fixed.{name}` is a text, a number, or a list of these")

    @property
    def size(self) -> int:
        return math.prod(len(values) for values in self.axes.values())


def _is_option(value: object) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(isinstance(item, _PLAIN) for item in values)


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(map(_is_option, value.values()))


def _is_limit(limit: Mapping[str, object]) -> bool:
    numbers = (isinstance(number, int | float) for number in limit.values())
    return bool(limit) and set(limit) <= {*_BOUNDS} and all(numbers)


def cells_of(study: Study) -> Iterator[Cell]:
    """Yield the cells; the last axis varies fastest."""
    position = 0
    for values in itertools.product(*study.axes.values()):
        chosen = dict(zip(study.axes, values, strict=True))
        if any(
            all(_holds(chosen[name], limit) for name, limit in limits.items())
            for limits in study.exclude
        ):
            continue
        options: dict[str, Any] = dict(study.fixed)
        for name, value in chosen.items():
            options |= value if isinstance(value, dict) else {name: value}
        verb = options.pop(VERB, study.verb)
        yield Cell(
            position=position,
            axes={name: label_of(value) for name, value in chosen.items()},
            verb=verb,
            options={name: _option(value) for name, value in options.items()},
        )
        position += 1


def label_of(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(label_of(part) for part in value.values())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def read_study(path: Path) -> Study:
    return load_question(path, Study)


def axis_of(study: Study, name: str) -> str:
    if name not in study.axes:
        raise InputError(f"{study.name} has no axis {name!r}; its axes: {', '.join(study.axes)}")
    return name


def _holds(value: object, limit: object) -> bool:
    if isinstance(limit, dict):
        if not isinstance(value, int | float):
            return False
        return bool(limit.get("above", -math.inf) < value < limit.get("below", math.inf))
    return value in limit if isinstance(limit, list) else value == limit


def _option(value: object) -> object:
    if isinstance(value, bool | list):
        return value if isinstance(value, bool) else [str(item) for item in value]
    return str(value)
