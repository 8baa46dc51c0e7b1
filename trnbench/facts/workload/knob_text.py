"""Parsers of the texts for a layout's knobs."""

from __future__ import annotations

from collections.abc import Callable

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.facts.workload.layout import ANY, Knob, Value

SWITCH = {"on": True, "off": False}


def knob_parser(knob: Knob, what: str) -> Callable[[str], Value]:
    """Parser of a knob's values, and of `any` where a search may choose."""
    one = value_parser(knob, what)
    if not (knob.searched or knob.on_request):
        return one
    return lambda text: ANY if text.strip() == ANY else one(text)


def value_parser(knob: Knob, what: str) -> Callable[[str], Value]:
    """Parser of a knob's values, named `what` in errors."""
    if knob.tokens:
        return parsing.sequence(what)
    if knob.counts:
        return parsing.whole(what, least=knob.least, most=knob.most)
    if knob.kind is float:
        return parsing.count(what)
    if (form := knob.form) is not None:
        return lambda text: _formed(form, what, text)
    texts = knob_texts(knob)
    if not texts:
        return str
    known = parsing.one_of(what, texts)
    if knob.kind is bool:
        return lambda text: SWITCH[known(text)]
    return lambda text: knob.kind(known(text))


def _formed(form: Callable[[str], str], what: str, text: str) -> str:
    try:
        return form(text)
    except ValueError as fault:
        raise InputError(f"{what}: {fault}") from fault


def knob_texts(knob: Knob) -> tuple[str, ...]:
    """Texts of a knob's values, preferred ones first; empty for unlisted values."""
    if knob.kind is bool:
        return tuple(SWITCH)
    return tuple(map(str, knob.preferred or knob.choices))
