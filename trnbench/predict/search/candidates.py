"""Searched values of knobs that are searched only on request (`any`).

    recompute         none, modules in every combination, 1, 2, 3, 4, 6, 8, 12 ... layers, full
    context_parallel  ring, all-to-all, hybrid with each divisor of a `cp` as group size
    stage_split       each of its values
    pipeline_layout   ends lighter by the embedding and the head; stages between alike, or a layer
                      more on the later ones
    shard             divisors of a cluster's ranks
    expert_tp         divisors of a `tp`

The default comes first. Values that the stack refuses are left out. Values of unknown support are
searched, and the answer warns about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import combinations
from math import isqrt

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.facts.workload.layout import KNOBS, Value
from trnbench.facts.workload.pipeline_layout import lighter_ends, written
from trnbench.facts.workload.recompute import MODULES, recompute_named
from trnbench.predict.search.question import SearchQuestion
from trnbench.program.blocks import layers_of
from trnbench.program.features import DRAWN, EXPERTS_APART, HYBRID, feature_of, recompute_features
from trnbench.program.grid import grid_of
from trnbench.program.keeping import recompute_that_runs
from trnbench.program.legality import absent_modules

MOST_LIGHTER = 4
"""Most layers by which the last stage may be lighter than the others."""
_FIRST_LIGHTER = (0, 1)


def candidates(
    question: SearchQuestion, name: str, axes: Mapping[str, IntArray]
) -> tuple[Value | None, ...]:
    """Values of a knob that was asked for, its default first, given the degrees."""
    default = getattr(question.completed, name)
    values = dict.fromkeys((default, *_OF[name](question, axes)))
    return tuple(values)


def _recompute(question: SearchQuestion, axes: Mapping[str, IntArray]) -> Iterator[Value]:
    transformer = question.model.transformer
    if transformer is None:
        return
    # Every set of modules that the model has, smallest sets first.
    modules = [module for module in MODULES if module not in absent_modules(transformer)]
    sets = (
        recompute_named(",".join(some))
        for count in range(1, len(modules) + 1)
        for some in combinations(modules, count)
    )
    fullest = -(-transformer.layers // int(axes["pp"].min()))
    layers = (f"full:{count}" for count in _ladder(fullest))
    kernel = question.completed.attention
    for asked in ("none", *sets, *layers, "full"):
        mode = recompute_that_runs(asked, kernel)
        if all(map(question.allows, recompute_features(mode))):
            yield mode


def _ladder(end: int) -> Iterator[int]:
    """Yield 1, 2, 3, 4, 6, 8, 12, 16, 24 ... below an end."""
    # Powers of two and the numbers halfway between cover any depth with few programs.
    step = 1
    while step < end:
        yield step
        if step > 1 and step * 3 // 2 < end:
            yield step * 3 // 2
        step *= 2


def _exchange(question: SearchQuestion, axes: Mapping[str, IntArray]) -> Iterator[Value]:
    knob, most = KNOBS["context_parallel"], int(axes["cp"].max())
    for how in ("ring", "all-to-all"):
        if question.allows(feature_of(knob, how)):
            yield how
    if question.allows(feature_of(knob, "hybrid")):
        yield from (f"hybrid:{count}" for count in divisors(axes["cp"])[1:] if count < most)


def _split(question: SearchQuestion, axes: Mapping[str, IntArray]) -> Iterator[Value]:
    knob = KNOBS["stage_split"]
    if axes["pp"].max() > 1:
        yield from (choice for choice in knob.choices if question.allows(feature_of(knob, choice)))


def _drawn(question: SearchQuestion, axes: Mapping[str, IntArray]) -> Iterator[Value]:
    model = question.model
    if model.transformer is None or not question.allows(DRAWN):
        return
    layout = question.completed
    # The first stage may be a layer lighter, for the embedding; the last one by up to the head's
    # work in layers.
    layers, head = model.transformer.layers, _head_layers(question)
    pairs = [
        (first, last)
        for first in _FIRST_LIGHTER
        for last in range(min(int(np.ceil(head)), MOST_LIGHTER) + 1)
    ]
    depths = model.with_depths(layout.mtp_depths).mtp_depths
    stages = np.unique(np.multiply.outer(axes["pp"][axes["pp"] > 1], axes["vpp"]))
    for count in stages.tolist():
        for first, last in pairs:
            shared = lighter_ends(layers, count, first, last)
            # Stages that are all alike share evenly by layers, whatever their chunks.
            alike = shared is not None and len(set(shared)) == 1
            if shared is not None and not (alike and layout.stage_split == "layers"):
                yield written(shared, (0,) * (count - 1) + (depths,))


def _head_layers(question: SearchQuestion) -> float:
    layout = question.layout.changed(stage_split="work", pipeline_layout=None)
    model = question.model.with_depths(layout.number("mtp_depths"))
    return layers_of(model, grid_of(layout.complete())).last_layers


def _shard(question: SearchQuestion, axes: Mapping[str, IntArray]) -> Iterator[Value]:
    if not question.allows(HYBRID):
        return
    ranks = [nodes * question.ranks_per_node for nodes in question.nodes]
    yield from (count for count in divisors(ranks)[1:] if count < max(ranks))


def _expert_tp(question: SearchQuestion, axes: Mapping[str, IntArray]) -> Iterator[Value]:
    if question.allows(EXPERTS_APART):
        most = int(axes["tp"].max())
        yield from (count for count in divisors(axes["tp"]) if count < most)


@cache
def _divisors(number: int) -> tuple[int, ...]:
    pairs = ((d, number // d) for d in range(1, isqrt(number) + 1) if number % d == 0)
    return tuple(divisor for pair in pairs for divisor in pair)


def divisors(numbers: Iterable[int] | IntArray, most: int | None = None) -> tuple[int, ...]:
    """Divisors of any of the numbers, up to `most`, ascending."""
    values = {divisor for number in numbers for divisor in _divisors(int(number))}
    return tuple(sorted(d for d in values if most is None or d <= most))


_OF: Mapping[str, Callable[[SearchQuestion, Mapping[str, IntArray]], Iterator[Value]]] = {
    "recompute": _recompute,
    "context_parallel": _exchange,
    "stage_split": _split,
    "pipeline_layout": _drawn,
    "shard": _shard,
    "expert_tp": _expert_tp,
}

_missing = [name for name, knob in KNOBS.items() if knob.on_request and name not in _OF]
if _missing:
    raise TypeError(f"{_missing[0]!r} may be searched when asked for: give it candidates")
