"""Pipeline stages drawn by hand, as in Megatron-LM's --pipeline-model-parallel-layout.

`E` is the embedding, `t` a layer, `m` a module of multi-token prediction, `L` the loss, `|` ends a
stage. `x*n` repeats a letter, `(...)*n` an unnested group; commas are ignored. Of p ranks, rank r
runs the stages r, p + r, 2 p + r, ... as its chunks.
(megatron/core/transformer/pipeline_parallel_layer_layout.py)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import groupby, zip_longest
from typing import TypeAlias

Units: TypeAlias = tuple[tuple[str, int], ...]
"""Letters, each with its position in the text, from 1."""

EMBEDDING, LAYER, DEPTH, LOSS, NEXT = "E", "t", "m", "L", "|"
MOST = 20_000
"""The most letters after expansion of all repeats."""
_LETTERS = {
    EMBEDDING: "the embedding",
    LAYER: "a layer",
    DEPTH: "a depth of multi-token prediction",
    LOSS: "the loss",
    NEXT: "the next stage",
}


def drawn_text(text: str) -> str:
    """Canonical text of a drawing; ValueError names the position of an error."""
    return written(stages_of(text), depths_of(text))


def stages_of(text: str) -> tuple[int, ...]:
    """Layers of each stage; the first has the embedding, the last the loss."""
    return tuple(stage.count(LAYER) for stage in _stages(text))


def depths_of(text: str) -> tuple[int, ...]:
    """Modules of multi-token prediction of each stage; one stage has them all."""
    return tuple(stage.count(DEPTH) for stage in _stages(text))


@cache
def _stages(text: str) -> tuple[str, ...]:
    # Groups first: a repeated group may hold repeated letters.
    units = tuple(_repeated(tuple(_ungrouped(_units(text)))))
    letters = "".join(letter for letter, _ in units)
    for letter, where, at_end in (
        (EMBEDDING, "first", letters.startswith(EMBEDDING)),
        (LOSS, "last", letters.endswith(LOSS)),
    ):
        places = [place for unit, place in units if unit == letter]
        if len(places) != 1 or not at_end:
            there = f"; found at {', '.join(map(str, places[:3]))}" if places else "; there is none"
            raise ValueError(f"has {letter} ({_LETTERS[letter]}) once, {where} of all{there}")
    if LAYER not in letters:
        raise ValueError(f"draws no layer ({LAYER})")
    first, last = letters.find(DEPTH), letters.rfind(DEPTH)
    if 0 <= first < letters.rindex(LAYER):
        what = f"a layer ({LAYER}) follows a depth ({DEPTH}); depths follow the last layer"
        raise _fault(units[letters.index(LAYER, first)][1], what)
    if first >= 0 and NEXT in letters[first:last]:
        raise _fault(units[last][1], f"depths ({DEPTH}) must all be in one stage")
    return tuple(letters.split(NEXT))


def written(stages: tuple[int, ...], depths: tuple[int, ...] = ()) -> str:
    """Canonical text of stages with these layers and modules."""
    last = len(stages) - 1
    texts = [
        f"{EMBEDDING if i == 0 else ''}{_times(LAYER, n)}{_times(DEPTH, m)}"
        f"{LOSS if i == last else ''}"
        for i, (n, m) in enumerate(zip_longest(stages, depths, fillvalue=0))
    ]
    spelled = ""
    for text, alike in groupby(texts[:-1]):
        times = len(list(alike))
        if not text:
            spelled += _times(NEXT, times)
        else:
            spelled += f"{text}{NEXT}" if times == 1 else f"({text}{NEXT})*{times}"
    return spelled + texts[-1]


def lighter_ends(layers: int, stages: int, first: int, last: int) -> tuple[int, ...] | None:
    """Layers per stage, with `first` and `last` fewer on the end stages than between.

    The remainder goes to later middle stages, which hold fewer micro-batches in flight. None where
    the layers do not divide, or a middle stage would be empty.
    """
    each, more = divmod(layers + first + last, stages)
    between = stages - 2
    # A remainder needs that many middle stages, and ends cannot hold a negative number of layers.
    if between < more or each < max(first, last, 1):
        return None
    return (each - first, *(each,) * (between - more), *(each + 1,) * more, each - last)


def _times(letter: str, times: int) -> str:
    return letter * times if times < 2 else f"{letter}*{times}"


def _units(text: str) -> Units:
    return tuple((letter, place) for place, letter in enumerate(text, 1) if letter not in ", ")


def _ungrouped(units: Units) -> Iterator[tuple[str, int]]:
    """Yield the letters with groups expanded."""
    start: int | None = None
    i = total = 0
    while i < len(units):
        letter, place = units[i]
        i += 1
        if letter == "(":
            if start is not None:
                raise _fault(place, "a group is inside another")
            start = i
        elif letter == ")":
            if start is None:
                raise _fault(place, "no group begins before this end")
            group = units[start : i - 1]
            times, after = _number(units, i, place)
            # Counted before the expansion, which a short text could make as large as memory.
            total += len(group) * times
            if total > MOST:
                raise _fault(place, f"more than {MOST} letters are drawn")
            for _ in range(times):
                yield from group
            start, i = None, after
        elif start is None:
            yield letter, place
    if start is not None:
        raise _fault(units[start - 1][1], "the group has no end")


def _repeated(units: Units) -> Iterator[tuple[str, int]]:
    i = total = 0
    while i < len(units):
        letter, place = units[i]
        if letter not in _LETTERS:
            letters = ", ".join(f"{character} ({what})" for character, what in _LETTERS.items())
            raise _fault(place, f"{letter!r} is not one of {letters}, (...)*n, x*n")
        times, i = (1, i + 1)
        if i < len(units) and units[i][0] == "*":
            times, i = _number(units, i, place)
        total += times
        if total > MOST:
            raise _fault(place, f"more than {MOST} letters are drawn")
        yield from ((letter, place),) * times


def _number(units: Units, i: int, place: int) -> tuple[int, int]:
    """The number after a `*` at i, and the position after it."""
    digits = ""
    if i < len(units) and units[i][0] == "*":
        i, place = i + 1, units[i][1]
        while i < len(units) and units[i][0] in "0123456789":
            digits += units[i][0]
            i += 1
    if not digits or not 0 < int(digits[:6]) <= MOST:
        raise _fault(place, "expects * and how often, a whole number above 0")
    return int(digits[:6]), i


def _fault(place: int, what: str) -> ValueError:
    return ValueError(f"character {place}: {what}")
