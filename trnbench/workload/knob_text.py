"""Texts that people type for a knob of a layout -> its values."""

from __future__ import annotations

from collections.abc import Callable

from trnbench import parsing
from trnbench.workload.layout import Knob, Value

SWITCH = {"on": True, "off": False}


def knob_parser(knob: Knob, what: str) -> Callable[[str], Value]:
    """Return a parser of a knob's values that calls it `what` in errors."""
    if knob.tokens:
        return parsing.sequence(what)
    if knob.is_degree:
        return parsing.whole(what)
    if knob.kind is float:
        return parsing.count(what)
    texts = knob_texts(knob)
    if not texts:
        return str
    known = parsing.one_of(what, texts)
    if knob.kind is bool:
        return lambda text: SWITCH[known(text)]
    return lambda text: knob.kind(known(text))


def knob_texts(knob: Knob) -> tuple[str, ...]:
    """Return the texts of all values of a knob, those preferred first; none if it has too many."""
    if knob.kind is bool:
        return tuple(SWITCH)
    return tuple(map(str, knob.preferred or knob.choices))
