"""Search space: axes of an open grid, and modes that take only a few values.

    (nodes, pp) x tp x cp x ep x vpp x micro_batch     one grid; dp is what the ranks leave
    schedule                                           other points of the same programs
    ZeRO stage                                         one more axis of the programs' arrays
    every other searched mode                          a program for each value
    knobs in `candidates`                              only on request

Node counts share few divisors, so nodes and pipeline stages share one axis of pairs.

A degree takes every value that can divide what it cuts: `tp` those the platform lists (divisors of
a node's ranks where none are listed), `pp` divisors of the cluster's ranks up to the layers, `cp`
divisors of the sequence if the stack has context parallelism, `ep` divisors of the experts (of a
recommender's table columns), `vpp` divisors of the fullest stage's layers, `micro_batch` every
divisor of the global batch. The stack bounds everything to what its software runs; values that the
user fixed are taken as they are.

Layouts that come to the same program are looked at once: without a pipeline only one schedule, with
a single micro-batch no GPipe beside 1F1B, on a single data rank only the lowest ZeRO stage, with
fused attention no selective recompute, and no recompute of recommenders, which have no layers.
Sequence parallelism is on where the stack has it, tp is above 1 and divides the sequence: memory
gets smaller and the bytes moved stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from itertools import product
from math import gcd, prod
from typing import Literal, TypeAlias, cast

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.arrays import BoolArray, FloatArray, IntArray, uneven
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import (
    KNOBS,
    Knob,
    Layout,
    Schedule,
    StageSplit,
    Value,
    ZeroStage,
)
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.facts.workload.pipeline_layout import stages_of
from trnbench.facts.workload.recompute import repeated_layers
from trnbench.predict.search.candidates import MOST_LIGHTER, candidates, divisors
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.rows import Rows
from trnbench.program.blocks import layers_of
from trnbench.program.features import PARALLEL, feature_of
from trnbench.program.grid import Grid, grid_of
from trnbench.program.keeping import recompute_that_runs
from trnbench.program.points import Points
from trnbench.program.stages import shares_of
from trnbench.program.tensor import array

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
"""Grid axis of each degree; nodes and pp share axis 0, as pairs."""
RANK_AXES: tuple[Axis, ...] = ("nodes", "pp", "tp", "cp")
"""Degrees that decide the number of data ranks."""
DIMENSIONS = len(set(ALONG.values()))
ZERO_AXES = 1
"""Axes of ZeRO stages in front of those of the grid, of layouts that are priced."""

Variant: TypeAlias = PartialLayout
"""Choice of all modes but the schedule; those that differ in the ZeRO stage share a program."""
MODES = tuple(
    knob
    for knob in KNOBS.values()
    if (knob.preferred or knob.on_request) and knob.name != "schedule"
)
MOST_PROGRAMS = 20_000
"""Most programs that may be lowered for one question."""


class Space(Record, eq=False):
    """Every layout of a question."""

    question: SearchQuestion
    axes: Mapping[Axis, IntArray]
    """Values of each degree along its grid axis; `nodes` and `pp` have the same length."""

    @cached_property
    def shape(self) -> tuple[int, ...]:
        sizes = {along: len(self.axes[name]) for name, along in ALONG.items()}
        return tuple(sizes.values())

    @cached_property
    def clusters(self) -> IntArray:
        """Cluster of each place along the first axis, as its number in the question."""
        number = {nodes: number for number, nodes in enumerate(self.question.nodes)}
        return np.array([number[nodes] for nodes in self.axes["nodes"].tolist()], dtype=np.int64)

    def clusters_of(self, layouts: Points | Rows) -> IntArray:
        """Cluster of each layout or row of them; an axis of ZeRO stages may be in front."""
        axes = DIMENSIONS - isinstance(layouts, Rows)
        return self.clusters[layouts.index[-axes]]

    @cached_property
    def zeros(self) -> tuple[ZeroStage, ...]:
        """Searched ZeRO stages."""
        return cast("tuple[ZeroStage, ...]", self.modes["zero"])

    def of_any_zero(self, variant: Variant) -> Variant:
        """The variant that stands for those which differ from it in their ZeRO stage."""
        return variant.changed(zero=self.zeros[0])

    @cached_property
    def schedules(self) -> tuple[Schedule, ...]:
        return cast("tuple[Schedule, ...]", _values(self.question, KNOBS["schedule"]))

    @cached_property
    def first(self) -> PartialLayout:
        """First value of every mode. Of modes with equal programs, the first one is searched."""
        values = {name: mode[0] for name, mode in self.modes.items()}
        return PartialLayout(schedule=self.schedules[0], **values)

    @cached_property
    def modes(self) -> Mapping[str, tuple[Value | None, ...]]:
        """Searched values of every mode but the schedule."""
        wanted = self.question.layout.wanted
        # Knobs that were asked for have many values, the others the few that the table prefers.
        values = {
            knob.name: candidates(self.question, knob.name, self._degrees)
            if knob.name in wanted
            else _values(self.question, knob)
            for knob in MODES
        }
        if (many := prod(map(len, values.values()))) > MOST_PROGRAMS:
            several = ", ".join(f"{len(values[name])} of {KNOBS[name].option}" for name in wanted)
            raise InputError(
                f"{several}: with the other knobs {many:,} programs, at most {MOST_PROGRAMS:,} "
                "are looked at",
                hint="ask for fewer knobs at once, or settle some (--zero 1)",
            )
        return values

    @property
    def _degrees(self) -> Mapping[str, IntArray]:
        return {name: self.axes[name] for name in self.axes}

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """Choices of modes that fit each other and apply to at least one point of the grid."""
        values = self.modes
        choices = (
            Variant(**dict(zip(values, choice, strict=True)))
            for choice in product(*values.values())
        )
        return tuple(
            variant
            for variant in choices
            if self._goes_together(variant) and self.runs(variant).any()
        )

    def _goes_together(self, modes: PartialLayout) -> bool:
        """True where modes fit: a shard group needs ZeRO, drawn stages take no stage split."""
        wanted = self.question.layout.wanted
        if "shard" in wanted and modes["shard"] is not None and modes["zero"] == 0:
            return False
        drawn = "pipeline_layout" in wanted and modes["pipeline_layout"] is not None
        return not drawn or modes["stage_split"] == self.first["stage_split"]

    def layout(self, schedule: Schedule, variant: Variant) -> Layout:
        """The whole grid in one schedule and variant, as one layout of arrays."""
        columns = {name: self.column(name) for name in ALONG if name != "nodes"}
        modes = {**variant.given, "schedule": schedule}
        return replace(self.question.completed, **columns, dp=self.dp, **modes)

    def column(self, axis: Axis) -> IntArray:
        """Values of an axis, shaped to broadcast along the grid's axis."""
        shape = [1] * DIMENSIONS
        shape[ALONG[axis]] = -1
        return self.axes[axis].reshape(shape)

    @cached_property
    def dp(self) -> IntArray:
        """Data parallel degree: the fixed one, else ranks over tp x pp x cp, at least 1."""
        dp = self.question.layout.number("dp")
        if dp is not None:
            return np.asarray(dp)
        nodes, pp, tp, cp = (array(self.column(axis)) for axis in RANK_AXES)
        # (Quotients of floats are exact as far as whole numbers go, and quicker.)
        ranks = nodes * self.question.ranks_per_node
        return np.maximum(ranks / (tp * cp * pp), 1).astype(np.int64)

    def of(self, places: BoolArray) -> Space:
        """The space at the selected places along the first axis."""
        axes = {
            name: values[places] if ALONG[name] == 0 else values
            for name, values in self.axes.items()
        }
        return Space(question=self.question, axes=axes)

    def runs(self, variant: Variant) -> BoolArray:
        """True where a variant has the better of the two values of sequence parallelism.

        Sequence parallelism needs less memory and moves as many bytes: on where tp divides the
        sequence.
        """
        if len(self.modes["sequence_parallel"]) == 1:
            return np.asarray(True)
        return np.asarray(self._cut_evenly == variant["sequence_parallel"])

    @cached_property
    def _cut_evenly(self) -> BoolArray:
        return np.asarray(self.question.completed.sequence % self.column("tp") == 0)

    def once(self, modes: PartialLayout) -> BoolArray:
        """True where these modes change the program (at dp = 1, for example, ZeRO does not)."""
        # A mode acts through degrees (ZeRO through dp): where all of these are 1, every value makes
        # the program of the first one, which alone is counted.
        once = np.asarray(True)
        for name, value in modes.pairs:
            acts_with = KNOBS[name].acts_with
            if acts_with and value != self.first[name]:
                cut = (self._degree(degree) > 1 for degree in acts_with)
                once = once & reduce(np.logical_or, cut)
                if name in self.question.layout.wanted:
                    once = once & self._own(name, value)
        return once

    def _own(self, name: str, value: Value) -> BoolArray:
        """True where an asked-for value is not an alias of a value tried before."""
        match name:
            case "shard":
                return np.asarray(self.dp * self.column("cp") > int(value))
            case "expert_tp":
                return np.asarray(self.column("tp") > int(value))
            case "pipeline_layout":
                return np.asarray(len(stages_of(str(value))) % self.column("pp") == 0)
            case "stage_split":
                # Compared by the layers of every class of stages, not by name.
                before = self.modes[name][: self.modes[name].index(value)]
                pp = self.column("pp")
                own = self._split(pp, value)
                same = (np.equal(own, self._split(pp, earlier)) for earlier in before)
                alike = [mask.all(axis=0) for mask in same]
                return ~np.logical_or.reduce(alike) if alike else np.asarray(True)
        return np.asarray(True)

    def _split(self, pp: IntArray, split: Value | None) -> FloatArray:
        """Number, first stage and layers of each class of stages under a split, by pp degree."""
        degrees = pp.astype(np.float64)
        layout = replace(self.question.completed, stage_split=cast("StageSplit", split))
        model = self.question.model.with_depths(layout.mtp_depths)
        layers = layers_of(model, grid_of(layout))
        columns = [
            column * (many > 0)
            for _, many, *others in shares_of(cast("StageSplit", split), layers, degrees)
            for column in (many, *others)
        ]
        return np.stack(np.broadcast_arrays(*columns))

    def seen_before(self, grid: Grid) -> BoolArray:
        """True where a recompute depth or drawn stages equal a mode tried under another name."""
        transformer = self.question.model.transformer
        seen = np.asarray(False)
        if transformer is None:
            return seen
        drawn = stages_of(grid.pipeline_layout) if grid.pipeline_layout is not None else ()
        again, wanted = repeated_layers(grid.recompute), self.question.layout.wanted
        # Repeating at least as many layers as a chunk has is full recompute.
        if again is not None and "recompute" in wanted:
            held = max(drawn, default=0) or np.ceil(transformer.layers / (grid.pp * grid.vpp))
            seen = np.asarray(again >= held)
        # With vpp = 1, drawn stages that a stage split also gives are the same layout.
        if drawn and "pipeline_layout" in wanted:
            splits = self.modes["stage_split"]
            if any(self._stages(len(drawn), split) == drawn for split in splits):
                seen = seen | (grid.vpp == 1)
        return seen

    def _stages(self, pp: int, split: Value | None) -> tuple[int, ...]:
        # Rows of (stages, first stage, layers of each), one for each class of stages.
        ways = self._split(np.array([pp]), split)[:, 0].reshape(-1, 3).astype(np.int64).tolist()
        return tuple(held for many, _, held in ways for _ in range(many))

    def _degree(self, name: str) -> IntArray:
        return self.dp if name == "dp" else self.column(cast("Axis", name))

    def chunks(self, schedule: Schedule) -> IntArray:
        """Places along `vpp` at which a schedule is searched.

        The interleaved schedule takes several chunks, others one; a fixed schedule or `vpp` takes
        all.
        """
        vpp, given = self.axes["vpp"], self.question.layout
        if given["vpp"] is not None or given["schedule"] is not None:
            return np.arange(len(vpp))
        return np.flatnonzero((vpp > 1) == (schedule == "interleaved"))

    def same_order(self, grid: Grid) -> BoolArray:
        """True where GPipe and 1F1B coincide: a single micro-batch."""
        double = grid.schedule == "gpipe" and "1f1b" in self.schedules
        return np.asarray(grid.micro_batches == 1 if double else False)

    def uneven_chunks(self, grid: Grid) -> BoolArray:
        """True where a searched `vpp` does not divide the layers of the fullest stage."""
        transformer = self.question.model.transformer
        drawn = grid.pipeline_layout is not None
        if drawn or self.question.layout["vpp"] is not None or transformer is None:
            return np.asarray(False)
        return uneven(np.ceil(transformer.layers / grid.pp), grid.vpp)


def space_of(question: SearchQuestion) -> Space:
    """Space of every layout that a question asks about."""
    given = question.completed
    transformer, recommender = question.model.transformer, question.model.recommender
    layers = transformer.layers if transformer else 1
    drawn = question.layout.text("pipeline_layout")
    # Of stages drawn by hand each may be empty.
    stages_at_most = layers if drawn is None else len(stages_of(drawn))
    # Pairs rather than two axes: most pipelines divide the ranks of few of the clusters.
    per_node = question.ranks_per_node
    ranks = {nodes: nodes * per_node for nodes in question.nodes}
    degrees = _fixed(question, "pp") or (() if question.runs(PARALLEL["pp"]) else (1,))
    stages = [
        (nodes, pp)
        for nodes, count in ranks.items()
        for pp in degrees or divisors([count], stages_at_most)
    ]
    tp: Sequence[int] = (1,)
    cp, vpp, ep = tp, tp, tp
    if transformer is not None:
        if question.runs(PARALLEL["tp"]):
            tp = _tensor_degrees(question)
        if question.runs(PARALLEL["cp"]):
            cp = divisors(gcd(int(given.sequence), count) for count in ranks.values())
        if "interleaved" in _values(question, KNOBS["schedule"]):
            more = range(MOST_LIGHTER + 2) if "pipeline_layout" in question.layout.wanted else (0,)
            # Only divisors of the fullest stage's layers make even chunks.
            fullest = {-(-(layers + extra) // pp) for _, pp in stages if pp > 1 for extra in more}
            vpp = divisors(fullest | {1}) if drawn is None else divisors([stages_at_most])
        if transformer.moe is not None and question.runs(PARALLEL["ep"]):
            ep = divisors([transformer.moe.experts])
    if recommender is not None:
        ep = divisors([recommender.embedding_size])
    values: Mapping[Axis, Sequence[int]] = {
        "nodes": [nodes for nodes, _ in stages],
        "pp": [pp for _, pp in stages],
        "tp": _fixed(question, "tp") or tp,
        "cp": _fixed(question, "cp") or cp,
        "ep": _fixed(question, "ep") or ep,
        "vpp": _fixed(question, "vpp") or vpp,
        "micro_batch": _fixed(question, "micro_batch") or divisors([int(given.global_batch)]),
    }
    axes = {name: np.array(column, dtype=np.int64) for name, column in values.items()}
    return Space(question=question, axes=axes)


def _tensor_degrees(question: SearchQuestion) -> tuple[int, ...]:
    degrees = question.platform.legal_degrees(question.logical_size)
    if degrees is not None:
        return degrees.tensor_parallel
    return divisors([question.ranks_per_node])


def _fixed(question: SearchQuestion, name: str) -> tuple[int, ...]:
    value = question.layout.number(name)
    return () if value is None else (value,)


def _values(question: SearchQuestion, mode: Knob) -> tuple[Value | None, ...]:
    """Searched values of a mode: the given one, or those that the stack runs."""
    values = _supported(question, mode)
    if mode.name != "recompute":
        return values
    attention = question.completed.attention
    plain = (recompute_that_runs(str(value), attention) for value in values)
    return tuple(dict.fromkeys(plain))


def _supported(question: SearchQuestion, mode: Knob) -> tuple[Value | None, ...]:
    given = question.layout[mode.name]
    if given is not None:
        return (given,)
    if not mode.preferred:
        return (getattr(question.completed, mode.name),)
    if mode.part == "layers" and question.model.transformer is None:
        return (getattr(question.completed, mode.name),)
    # A group that shares slices asks for a stage that has some.
    sliced = mode.name == "zero" and question.layout["shard"] is not None
    return tuple(
        value
        for value in mode.preferred[1 if sliced else 0 :]
        if value is False or question.runs(feature_of(mode, value))
    ) or (getattr(question.completed, mode.name),)
