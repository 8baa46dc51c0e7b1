"""Knobs of a layout as the verbs take them: by name, as values or as texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trnbench.errors import InputError, UnknownNameError, did_you_mean
from trnbench.facts.workload.layout import ANY, KNOBS, Knob, Value
from trnbench.facts.workload.partial_layout import PartialLayout, knob_parser
from trnbench.program.precision import recipe_named
from trnbench.verbs.asking.function import signature_of
from trnbench.verbs.asking.option import Given, Option

LAYOUT = "layout"
"""Option with several knobs in one text."""
_SHORT = {"mbs": "micro_batch", "gbs": "global_batch", "seq": "sequence"}


def layout_of(**knobs: Any) -> PartialLayout:  # noqa: ANN401
    return KNOB_OPTIONS.value(knobs)


def knob_texts(what: str, text: str) -> dict[str, str]:
    """Knobs and their texts in KNOB=VALUE,...; a word without = goes on with the value before."""
    given: dict[str, str] = {}
    name = ""
    for word in text.split(","):
        key, sign, value = (part.strip() for part in word.partition("="))
        if sign and key and value:
            name = key.lstrip("-").replace("-", "_").casefold()
            name = _SHORT.get(name, name)
            if name not in KNOBS:
                near = did_you_mean(name, KNOBS)
                raise InputError(
                    f"{what}: {text!r} names {key!r}, which is not a knob{near}",
                    hint="`trnbench help options layout` lists them",
                )
            if name in given:
                raise InputError(f"{what}: {text!r} says {key} twice")
            given[name] = value
        elif name and not sign and key:
            given[name] += f",{key}"
        else:
            raise InputError(f"{what} {text!r} is not KNOB=VALUE,..., e.g. tp=8,pp=4")
    return given


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
        several = Option(
            name=LAYOUT,
            field=LAYOUT,
            help=f"{self.about}Knobs in one text: tp=8,pp=4,cp=1; the options below say the same.",
            metavar="KNOB=VALUE,...",
        )
        return {LAYOUT: several} | {n: _option(knob, self.about) for n, knob in KNOBS.items()}

    def value(self, given: Given) -> PartialLayout:
        text = given.get(LAYOUT)
        together: dict[str, Any] = dict(knob_texts("--layout", text)) if text else {}
        alone = {n: value for n, value in given.items() if n != LAYOUT and value is not None}
        for name in together.keys() & alone.keys():
            if _read({name: together[name]}) != _read({name: alone[name]}):
                raise InputError(f"--layout and {KNOBS[name].option} differ; give one of them")
        if self.about:
            refuse_wanted(n for n, value in (together | alone).items() if value == ANY)
        return _read(together | alone)

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
GIVEN_KNOBS = _Knobs("If the file does not say: ")
layout_of.__signature__ = signature_of(KNOB_OPTIONS.options(), PartialLayout)  # type: ignore[attr-defined]
