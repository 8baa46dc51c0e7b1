"""Knobs of a layout as the verbs take them: by name, as values or as texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.workload.layout import ANY, KNOBS, Knob, Value
from trnbench.facts.workload.partial_layout import PartialLayout, knob_parser
from trnbench.program.precision import recipe_named
from trnbench.verbs.asking.function import signature_of
from trnbench.verbs.asking.option import Given, Option


def layout_of(**knobs: Any) -> PartialLayout:  # noqa: ANN401
    return _read(knobs)


def refuse_wanted(names: Iterable[str]) -> None:
    """Refuse knobs that a search is asked for, where nothing is searched for."""
    for name in names:
        raise InputError(
            f"{KNOBS[name].option} {ANY}: nothing is searched for here",
            hint="give a value, or leave it out",
        )


def _read(knobs: Given) -> PartialLayout:
    for name in knobs:
        if name not in KNOBS:
            raise UnknownNameError("option", name, KNOBS)
    given = {name: knob for name, knob in knobs.items() if knob is not None}
    return PartialLayout(**{name: _value(KNOBS[name], given[name]) for name in given})


def _value(knob: Knob, given: Value) -> Value:
    """Return a checked value: what is given is read as its text would be."""
    what = knob.option if knob.kind is not str else knob.option.strip("-").replace("-", " ")
    text = ("on" if given else "off") if isinstance(given, bool) else str(given)
    value = knob_parser(knob, what)(text)
    return recipe_named(str(value)).name if knob.name == "precision" else value


class _Knobs:
    """The knobs of a layout as options, one for each entry of their table.

    With `about`, which comes before every help text, they are those of a run that was: they have
    no defaults, and none is searched for.
    """

    def __init__(self, about: str = "") -> None:
        self.about = about

    def options(self) -> Mapping[str, Option]:
        return {name: _option(knob, self.about) for name, knob in KNOBS.items()}

    def value(self, given: Given) -> PartialLayout:
        if self.about:
            refuse_wanted(name for name, value in given.items() if value == ANY)
        return _read(given)

    def said(self, layout: PartialLayout) -> dict[str, Any]:
        return dict(layout.said)

    def inputs(self, layout: PartialLayout) -> Mapping[str, object]:
        return {"setting": dict(layout.said)}


def _option(knob: Knob, about: str) -> Option:
    text = knob.help.partition("; default:")[0].partition("; any:")[0].rstrip(".")
    numbers = [choice for choice in knob.choices if isinstance(choice, int)]
    bounded = knob.kind is int and bool(numbers)
    plain = knob.kind is bool or bounded
    return Option(
        name=knob.name,
        field=knob.name,
        help=f"{about}{text}." if about else knob.help,
        kind=knob.kind if plain else str,
        metavar=None if plain else knob.metavar or "N",
        bounds=(min(numbers), max(numbers)) if bounded else None,
    )


KNOB_OPTIONS = _Knobs()
GIVEN_KNOBS = _Knobs("Of a log, or a file without a column of it: ")
layout_of.__signature__ = signature_of(KNOB_OPTIONS.options(), PartialLayout)  # type: ignore[attr-defined]
