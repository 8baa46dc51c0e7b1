"""Decoders of user-given sizes: parsed from a text, and laid out over the devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from trnbench.errors import InputError, UnknownNameError
from trnbench.evidence.measure.device import Capabilities
from trnbench.evidence.measure.suites import DecoderCase, Suite, decoders_for
from trnbench.facts import parsing
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import AttentionKernel

DecoderSizes = Mapping[str, int | str]
"""Given fields of a `DecoderCase`."""

_COUNTS = (
    *("layers", "hidden", "heads", "ffn", "vocab", "micro_batch", "micro_batches", "tp"),
    "sequence",
)
_PRECISIONS = ("fp32", "bf16-master")
_WORDS: Mapping[str, Sequence[str]] = {
    "precision": _PRECISIONS,
    "attention": get_args(AttentionKernel),
}


def decoder_sizes(text: str) -> DecoderSizes:
    """Sizes in a text such as `layers=4,hidden=512,tp=2`."""
    found: dict[str, int | str] = {}
    for part in text.split(","):
        told, equals, value = (word.strip() for word in part.partition("="))
        name = told.replace("-", "_")
        if not equals or not value:
            raise InputError(f"--decoder: expected NAME=VALUE, found {part!r}")
        if name not in _COUNTS and name not in _WORDS:
            known = [one.replace("_", "-") for one in (*_COUNTS, *_WORDS)]
            raise UnknownNameError("size of a decoder", told, known)
        if name in found:
            raise InputError(f"--decoder: {told} stands twice")
        what = f"--decoder: {told}"
        if name in _WORDS:
            found[name] = parsing.one_of(what, _WORDS[name])(value)
        else:
            kind = parsing.sequence if name == "sequence" else parsing.whole
            found[name] = kind(what)(value)
    return found


def with_given(suite: Suite, given: Sequence[DecoderSizes], can: Capabilities) -> Suite:
    """The suite, with given decoders in place of its own, if any."""
    if not given:
        return suite
    return replace(suite, decoders=tuple(_case(sizes, can) for sizes in given))


def _case(sizes: DecoderSizes, can: Capabilities) -> DecoderCase:
    """A decoder over all devices; missing sizes are those of the suite's first decoder."""
    values: dict[str, Any] = dict(sizes)
    tp = int(values.get("tp", 1))
    case = replace(decoders_for(can)[0], **values, dp=max(can.devices // tp, 1))
    parts = {"devices": can.devices, "heads": case.heads, "ffn": case.ffn, "vocab": case.vocab}
    for name, size in parts.items():
        if size % tp:
            raise InputError(f"--decoder: tp {tp} does not divide {name} {size}")
    if case.hidden % (2 * case.heads):
        raise InputError(
            f"--decoder: hidden {case.hidden} is no even number for each of {case.heads} heads"
        )
    return case
