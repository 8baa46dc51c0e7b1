"""Which layouts a search looks at: axes of an open grid, and what only takes a few values.

    (nodes, pp) x tp x cp x ep x vpp x micro_batch     one grid; dp is what the ranks leave
    schedule                                           other points of the same programs
    zero, recompute, sequence_parallel                 one program each

Numbers of nodes share few of their divisors, so nodes and pipeline stages lie along one axis.

A degree takes every value that can divide what it cuts: `tp` those the platform lists (divisors of
a node's ranks where none are listed), `pp` divisors of the cluster's ranks up to the layers, `cp`
divisors of the sequence if the stack has context parallelism, `ep` divisors of the experts (of a
recommender's table columns), `vpp` divisors of the fullest stage's layers, `micro_batch` every
divisor of the global batch. The stack bounds schedules, recompute and ZeRO stages; what the user
fixed is taken as it is.

Layouts that come to the same are looked at once: without a pipeline one schedule, on a single data
rank the lowest ZeRO stage, and no recompute of recommenders, which have no layers. Sequence
parallelism is on where the stack has it, tp is above 1 and divides the sequence: it saves memory
and moves as many bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, isqrt
from typing import Literal, TypeVar

import numpy as np

from trnbench.arrays import BoolArray, FloatArray, IntArray
from trnbench.plan.search_question import Question
from trnbench.workload.layout import Layout, Recompute, Schedule, ZeroStage

Axis = Literal["nodes", "pp", "tp", "cp", "ep", "vpp", "micro_batch"]
ALONG: Mapping[Axis, int] = {
    "nodes": 0,
    "pp": 0,
    "tp": 1,
    "cp": 2,
    "ep": 3,
    "vpp": 4,
    "micro_batch": 5,
}
"""Along which axis of the grid each lies."""
DIMENSIONS = len(set(ALONG.values()))

SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe", "zb-h1", "interleaved")
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
ZERO_STAGES: tuple[ZeroStage, ...] = (0, 1, 2, 3)
"""In the order in which equals are preferred."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What asks for a program of its own."""

    zero: ZeroStage
    recompute: Recompute
    sequence_parallel: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Space:
    """Every layout a question asks about; `axes` are the values that lie along the grid's axes."""

    question: Question
    axes: Mapping[Axis, IntArray]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of the grid."""
        sizes = {along: len(self.axes[name]) for name, along in ALONG.items()}
        return tuple(sizes.values())

    @cached_property
    def clusters(self) -> IntArray:
        """The cluster, by its number in the question, of each place along the first axis."""
        number = {nodes: number for number, nodes in enumerate(self.question.nodes)}
        return np.array([number[nodes] for nodes in self.axes["nodes"].tolist()], dtype=np.int64)

    @cached_property
    def schedules(self) -> tuple[Schedule, ...]:
        """Schedules looked at."""
        supported = self.question.stack.supports.schedules
        if self.question.model.transformer is None:
            supported = ("1f1b",)
        return _chosen(self.question.fixed.schedule, SCHEDULES, supported)

    @cached_property
    def zeros(self) -> tuple[ZeroStage, ...]:
        """ZeRO stages looked at."""
        return _chosen(self.question.fixed.zero, ZERO_STAGES, self.question.stack.supports.zero)

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """Programs looked at."""
        fixed, supports = self.question.fixed.recompute, self.question.stack.supports.recompute
        if self.question.model.transformer is None:
            supports = ("none",)
        return tuple(
            Variant(zero=zero, recompute=recompute, sequence_parallel=cut)
            for recompute in _chosen(fixed, RECOMPUTES, supports)
            for zero in self.zeros
            for cut in (True, False)
            if np.any(self.runs(sequence_parallel=cut))
        )

    def layout(self, schedule: Schedule, variant: Variant) -> Layout:
        """Return the whole grid in a schedule and variant, as one layout of arrays."""
        question = self.question
        return Layout(
            tp=self.column("tp"),
            pp=self.column("pp"),
            dp=self.dp,
            cp=self.column("cp"),
            ep=self.column("ep"),
            vpp=self.column("vpp"),
            micro_batch=self.column("micro_batch"),
            global_batch=question.global_batch,
            sequence=question.sequence,
            zero=variant.zero,
            sequence_parallel=variant.sequence_parallel,
            recompute=variant.recompute,
            schedule=schedule,
            attention=question.attention,
            capacity_factor=question.fixed.capacity_factor,
            precision=question.precision,
        )

    def column(self, axis: Axis) -> IntArray:
        """Return the values of an axis, lying along it."""
        shape = [1] * DIMENSIONS
        shape[ALONG[axis]] = -1
        return self.axes[axis].reshape(shape)

    @cached_property
    def dp(self) -> IntArray:
        """Data parallel ranks: what the others leave of a cluster; where they do not fit, 1."""
        if self.question.fixed.dp is not None:
            return np.asarray(self.question.fixed.dp)
        others = self.column("tp") * self.column("pp") * self.column("cp")
        return np.maximum(self.column("nodes") * self.question.ranks_per_node // others, 1)

    def runs(self, *, sequence_parallel: bool) -> BoolArray:
        """Return where sequence parallelism is on, or where it is off."""
        question, tp = self.question, self.column("tp")
        fixed = question.fixed.sequence_parallel
        if fixed is not None:
            on = np.asarray(fixed)
        elif question.stack.supports.sequence_parallel and question.model.transformer is not None:
            on = question.sequence % tp == 0
        else:
            on = np.asarray(False)
        return np.asarray(on == sequence_parallel)

    def once(self, schedule: Schedule, *, lowest_zero: bool) -> BoolArray:
        """Return where a schedule and ZeRO stage are no other layout's double."""
        once = np.asarray(True)
        if self.question.fixed.schedule is None and schedule != self.schedules[0]:
            once = once & (self.column("pp") > 1)
        if not lowest_zero:
            once = once & (self.dp * self.column("cp") > 1)
        return once

    def chunks(self, schedule: Schedule) -> IntArray:
        """Return the places along `vpp` that a schedule looks at: one chunk, or several."""
        vpp, fixed = self.axes["vpp"], self.question.fixed
        if fixed.vpp is not None or fixed.schedule is not None:
            return np.arange(len(vpp))
        return np.flatnonzero((vpp > 1) == (schedule == "interleaved"))

    def uneven_chunks(self, pp: FloatArray, vpp: FloatArray) -> BoolArray:
        """Return where chunks of the fullest stage are no whole number of layers."""
        transformer = self.question.model.transformer
        if self.question.fixed.vpp is not None or transformer is None:
            return np.asarray(False)
        return np.asarray(np.ceil(transformer.layers / pp) % vpp != 0)


def space_of(question: Question) -> Space:
    """Return every layout that a question asks about."""
    fixed, supports = question.fixed, question.stack.supports
    transformer, recommender = question.model.transformer, question.model.recommender
    layers = transformer.layers if transformer else 1
    ranks = {nodes: nodes * question.ranks_per_node for nodes in question.nodes}
    stages = [
        (nodes, pp)
        for nodes in question.nodes
        for pp in _one(fixed.pp)
        or (_divisors([ranks[nodes]], layers) if supports.pipeline_parallel else (1,))
    ]
    tp: Sequence[int] = (1,)
    cp, vpp, ep = tp, tp, tp
    if transformer is not None:
        if supports.tensor_parallel:
            tp = _tensor_degrees(question)
        if supports.context_parallel:
            cp = _divisors(gcd(question.sequence, count) for count in ranks.values())
        if "interleaved" in (_one(fixed.schedule) or supports.schedules):
            fullest = {-(-layers // pp) for _, pp in stages if pp > 1}
            vpp = _divisors(fullest | {1})
        if transformer.moe is not None and supports.expert_parallel:
            ep = _divisors([transformer.moe.experts])
    if recommender is not None:
        ep = _divisors([recommender.embedding_size])
    values: Mapping[Axis, Sequence[int]] = {
        "nodes": [nodes for nodes, _ in stages],
        "pp": [pp for _, pp in stages],
        "tp": _one(fixed.tp) or tp,
        "cp": _one(fixed.cp) or cp,
        "ep": _one(fixed.ep) or ep,
        "vpp": _one(fixed.vpp) or vpp,
        "micro_batch": _one(fixed.micro_batch) or _divisors([question.global_batch]),
    }
    axes = {name: np.array(found, dtype=np.int64) for name, found in values.items()}
    return Space(question=question, axes=axes)


def _tensor_degrees(question: Question) -> tuple[int, ...]:
    degrees = question.platform.legal_degrees(question.logical_size)
    if degrees is not None:
        return degrees.tensor_parallel
    return _divisors([question.ranks_per_node])


def _divisors(numbers: Iterable[int], most: int | None = None) -> tuple[int, ...]:
    """Return the divisors of any of the numbers, up to a limit."""
    found = {
        divisor
        for number in numbers
        for small in range(1, isqrt(number) + 1)
        if number % small == 0
        for divisor in (small, number // small)
    }
    return tuple(sorted(d for d in found if most is None or d <= most))


def _one(value: T | None) -> tuple[T, ...]:
    return () if value is None else (value,)


def _chosen(fixed: T | None, order: tuple[T, ...], supported: Iterable[object]) -> tuple[T, ...]:
    """Return what is fixed, or what is supported in its order."""
    allowed = set(supported)
    return _one(fixed) or tuple(value for value in order if value in allowed)
