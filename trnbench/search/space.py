"""Which layouts a search looks at: axes of an open grid, and what only takes a few values.

    (nodes, pp) x tp x cp x ep x vpp x micro_batch     one grid; dp is what the ranks leave
    schedule                                           other points of the same programs
    every other searched mode                          one program each

Numbers of nodes share few of their divisors, so nodes and pipeline stages lie along one axis.

A degree takes every value that can divide what it cuts: `tp` those the platform lists (divisors of
a node's ranks where none are listed), `pp` divisors of the cluster's ranks up to the layers, `cp`
divisors of the sequence if the stack has context parallelism, `ep` divisors of the experts (of a
recommender's table columns), `vpp` divisors of the fullest stage's layers, `micro_batch` every
divisor of the global batch. The stack bounds schedules, recompute and ZeRO stages; what the user
fixed is taken as it is.

Layouts that come to the same are looked at once: without a pipeline one schedule, of a single
micro-batch no GPipe beside 1F1B, on a single data rank the lowest ZeRO stage, with fused attention
no selective recompute, and no recompute of recommenders, which have no layers. Sequence
parallelism is on where the stack has it, tp is above 1 and divides the sequence: it saves memory
and moves as many bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import gcd, isqrt, prod
from typing import Literal, TypeAlias, cast

import numpy as np

from trnbench.arrays import BoolArray, FloatArray, IntArray
from trnbench.program.keeping import recompute_that_runs
from trnbench.search.question import Question
from trnbench.workload.layout import KNOBS, Knob, Layout, Recompute, Schedule, Value
from trnbench.workload.partial_layout import PartialLayout

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

Variant: TypeAlias = PartialLayout
"""The modes that ask for a program of their own."""
MODES = tuple(knob for knob in KNOBS.values() if knob.preferred and knob.name != "schedule")


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
        return cast("tuple[Schedule, ...]", _values(self.question, KNOBS["schedule"]))

    @cached_property
    def first(self) -> PartialLayout:
        """Of every mode the value that is looked at first: of equals, it is the one that counts."""
        question = self.question
        values = {knob.name: _values(question, knob)[0] for knob in MODES}
        return PartialLayout(schedule=self.schedules[0], **values)

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """Programs looked at."""
        values = {knob.name: _values(self.question, knob) for knob in MODES}
        found = (
            Variant(**dict(zip(values, one, strict=True))) for one in product(*values.values())
        )
        return tuple(variant for variant in found if np.any(self.runs(variant)))

    def layout(self, schedule: Schedule, variant: Variant) -> Layout:
        """Return the whole grid in a schedule and variant, as one layout of arrays."""
        columns = {name: self.column(name) for name in ALONG if name != "nodes"}
        modes = {**variant.given, "schedule": schedule}
        return replace(self.question.completed, **columns, dp=self.dp, **modes)  # type: ignore[arg-type]

    def column(self, axis: Axis) -> IntArray:
        """Return the values of an axis, lying along it."""
        shape = [1] * DIMENSIONS
        shape[ALONG[axis]] = -1
        return self.axes[axis].reshape(shape)

    @cached_property
    def dp(self) -> IntArray:
        """Data parallel ranks: what the others leave of a cluster; where they do not fit, 1."""
        dp = self.question.layout.number("dp")
        if dp is not None:
            return np.asarray(dp)
        others = self.column("tp") * self.column("pp") * self.column("cp")
        return np.maximum(self.column("nodes") * self.question.ranks_per_node // others, 1)

    def runs(self, variant: Variant) -> BoolArray:
        """Return where a variant cuts the stream as is best there, if that is to be searched.

        Sequence parallelism saves memory and moves as many bytes: it is on where it divides.
        """
        if len(_values(self.question, KNOBS["sequence_parallel"])) == 1:
            return np.asarray(True)
        on = self.question.completed.sequence % self.column("tp") == 0
        return np.asarray(on == variant["sequence_parallel"])

    def once(self, modes: PartialLayout) -> BoolArray:
        """Return where modes make a program that the modes looked at before do not make."""
        once = np.asarray(True)
        for name, value in modes.pairs:
            acts_with = KNOBS[name].acts_with
            if acts_with and value != self.first[name]:
                once = once & (prod(map(self._degree, acts_with)) > 1)
        return once

    def _degree(self, name: str) -> IntArray:
        return self.dp if name == "dp" else self.column(cast("Axis", name))

    def chunks(self, schedule: Schedule) -> IntArray:
        """Return the places along `vpp` that a schedule looks at: one chunk, or several."""
        vpp, given = self.axes["vpp"], self.question.layout
        if given["vpp"] is not None or given["schedule"] is not None:
            return np.arange(len(vpp))
        return np.flatnonzero((vpp > 1) == (schedule == "interleaved"))

    def same_order(self, schedule: Schedule, micro_batches: FloatArray) -> BoolArray:
        """Return where a schedule is another one's double: all of it is one micro-batch."""
        double = schedule == "gpipe" and "1f1b" in self.schedules
        return np.asarray((micro_batches == 1) & double)

    def uneven_chunks(self, pp: FloatArray, vpp: FloatArray) -> BoolArray:
        """Return where chunks of the fullest stage are no whole number of layers."""
        transformer = self.question.model.transformer
        if self.question.layout["vpp"] is not None or transformer is None:
            return np.asarray(False)
        return np.asarray(np.ceil(transformer.layers / pp) % vpp != 0)


def space_of(question: Question) -> Space:
    """Return every layout that a question asks about."""
    supports, given = question.stack.supports, question.completed
    transformer, recommender = question.model.transformer, question.model.recommender
    layers = transformer.layers if transformer else 1
    ranks = {nodes: nodes * question.ranks_per_node for nodes in question.nodes}
    stages = [
        (nodes, pp)
        for nodes in question.nodes
        for pp in _fixed(question, "pp")
        or (_divisors([ranks[nodes]], layers) if supports.pipeline_parallel else (1,))
    ]
    tp: Sequence[int] = (1,)
    cp, vpp, ep = tp, tp, tp
    if transformer is not None:
        if supports.tensor_parallel:
            tp = _tensor_degrees(question)
        if supports.context_parallel:
            cp = _divisors(gcd(int(given.sequence), count) for count in ranks.values())
        if "interleaved" in _values(question, KNOBS["schedule"]):
            fullest = {-(-layers // pp) for _, pp in stages if pp > 1}
            vpp = _divisors(fullest | {1})
        if transformer.moe is not None and supports.expert_parallel:
            ep = _divisors([transformer.moe.experts])
    if recommender is not None:
        ep = _divisors([recommender.embedding_size])
    values: Mapping[Axis, Sequence[int]] = {
        "nodes": [nodes for nodes, _ in stages],
        "pp": [pp for _, pp in stages],
        "tp": _fixed(question, "tp") or tp,
        "cp": _fixed(question, "cp") or cp,
        "ep": _fixed(question, "ep") or ep,
        "vpp": _fixed(question, "vpp") or vpp,
        "micro_batch": _fixed(question, "micro_batch") or _divisors([int(given.global_batch)]),
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


def _fixed(question: Question, name: str) -> tuple[int, ...]:
    """Return the value of a degree that is not to be searched, or nothing."""
    value = question.layout.number(name)
    return () if value is None else (value,)


def _values(question: Question, mode: Knob) -> tuple[Value, ...]:
    """Return the values of a mode that are looked at: the one given, or what the stack supports."""
    values = _supported(question, mode)
    if mode.name != "recompute":
        return values
    attention = question.completed.attention
    plain = (recompute_that_runs(cast("Recompute", value), attention) for value in values)
    return tuple(dict.fromkeys(plain))


def _supported(question: Question, mode: Knob) -> tuple[Value, ...]:
    given, supports = question.layout[mode.name], question.stack.supports
    if given is not None:
        return (given,)
    if mode.part == "layers" and question.model.transformer is None:
        return (getattr(question.completed, mode.name),)
    supported: Mapping[str, tuple[Value, ...]] = {
        "schedule": supports.schedules,
        "recompute": supports.recompute,
        "zero": supports.zero,
        "sequence_parallel": (True, False) if supports.sequence_parallel else (False,),
    }
    allowed = supported.get(mode.name, mode.preferred)
    return tuple(value for value in mode.preferred if value in allowed)
