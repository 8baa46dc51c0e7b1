"""A row of training evidence as a question the model can answer: model, layouts, machine, stack.

What a row does not tell is taken from the stack's habits or tried: an unknown micro-batch is the
best of a few, an unknown recompute the least that fits in memory. All of it is listed as assumed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import attrs

from trnbench.calibration.training_stack import (
    STACK_PREFIX,
    TrainingStack,
    load_training_stack,
    training_stack_of,
)
from trnbench.catalog.search import Catalog
from trnbench.errors import InputError
from trnbench.evidence.model_of import Models
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, RowFault
from trnbench.evidence.training_told import Told, told_by
from trnbench.hardware.instance import Platform
from trnbench.hardware.library import load_chip, load_published
from trnbench.memo import Memo
from trnbench.predict.setup import TrainSetup, train_setup
from trnbench.program.precision import recipe_named
from trnbench.workload.layout import Layout, Recompute, ZeroStage
from trnbench.workload.model import Model

TRIED_MICRO_BATCHES = (1, 2, 4, 8)
FEWEST_CHUNKS = 2
"""Virtual stages of an interleaved schedule whose number is not published."""
OTHER_RELEASE = "other"
"""Under this name a stack describes releases that it does not list."""

_GPU_FORMATS = (
    (("mxfp8", "fp8-mx"), "mxfp8"),
    (("fp8", "float8"), "fp8"),
    (("bf16",), "bf16-master"),
    (("fp16",), "fp16-master"),
    (("tf32",), "tf32"),
    (("fp32",), "fp32"),
)
"""Words of a dtype column -> recipe; the first that is there wins."""
_TRAINIUM_FORMATS = (
    (("fp32optimizer", "mixed", "master"), "bf16-master"),
    (("bf16+sr", "bf16-sr"), "bf16-sr"),
    (("bf16",), "bf16"),
    (("fp32",), "auto-cast-bf16"),
)
_ZERO = re.compile(r"zero-?\s*(\d)|^(\d)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutVariant:
    """One way a row may have run: layouts, and the share of its layers in each."""

    parts: tuple[tuple[float, Layout], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvidenceCase:
    """A row as a question.

    `ways`: for each micro-batch to be tried, the variants of which the first that fits in memory
    counts.
    """

    row: EvidenceRow
    told: Told
    setup: TrainSetup
    ways: tuple[tuple[LayoutVariant, ...], ...]
    assumed: tuple[str, ...]

    @property
    def layout(self) -> Layout:
        """The layout of the first variant."""
        return self.ways[0][0].parts[0][1]

    @property
    def configuration(self) -> str:
        """What is alike for rows that repeat one experiment, on more nodes or another release."""
        one = self.layout
        degrees = (one.tp, one.pp, one.cp, one.ep, one.vpp, one.micro_batch, one.sequence)
        modes = (one.zero, one.sequence_parallel, one.recompute, one.precision)
        setup = self.setup
        where = (setup.model.name, setup.platform.instance.name, setup.stack.name)
        return " ".join(map(str, (*where, *degrees, *modes)))


@dataclass
class Reader:
    """Turns rows into cases.

    With a `stack` all rows are its own, but for those that ran another known one.
    """

    catalog: Catalog
    stack: TrainingStack | None = None
    models: Models = field(init=False)
    _stacks: tuple[TrainingStack, ...] | None = field(default=None, init=False)
    _setups: Memo[tuple[object, ...], TrainSetup] = field(default_factory=Memo, init=False)

    def __post_init__(self) -> None:
        """Make an empty store of models."""
        self.models = Models(self.catalog)

    def cases(self, file: EvidenceFile) -> tuple[EvidenceCase | str, ...]:
        """Return the case of every row of a file, or why it is none."""
        return tuple(self._case_or_reason(file, row) for row in file.rows)

    def _case_or_reason(self, file: EvidenceFile, row: EvidenceRow) -> EvidenceCase | str:
        if row.fault is not None:
            return row.fault
        try:
            return self._case(file, row)
        except (RowFault, InputError, ValueError) as fault:
            return str(fault)

    def _case(self, file: EvidenceFile, row: EvidenceRow) -> EvidenceCase:
        told = told_by(row, file.set)
        platform = self._platform(told)
        ranks, nodes = _ranks(told, platform)
        dp = _replicas(told, ranks)
        found = self.models.of(row, told.layout.number("sequence"))
        transformer = found.model.transformer
        if transformer is not None and transformer.moe is not None and told.layout["ep"] is None:
            raise RowFault("ep: not given, and the model has experts")
        stack, own, notes = self._stack(told, platform)
        ways, assumed = _ways(told, found.model, stack, dp, trainium=file.set != "gpu_training")
        if own and ways[0][0].parts[0][1].zero not in stack.supports.zero:
            own, notes = False, (f"training stack: {stack.name}, which cuts weights otherwise",)
        return EvidenceCase(
            row=row,
            told=told,
            setup=self._setup(found.model, platform, nodes, stack, own_stack=own),
            ways=ways,
            assumed=(*notes, *found.assumed, *assumed),
        )

    def _setup(
        self, model: Model, platform: Platform, nodes: int, stack: TrainingStack, *, own_stack: bool
    ) -> TrainSetup:
        """Return the set-up of a case; those on one machine with one stack share their memo."""
        key = (platform.instance.name, stack.name, stack.release)
        alike = self._setups.of(
            key, lambda: train_setup(self.catalog, model, platform, nodes, stack=stack)
        )
        return replace(alike, model=model, nodes=nodes, own_stack=own_stack)

    def _platform(self, told: Told) -> Platform:
        instance = load_published(self.catalog, told.system, told.gpu)
        if instance is None:
            raise RowFault(f"unknown system {told.system!r} with {told.gpu or 'Trainium'}")
        platform = Platform(instance=instance, chip=load_chip(self.catalog, instance.chip))
        if told.gpu and not platform.chip.name.startswith(told.gpu.partition("-")[0].lower()):
            raise RowFault(f"{told.system} has {platform.chip.name} chips, not {told.gpu}")
        return platform

    def _stack(self, told: Told, platform: Platform) -> tuple[TrainingStack, bool, tuple[str, ...]]:
        if self._stacks is None:
            names = [n for n in self.catalog.names("calibration") if n.startswith(STACK_PREFIX)]
            self._stacks = tuple(load_training_stack(self.catalog, name) for name in names)
        instance = platform.instance.name
        here = [stack for stack in self._stacks if instance in stack.instances]
        named = max(here, key=lambda stack: _named(stack, told.software), default=None)
        own = named is not None and _named(named, told.software) > 0
        if self.stack is not None:
            if named is not None and own and named.name != self.stack.name:
                raise RowFault(f"ran with {named.name} by what it says of its software")
            named, own = self.stack, True
        stack = named if named and own else training_stack_of(self.catalog, instance)
        notes = () if own else (f"training stack: {stack.name}, as none is known for its software",)
        release = _release(stack, told.release)
        if release == stack.release:
            return stack, own, notes
        return attrs.evolve(stack, release=release), own, notes


def _named(stack: TrainingStack, software: str) -> int:
    """Return the length of the longest of the stack's names in a text; 0 where there is none."""
    text = software.lower()
    return max((len(name) for name in stack.frameworks if name.lower() in text), default=0)


def _release(stack: TrainingStack, told: str) -> str | None:
    """Return the stack's release that a text names, or else the one that stands for all others."""
    words = re.split(r"[\s,]+", told)
    known = [name for name in stack.releases if any(_is_release(name, word) for word in words)]
    unknown = OTHER_RELEASE if told and OTHER_RELEASE in stack.releases else stack.release
    return max(known, key=len, default=unknown)


def _is_release(name: str, word: str) -> bool:
    return word == name or word.startswith((f"{name}.", f"{name}-"))


def _ranks(told: Told, platform: Platform) -> tuple[int, int]:
    per_node = platform.instance.chips * platform.chip.ranks(None)
    ranks = told.ranks or (told.nodes or 1) * per_node
    nodes = told.nodes or -(-ranks // per_node)
    if ranks > nodes * per_node:
        name = platform.instance.name
        raise RowFault(f"{ranks} ranks do not fit on {nodes} nodes of {name}, {per_node} each")
    return ranks, nodes


def _replicas(told: Told, ranks: int) -> int:
    others = told.layout.replica_ranks
    dp = told.layout.number("dp") or max(ranks // others, 1)
    if others * dp != ranks:
        tp, pp, cp = (told.layout.degree(name) for name in ("tp", "pp", "cp"))
        parts = f"{tp} x {pp} x {dp} x {cp}"
        raise RowFault(f"tp x pp x dp x cp = {parts} = {others * dp}, and there are {ranks} ranks")
    return dp


def _ways(
    told: Told, model: Model, stack: TrainingStack, dp: int, *, trainium: bool
) -> tuple[tuple[tuple[LayoutVariant, ...], ...], tuple[str, ...]]:
    assumed: list[str] = []
    sequence = _sequence(told, model)
    vpp = _chunks(told, assumed)
    base = told.layout.changed(sequence=sequence).complete(
        {
            "dp": dp,
            "vpp": vpp,
            "zero": _zero(told, stack, dp, assumed),
            "sequence_parallel": _sequence_parallel(told, stack, assumed, trainium=trainium),
            "schedule": "interleaved" if vpp > 1 else "1f1b",
            "attention": "fused" if "flash" in told.notes.lower() else stack.attention,
            "precision": _precision(told, assumed, trainium=trainium),
        }
    )
    shares = _recompute(told, stack, assumed)
    ways = []
    for micro_batch in _micro_batches(told, dp, assumed):
        layout = replace(base, micro_batch=micro_batch)
        ways.append(
            tuple(
                LayoutVariant(parts=tuple((s, replace(layout, recompute=mode)) for s, mode in mix))
                for mix in shares
            )
        )
    return tuple(ways), tuple(assumed)


def _sequence(told: Told, model: Model) -> int:
    if model.image is not None:
        return model.image.tokens
    sequence = told.layout.number("sequence")
    if sequence is None:
        raise RowFault("sequence length: not given")
    return sequence


def _chunks(told: Told, assumed: list[str]) -> int:
    if told.layout["vpp"] is not None or told.layout.degree("pp") == 1:
        return told.layout.degree("vpp")
    chunks = FEWEST_CHUNKS if "interleaved" in told.software.lower() else 1
    assumed.append(f"virtual stages: {chunks}")
    return chunks


def _zero(told: Told, stack: TrainingStack, dp: int, assumed: list[str]) -> ZeroStage:
    text, cp = told.sharding, told.layout.degree("cp")
    found = _ZERO.search(text)
    if found:
        stage = int(found[1] or found[2])
        if stage not in (0, 1, 2, 3):
            raise RowFault(f"there is no ZeRO stage {stage}")
        return stage  # type: ignore[return-value]
    if "SHARD_GRAD_OP" in text:
        return 2
    if "distributed optimizer" in text.lower():
        return 1
    if (told.sharded or 1) > 1:
        if told.sharded not in (dp, dp * cp):
            assumed.append(f"weights sharded over all replicas, not over {told.sharded} ranks")
        return 3
    if "FSDP" in text or "FULL_SHARD" in text:
        return 3
    if dp * cp > 1:
        assumed.append(f"ZeRO stage: {stack.habits.zero}")
    return stack.habits.zero


def _sequence_parallel(
    told: Told, stack: TrainingStack, assumed: list[str], *, trainium: bool
) -> bool:
    if told.layout.degree("tp") == 1:
        return False
    if told.sequence_parallel.startswith(("yes", "true", "on")):
        return True
    if told.sequence_parallel.startswith(("no", "false", "off")):
        return False
    # Published Trainium rows say so where it is on; GPU tables leave it to the library.
    on = not trainium and stack.habits.sequence_parallel
    assumed.append(f"sequence parallelism: {'on' if on else 'off'}")
    return on


def _recompute(
    told: Told, stack: TrainingStack, assumed: list[str]
) -> tuple[tuple[tuple[float, Recompute], ...], ...]:
    """Return the mixtures of modes to be tried in turn, each as shares of the layers."""
    text = told.recompute
    if text.startswith("full"):
        return (((1.0, "full"),),)
    if text.startswith("none"):
        return (((1.0, "none"),),)
    half: tuple[tuple[float, Recompute], ...] = ((0.5, "none"), (0.5, "full"))
    selective = half if stack.habits.selective == "half" else ((1.0, "selective"),)
    if text.startswith("selective"):
        return (selective,)
    assumed.append("recompute: the least that fits in memory")
    return (((1.0, "none"),), selective, ((1.0, "full"),))


def _precision(told: Told, assumed: list[str], *, trainium: bool) -> str:
    for words, recipe in _TRAINIUM_FORMATS if trainium else _GPU_FORMATS:
        if any(word in told.number_format for word in words):
            if recipe.startswith("auto-cast"):
                assumed.append("products cast to bf16 by the compiler")
            return recipe
    return recipe_named(told.number_format).name


def _micro_batches(told: Told, dp: int, assumed: list[str]) -> Sequence[int]:
    batch, micro_batch = told.layout.degree("global_batch"), told.layout.number("micro_batch")
    if batch % dp:
        raise RowFault(f"global batch {batch} does not divide by {dp} replicas")
    share = batch // dp
    if micro_batch is not None:
        if share % micro_batch:
            raise RowFault(
                f"micro-batch {micro_batch} does not divide a replica's batch of {share}"
            )
        return (micro_batch,)
    assumed.append("micro-batch: the best of those tried that fit in memory")
    return [size for size in TRIED_MICRO_BATCHES if share % size == 0]
