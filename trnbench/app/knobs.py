"""Knobs of a layout as the verbs take them: by name, as values or as texts."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from trnbench.errors import InputError, UnknownNameError
from trnbench.program.precision import recipe_named
from trnbench.workload.knob_text import knob_parser
from trnbench.workload.layout import ANY, KNOBS, Value
from trnbench.workload.partial_layout import PartialLayout


def layout_of(**knobs: Any) -> PartialLayout:  # noqa: ANN401
    """Return the layout of which these knobs are settled; None leaves one open."""
    for name in knobs:
        if name not in KNOBS:
            raise UnknownNameError("option", name, KNOBS)
    given = {name: _value(name, one) for name, one in knobs.items() if one is not None}
    return PartialLayout(**given)


def settled_layout_of(**knobs: Any) -> PartialLayout:  # noqa: ANN401
    """Return the layout of which these knobs are settled, where nothing is searched for."""
    layout = layout_of(**knobs)
    refuse_wanted(layout)
    return layout


def refuse_wanted(layout: PartialLayout) -> None:
    """Refuse knobs that a search is asked for, where nothing is searched for."""
    for name in layout.wanted:
        raise InputError(
            f"{KNOBS[name].option} {ANY}: nothing is searched for here",
            hint="give a value, or leave it out",
        )


def _value(name: str, given: Value) -> Value:
    """Return a checked value: what is given is read as its text would be."""
    knob = KNOBS[name]
    what = knob.option.lstrip("-") if knob.kind is str else knob.option
    text = ("on" if given else "off") if isinstance(given, bool) else str(given)
    value = knob_parser(knob, what)(text)
    return recipe_named(str(value)).name if name == "precision" else value


def _parameters() -> Mapping[str, inspect.Parameter]:
    """Return an argument for each knob, all of them open."""
    return {
        name: inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=f"{knob.kind.__name__} | str | None",
        )
        for name, knob in KNOBS.items()
    }


layout_of.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    tuple(_parameters().values()), return_annotation=PartialLayout
)
