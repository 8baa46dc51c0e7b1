"""A row of measured steps as a case for the model: model, layouts, machine, stack.

Blank cells take the stack's habit, or are tried: an unknown micro-batch is the best of a few, an
unknown recompute mode without a habit the least that fits in memory. All of this is listed as
assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from trnbench.errors import DataFileError, InputError, UnknownNameError
from trnbench.evidence.columns import column_of
from trnbench.evidence.model_of import Models
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, RowFault
from trnbench.evidence.step_row import StepRow, step_of
from trnbench.facts.calibration.stack_of import Stacks
from trnbench.facts.calibration.training_stack import TrainingStack
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_chip, load_published
from trnbench.facts.memo import Memo
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record, State, field, replace
from trnbench.facts.units import BITS_PER_BYTE
from trnbench.facts.workload.choices import OF_ADAPTERS
from trnbench.facts.workload.layout import (
    KNOBS,
    FrozenFormat,
    Layout,
    StageSplit,
    Value,
    ZeroStage,
)
from trnbench.facts.workload.model import Model
from trnbench.machine.placement import place
from trnbench.predict.setup import TrainSetup, train_setup
from trnbench.predict.supported import runs
from trnbench.program.features import feature_of
from trnbench.program.precision import recipe_named
from trnbench.program.stages import ENDS

TRIED_MICRO_BATCHES = (1, 2, 4, 8)
SOME_LAYERS = (0.25, 0.5, 0.75)
"""Shares of layers to try where software may recompute only some."""
RecomputeMix: TypeAlias = tuple[tuple[float, str], ...]
"""Recompute modes, each with its share of the layers."""
_BARE = ("", "bf16", "fp16")
"""Precision cells that leave the copies of weights open."""


class LayoutVariant(Record):
    """One possible run of a row: layouts, each with its share of the layers."""

    parts: tuple[tuple[float, Layout], ...]


class EvidenceCase(Record, eq=False):
    """A row as a case for the model."""

    step: StepRow
    setup: TrainSetup
    ways: tuple[tuple[LayoutVariant, ...], ...]
    """Variants per micro-batch to try; the first that fits in memory counts."""
    assumed: tuple[str, ...]

    @property
    def layout(self) -> Layout:
        """The layout of the first variant."""
        return self.ways[0][0].parts[0][1]

    @property
    def configuration(self) -> str:
        """Key of repeats of one experiment, on any nodes and release."""
        one = self.layout
        degrees = (one.tp, one.pp, one.cp, one.ep, one.vpp, one.micro_batch, one.sequence)
        modes = (one.zero, one.sequence_parallel, one.recompute, one.precision)
        setup = self.setup
        where = (setup.model.name, setup.platform.instance.name, setup.stack.name)
        return " ".join(map(str, (*where, *degrees, *modes)))


class Reader(State, kw_only=False):
    """Converter of rows into cases."""

    catalog: Catalog
    stack: TrainingStack | str | None = None
    """Stack of all rows, if given; rows of another known stack are refused."""
    otherwise: TrainingStack | str | None = None
    """Stack for software unknown to the catalogue."""
    _platforms: Memo[tuple[object, ...], Platform] = field(default_factory=Memo)
    _setups: Memo[tuple[object, ...], TrainSetup] = field(default_factory=Memo)

    @cached_property
    def models(self) -> Models:
        """Models of the rows."""
        return Models(self.catalog)

    @cached_property
    def stacks(self) -> Stacks:
        """Training stacks of the rows."""
        return Stacks(self.catalog, self.stack, self.otherwise)

    def cases(self, file: EvidenceFile) -> tuple[EvidenceCase | str, ...]:
        """Case of every row, or the reason against one."""
        return tuple(self._case_or_reason(row) for row in file.rows)

    def _case_or_reason(self, row: EvidenceRow) -> EvidenceCase | str:
        try:
            return self._case(step_of(row))
        except DataFileError:
            raise  # A broken file of the catalog is no fault of the row.
        except (RowFault, InputError, ValueError) as fault:
            return str(fault)

    def _case(self, step: StepRow) -> EvidenceCase:
        platform = self._platform(step)
        ranks, nodes = _ranks(step, platform)
        dp = _replicas(step, ranks)
        model = self.models.of(step.model, step.shape, step.layout.number("sequence"))
        stack = self.stacks.of(step.framework, step.release, platform)
        own, notes = stack.own, stack.assumed
        ways, assumed = _ways(step, model.model, stack.stack, dp)
        zero = feature_of(KNOBS["zero"], ways[0][0].parts[0][1].zero)
        if own and not runs(stack.stack, zero):
            remark = f"training stack: {stack.stack.name}, which cuts weights otherwise"
            own, notes = False, (remark,)
        setup = self._setup(model.model, platform, nodes, stack.stack, step.lnc)
        return EvidenceCase(
            step=step,
            setup=replace(setup, own_stack=own),
            ways=ways,
            assumed=(*notes, *model.assumed, *assumed),
        )

    def _setup(
        self, model: Model, platform: Platform, nodes: int, stack: TrainingStack, lnc: int | None
    ) -> TrainSetup:
        """Set-up of a case; cases on one machine and stack share their memo."""
        key = (platform.instance.name, stack.name, stack.release, lnc)
        alike = self._setups.of(
            key,
            lambda: train_setup(
                self.catalog, model, platform, nodes, stack=stack, logical_size=lnc
            ),
        )
        return replace(alike, model=model, nodes=nodes)

    def _platform(self, step: StepRow) -> Platform:
        return self._platforms.of(
            (step.instance, step.lnc), lambda: _platform(self.catalog, step.instance, step.lnc)
        )


def _platform(catalog: Catalog, name: str, logical_size: int | None) -> Platform:
    instance = load_published(catalog, name, "")
    if instance is None:
        raise UnknownNameError("instance", name, catalog.names("instances"))
    platform = Platform(instance=instance, chip=load_chip(catalog, instance.chip))
    place(platform, logical_size=logical_size)  # refuses sizes the chip does not have
    return platform


def _ranks(step: StepRow, platform: Platform) -> tuple[int, int]:
    """Ranks in use, and their nodes."""
    per_node = platform.instance.chips * platform.chip.ranks(step.lnc)
    dp = step.layout.number("dp")
    told = step.ranks or (dp and dp * step.layout.replica_ranks)
    ranks = told or (step.nodes or 1) * per_node
    nodes = step.nodes or -(-ranks // per_node)
    if ranks > nodes * per_node:
        name = platform.instance.name
        raise RowFault(f"{ranks} ranks do not fit on {nodes} nodes of {name}, {per_node} each")
    return ranks, nodes


def _replicas(step: StepRow, ranks: int) -> int:
    """Replicas of a layout, which must fill the ranks."""
    layout = step.layout
    others = layout.replica_ranks
    dp = layout.number("dp") or max(ranks // others, 1)
    if others * dp != ranks:
        tp, pp, cp = (layout.degree(name) for name in ("tp", "pp", "cp"))
        parts = f"{tp} x {pp} x {dp} x {cp}"
        raise RowFault(f"tp x pp x dp x cp = {parts} = {others * dp}, and there are {ranks} ranks")
    return dp


def _ways(
    step: StepRow, model: Model, stack: TrainingStack, dp: int
) -> tuple[tuple[tuple[LayoutVariant, ...], ...], tuple[str, ...]]:
    open_ = _Open(step, model, stack, dp)
    return open_.ways(), tuple(open_.assumed)


def _mixed(
    mixes: Sequence[RecomputeMix], layouts: Mapping[str, Layout]
) -> tuple[LayoutVariant, ...]:
    return tuple(LayoutVariant(parts=tuple((s, layouts[m]) for s, m in mix)) for mix in mixes)


class _Open:
    """Open knobs of a row, filled with the stack's habits and noted."""

    def __init__(self, step: StepRow, model: Model, stack: TrainingStack, dp: int) -> None:
        self.assumed: list[str] = []
        self._step, self._said = step, step.layout
        self._model, self._stack, self._dp = model, stack, dp
        transformer = model.transformer
        self._experts = transformer is not None and transformer.moe is not None

    def _taken(self, name: str, value: object) -> None:
        self.assumed.append(f"{name}: {value}")

    def ways(self) -> tuple[tuple[LayoutVariant, ...], ...]:
        """For each micro-batch the variants to be tried."""
        step, said, stack = self._step, self._said, self._stack
        for name in ("tp", "pp", "global_batch"):
            if said[name] is None:
                raise RowFault(f"{column_of(name)}: not given")
        if said["dp"] is None and step.ranks is None and step.nodes is None:
            self._taken("nodes", 1)
        vpp = said.degree("vpp")
        if said["vpp"] is None and said.degree("pp") > 1:
            self._taken("virtual stages", vpp)
        if said["ep"] is None and self._experts:
            self._taken("expert parallelism", 1)
        base = said.changed(sequence=self._sequence()).complete(
            {
                "dp": self._dp,
                "vpp": vpp,
                "zero": self._zero(),
                "sequence_parallel": self._sequence_parallel(),
                "schedule": "interleaved" if vpp > 1 else "1f1b",
                "attention": stack.attention,
                "stage_split": self._stage_split(),
                **self._adapters(),
                "precision": self._precision(),
            }
        )
        if (frozen := self._frozen(base)) != base.frozen_format:
            base = replace(base, frozen_format=frozen)
        mixes = self._recompute()
        modes = dict.fromkeys(mode for mix in mixes for _, mode in mix)
        return tuple(
            _mixed(mixes, {m: replace(base, micro_batch=size, recompute=m) for m in modes})
            for size in self._micro_batches()
        )

    def _sequence(self) -> int:
        if self._model.image is not None:
            return self._model.image.tokens
        sequence = self._said.number("sequence")
        if sequence is None:
            raise RowFault(f"{column_of('sequence')}: not given")
        return sequence

    def _stage_split(self) -> StageSplit:
        """Pipeline split: with the ends only where this makes the parts even."""
        transformer, split = self._model.transformer, self._stack.stage_split
        parts = self._said.degree("pp") * self._said.degree("vpp")
        if transformer is None or parts == 1 or split != "layers":
            return split
        if transformer.layers % parts == 0 or (transformer.layers + ENDS) % parts:
            return split
        self._taken("pipeline stages", "embedding and head count as a layer each")
        return "layers-and-ends"

    def _zero(self) -> ZeroStage:
        said, habit = self._said["zero"], self._stack.habits.zero
        if said is not None:
            return said  # type: ignore[return-value]
        if self._dp * self._said.degree("cp") > 1:
            self._taken("ZeRO stage", habit)
        return habit

    def _sequence_parallel(self) -> bool:
        if self._said.degree("tp") == 1:
            return False
        said, habit = self._said["sequence_parallel"], self._stack.habits.sequence_parallel
        if said is not None:
            return bool(said)
        self._taken("sequence parallelism", "on" if habit else "off")
        return habit

    def _adapters(self) -> Mapping[str, Value]:
        """Default adapters of a LoRA row."""
        if self._said["job"] != "lora":
            return {}
        usual = {**OF_ADAPTERS, **({"adapter_on": "attention"} if self._experts else {})}
        found = {name: value for name, value in usual.items() if self._said[name] is None}
        for name, value in found.items():
            self._taken(KNOBS[name].title, value)
        return found

    def _frozen(self, layout: Layout) -> FrozenFormat:
        """In what frozen weights are kept; where the row does not say, as is the habit."""
        narrow = format_named(recipe_named(layout.precision).linear).bits <= BITS_PER_BYTE
        if self._said["frozen_format"] is not None or layout.job != "lora" or not narrow:
            return layout.frozen_format
        self._taken(KNOBS["frozen_format"].title, self._stack.habits.fp8_frozen)
        return self._stack.habits.fp8_frozen

    def _recompute(self) -> tuple[RecomputeMix, ...]:
        """The mixtures of modes to be tried in turn."""
        habits, experts = self._stack.habits, self._stack.experts
        half: RecomputeMix = ((0.5, "none"), (0.5, "full"))
        selective: RecomputeMix = half if habits.selective == "half" else ((1.0, "selective"),)
        said, habit = self._said.text("recompute"), habits.recompute
        if self._experts and experts is not None and experts.recompute is not None:
            habit = experts.recompute
        if said is None and habit is not None:
            said = habit
            self._taken("recompute", said)
        if said == "selective" and selective is half:
            self._taken(
                "recompute",
                f"selective of {self._stack.short_name} repeats half of a forward pass, read as "
                "half the layers with recompute none and half with full",
            )
        if said is None:
            self._taken("recompute", "the least that fits in memory, of all layers or of some")
            some = (((1 - share, "none"), (share, "full")) for share in SOME_LAYERS)
            return (((1.0, "none"),), selective, *some, ((1.0, "full"),))
        return (selective,) if said == "selective" else (((1.0, said),),)

    def _precision(self) -> str:
        """The recipe that a row means.

        A bare format says in what a step multiplies; which copies of the weights it keeps is the
        habit of the stack, or else a master copy.
        """
        said, habit = self._step.precision, recipe_named(self._stack.habits.precision)
        if said and said not in _BARE:
            return recipe_named(said).name
        recipe = habit.name if said in ("", habit.other) else f"{said}-master"
        self._taken("precision", recipe)
        return recipe

    def _micro_batches(self) -> Sequence[int]:
        batch, dp = self._said.degree("global_batch"), self._dp
        micro_batch = self._said.number("micro_batch")
        if batch % dp:
            raise RowFault(f"global batch {batch} does not divide by {dp} replicas")
        share = batch // dp
        if micro_batch is not None:
            if share % micro_batch:
                raise RowFault(
                    f"micro-batch {micro_batch} does not divide a replica's batch of {share}"
                )
            return (micro_batch,)
        self._taken("micro-batch", "the best of those tried that fit in memory")
        return [size for size in TRIED_MICRO_BATCHES if share % size == 0]
