"""The parts of a run, one after the other: `--tokens`, `--samples` and `--phase` <-> records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.facts.parsing import count_text, read
from trnbench.facts.records import MAX_SIZE, Record, field
from trnbench.facts.units import Dimension
from trnbench.facts.workload.layout import KNOBS
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.verbs.asking.knobs import knob_texts, layout_of
from trnbench.verbs.asking.option import Given, Option
from trnbench.verbs.asking.question import Question, option

WHOLE = 1.0
ROUNDING = 1e-6
"""Shares of a run add up to the whole but for so much."""
FORM = "TOKENS@SEQUENCE[,KNOB=VALUE...], e.g. 1.9T@8192 or 10%@128k,cp=8,global-batch=256"


class Part(Record):
    """A part of a run: so many tokens or samples, in sequences of one length or the usual one.

    `layout` are knobs that this part has otherwise than the run.
    """

    tokens: float | None = None
    samples: float | None = None
    sequence: int | None = None
    layout: PartialLayout = field(default_factory=PartialLayout)

    def __post_init__(self) -> None:
        """Refuse a part of nothing, one counted twice, and knobs that no part has for itself."""
        if (self.tokens is None) == (self.samples is None):
            raise InputError("say how long the run is: tokens or samples, one of the two")
        for name in ("tokens", "samples"):
            amount = getattr(self, name)
            if amount is not None and not 0 < amount < math.inf:
                raise InputError(f"{name} must be above 0, found {amount:g}")
        if self.sequence is not None and not 1 <= self.sequence < MAX_SIZE:
            raise InputError(
                f"a sequence must be from 1 to {MAX_SIZE - 1:,} tokens, found {self.sequence:,}"
            )
        for name in self.layout.said:
            if name == "sequence":
                raise InputError("--phase: write the sequence behind the @, not as a knob")
            if name == "job" or KNOBS[name].of_jobs:
                raise InputError(
                    f"--phase: {KNOBS[name].option} is of the whole run; give it next to --phase"
                )


def parts_of(
    tokens: float | str | None, samples: float | str | None, phases: Sequence[str]
) -> tuple[Part, ...]:
    """Return the parts of a run; phases may be shares of its tokens, which then are given too."""
    if not phases and (tokens is None) != (samples is None):
        if tokens is not None:
            return (Part(tokens=read(parsing.count("--tokens"), tokens)),)
        return (Part(samples=read(parsing.count("--samples"), samples)),)
    shares = ["%" in text.partition("@")[0] for text in phases]
    if not phases or samples is not None or (tokens is not None and not any(shares)):
        raise InputError(
            "give one of --tokens 2T, --samples 50K, --phase 1.9T@8192; parts in % need --tokens"
        )
    if not any(shares):
        return tuple(_phase(text, None) for text in phases)
    if not all(shares):
        raise InputError("--phase: give every part in tokens, or every part in % of --tokens")
    if tokens is None:
        raise InputError(f"--phase: {phases[0]!r} is a share of --tokens; give them too")
    whole = read(parsing.count("--tokens"), tokens)
    parts = tuple(_phase(text, whole) for text in phases)
    stated = sum(part.tokens or 0.0 for part in parts) / whole
    if abs(stated - WHOLE) > ROUNDING:
        raise InputError(
            f"--phase: the parts add up to {100 * stated:.6g} % of --tokens, not 100 %"
        )
    return parts


def _phase(text: str, whole: float | None) -> Part:
    length, _, knobs = text.partition(",")
    amount, sign, sequence = length.partition("@")
    if not sign:
        raise InputError(f"--phase: {text!r} is not {FORM}")
    if whole is None:
        tokens = parsing.count("--phase")(amount)
    else:
        tokens = whole * parsing.quantity("--phase", Dimension.RATIO)(amount)
    layout = layout_of(**knob_texts("--phase", knobs)) if knobs else PartialLayout()
    return Part(tokens=tokens, sequence=parsing.sequence("--phase")(sequence), layout=layout)


def part_text(part: Part, tokens_text: str) -> str:
    """Return a part as `--phase` takes it, its tokens written so."""
    words = [f"{tokens_text}@{part.sequence}"]
    for name, value in part.layout.said.items():
        plain = ("on" if value else "off") if isinstance(value, bool) else value
        words.append(f"{name.replace('_', '-')}={plain}")
    return ",".join(words)


def shown_part(part: Part) -> dict[str, object]:
    own = {"layout": dict(part.layout.said)} if part.layout.said else {}
    plain = {"tokens": part.tokens, "samples": part.samples, "sequence": part.sequence}
    return {**plain, **own}


class _Length(Question):
    """The options that say how long a run is."""

    tokens: float | None = option("Tokens to train on: 2T, 300B.", read=parsing.count)
    samples: float | None = option("Or samples of --sequence tokens each: 50K.", read=parsing.count)
    phases: tuple[str, ...] = option(
        "Or parts of the run, each with its sequence length and knobs: 1.9T@8192, or "
        "in % of --tokens: 10%@128k,cp=8,global-batch=256 (repeatable).",
        name="phase",
        several="repeated",
        metavar="TOKENS@SEQUENCE",
    )


class _Parts:
    """Length of a run: options, and the parts that they make; none if it may be left open."""

    def __init__(self, *, optional: bool = False) -> None:
        self.optional = optional

    def options(self) -> Mapping[str, Option]:
        return _Length.options()

    def value(self, given: Given) -> tuple[Part, ...]:
        length = _Length.read(given)
        if self.optional and length == _Length():
            return ()
        return parts_of(length.tokens, length.samples, length.phases)

    def said(self, parts: Sequence[Part]) -> dict[str, Any]:
        if not parts:
            return {}
        first = parts[0]
        if len(parts) == 1 and first.sequence is None:
            name = "samples" if first.tokens is None else "tokens"
            return {name: count_text(getattr(first, name))}
        return {"phase": [part_text(part, count_text(part.tokens or 0.0)) for part in parts]}

    def inputs(self, parts: Sequence[Part]) -> Mapping[str, object]:
        return {"parts": [shown_part(part) for part in parts]}


LENGTH = _Parts()
LENGTH_IF_ANY = _Parts(optional=True)
