"""Which layouts divide, with the nearest that do.

What needs hardware (legal degrees of a platform, ranks, memory) is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from trnbench.arrays import BoolArray, FloatArray
from trnbench.program.grid import Grid
from trnbench.program.schedule_rules import broken_rules, schedule_reasons
from trnbench.program.tensor import array
from trnbench.workload.layout import KNOBS, RANK_DEGREES
from trnbench.workload.model import Model, Recommender, Transformer

Scalars: TypeAlias = Mapping[str, int]

FEW = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reason:
    """Why layouts of a grid are refused: where, and in words for one of them."""

    rule: str
    broken: BoolArray
    words: Callable[[Scalars], str]


def reasons(model: Model, grid: Grid) -> tuple[Reason, ...]:
    """Return every rule that some layout of the grid breaks."""
    rules = (
        _recommender(model.recommender, grid)
        if model.recommender is not None
        else _of(model, _transformer(model), grid)
    )
    found = (*rules, *_batch(grid), *_schedule(grid))
    return tuple(reason for reason in found if np.any(reason.broken))


def _transformer(model: Model) -> Transformer:
    assert model.transformer is not None
    return model.transformer


def legal(found: tuple[Reason, ...], shape: tuple[int, ...]) -> BoolArray:
    """Return where no rule is broken."""
    mask = np.ones(shape, dtype=np.bool_)
    for reason in found:
        mask &= ~reason.broken
    return mask


def divisors_near(number: int, value: int) -> str:
    """Return the divisors of a number nearest to a value, nearest first, as text."""
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    divisors.sort(key=lambda d: (abs(d - value), d))
    return ", ".join(str(d) for d in divisors[:FEW] if d != value)


def _divides(rule: str, degree: FloatArray, name: str, number: int, what: str) -> Reason:
    def words(at: Scalars) -> str:
        near = divisors_near(number, at[name])
        return f"{name}={at[name]} does not divide {number} {what}; try {near}"

    return Reason(rule=rule, broken=number % degree != 0, words=words)


def _of(model: Model, transformer: Transformer, grid: Grid) -> Iterator[Reason]:
    yield from _heads(transformer, grid)
    for what, mlp in (
        ("MLP columns", transformer.mlp),
        ("expert columns", transformer.moe.expert if transformer.moe else None),
    ):
        if mlp is not None:
            yield _divides(what, grid.tp, "tp", mlp.hidden, what)
    yield from _sequence(model, transformer, grid)
    yield from _experts(transformer, grid)
    parts = array(grid.pp * grid.vpp)
    yield Reason(
        rule="layers",
        broken=parts > transformer.layers,
        words=lambda at: (
            f"pp={at['pp']} x vpp={at['vpp']} is more than {transformer.layers} layers; "
            f"try pp={max(1, transformer.layers // at['vpp'])}"
        ),
    )


def _heads(transformer: Transformer, grid: Grid) -> Iterator[Reason]:
    attention = transformer.attention
    shared = attention.kv_heads
    yield _divides("heads", grid.tp, "tp", attention.heads, "heads")
    yield Reason(
        rule="kv heads",
        broken=(shared % grid.tp != 0) & (grid.tp % shared != 0),
        words=lambda at: (
            f"tp={at['tp']} neither divides {shared} key-value heads nor is a multiple of them; "
            f"try {divisors_near(shared, at['tp'])} or {at['tp'] // shared * shared or shared}"
        ),
    )
    if grid.context_parallel == "all-to-all":
        group = array(grid.tp * grid.cp)
        yield Reason(
            rule="heads of context ranks",
            broken=(grid.cp > 1) & ((shared % group != 0) | (attention.heads % group != 0)),
            words=lambda at: (
                f"all-to-all context parallelism gives each of tp x cp = {at['tp'] * at['cp']} "
                f"ranks whole key-value heads, and there are {shared}; try ring"
            ),
        )
    elif grid.attention == "naive":
        yield Reason(
            rule="ring attention",
            broken=grid.cp > 1,
            words=lambda at: (
                f"cp={at['cp']}: ring context parallelism needs fused attention; "
                "try attention=fused"
            ),
        )


def _sequence(model: Model, transformer: Transformer, grid: Grid) -> Iterator[Reason]:
    cut = array(grid.cp * (grid.tp if grid.sequence_parallel else 1))

    def words(at: Scalars) -> str:
        ranks = at["cp"] * (at["tp"] if grid.sequence_parallel else 1)
        below = at["sequence"] // ranks * ranks
        near = f"{below} or {below + ranks}" if below else f"{ranks}"
        name = "tp x cp" if grid.sequence_parallel else "cp"
        return f"sequence={at['sequence']} does not divide by {name} = {ranks}; try {near}"

    yield Reason(rule="sequence", broken=grid.sequence % cut != 0, words=words)
    length = transformer.position.length
    if model.image is not None:
        yield Reason(
            rule="image tokens",
            broken=grid.sequence != length,
            words=lambda at: (
                f"sequence={at['sequence']}: an image has {length} tokens; try {length}"
            ),
        )
    elif transformer.position.encoding != "rotary":
        yield Reason(
            rule="positions",
            broken=grid.sequence > length,
            words=lambda at: (
                f"sequence={at['sequence']} is above the {length} positions "
                f"the model has; try {length}"
            ),
        )


def _experts(transformer: Transformer, grid: Grid) -> Iterator[Reason]:
    moe = transformer.moe
    if moe is None:
        yield Reason(
            rule="no experts",
            broken=grid.ep > 1,
            words=lambda at: f"ep={at['ep']}: the model has no experts; try 1",
        )
        return
    yield _divides("experts", grid.ep, "ep", moe.experts, "experts")
    yield from _group_of_experts(grid)
    held = np.floor(transformer.layers / grid.pp)
    dense = moe.dense_layers
    yield Reason(
        rule="dense layers",
        broken=(held < dense) & (grid.pp > 1),
        words=lambda at: (
            f"pp={at['pp']} leaves the first stage fewer than the model's {dense} dense layers; "
            f"try pp={transformer.layers // dense}"
        ),
    )


def _group_of_experts(grid: Grid) -> Iterator[Reason]:
    ranks = grid.ranks("data")
    yield Reason(
        rule="expert ranks",
        broken=ranks % grid.ep != 0,
        words=lambda at: (
            f"ep={at['ep']} does not divide dp x cp = {at['dp'] * at['cp']} ranks; "
            f"try {divisors_near(at['dp'] * at['cp'], at['ep'])}"
        ),
    )


def _batch(grid: Grid) -> Iterator[Reason]:
    def words(at: Scalars) -> str:
        step = at["dp"] * at["micro_batch"]
        below = at["global_batch"] // step * step
        near = f"{below} or {below + step}" if below else f"{step}"
        return (
            f"global_batch={at['global_batch']} does not divide by "
            f"dp x micro_batch = {step}; try {near}"
        )

    yield Reason(
        rule="batch", broken=grid.global_batch % (grid.dp * grid.micro_batch) != 0, words=words
    )


def _schedule(grid: Grid) -> Iterator[Reason]:
    schedule = grid.schedule
    degrees = {
        name: value.astype(np.int64)
        for name, value in (
            ("pp", grid.pp),
            ("vpp", grid.vpp),
            ("micro_batches", grid.micro_batches),
        )
    }

    def words(at: Scalars) -> str:
        micro_batches = -(-at["global_batch"] // (at["dp"] * at["micro_batch"]))
        found = schedule_reasons(schedule, pp=at["pp"], vpp=at["vpp"], micro_batches=micro_batches)
        return "; ".join(found)

    broken = broken_rules(schedule, **degrees)
    yield Reason(rule="schedule", broken=np.logical_or.reduce(list(broken.values())), words=words)


def _recommender(recommender: Recommender, grid: Grid) -> Iterator[Reason]:
    for name in (name for name in RANK_DEGREES if KNOBS[name].part == "layers"):
        yield Reason(
            rule=name,
            broken=getattr(grid, name) > 1,
            words=lambda at, name=name: (  # type: ignore[misc]
                f"{name}={at[name]}: a recommender spreads its tables by ep and its batch by dp; "
                f"try {name}=1"
            ),
        )
    yield from _group_of_experts(grid)
    yield _divides("columns", grid.ep, "ep", recommender.embedding_size, "columns of a table")
