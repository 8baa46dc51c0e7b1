"""Open knobs of a published row: what its authors left out is the habit of their software.

Habits of the stack settle them; an unknown micro-batch is the best of a few, an unknown recompute
mode without a habit the least that fits in memory. All of this is listed as assumed. Rows of users
are settled as any other question: `predict.settled`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from trnbench.evidence.columns import column_of
from trnbench.evidence.rows import RowFault
from trnbench.evidence.step_row import StepRow
from trnbench.facts.calibration.training_stack import TrainingStack
from trnbench.facts.records import replace
from trnbench.facts.workload.choices import OF_ADAPTERS
from trnbench.facts.workload.layout import KNOBS, Layout, StageSplit, Value, ZeroStage
from trnbench.facts.workload.model import Model
from trnbench.predict.assumption import Assumption
from trnbench.predict.settled import TAKEN, adapter_places, frozen_habit
from trnbench.program.precision import recipe_named
from trnbench.program.stages import ENDS

TRIED_MICRO_BATCHES = (1, 2, 4, 8)
SOME_LAYERS = (0.25, 0.5, 0.75)
"""Shares of layers to try where software may recompute only some."""
RecomputeMix: TypeAlias = tuple[tuple[float, str], ...]
"""Recompute modes, each with its share of the layers."""
HALF: RecomputeMix = ((0.5, "none"), (0.5, "full"))
"""Recompute of half of a forward pass, read as half of the layers."""
_BARE = ("", "bf16", "fp16")
"""Precision cells that leave the copies of weights open."""


LayoutMix: TypeAlias = tuple[tuple[float, Layout], ...]
"""One possible run of a row: layouts, each with its share of the layers."""
RowWays: TypeAlias = tuple[tuple[LayoutMix, ...], ...]
"""Variants per micro-batch to try; the first that fits in memory counts."""


def by_habit(
    step: StepRow, model: Model, stack: TrainingStack, dp: int
) -> tuple[RowWays, tuple[Assumption, ...]]:
    """The possible runs of a published row on `dp` replicas, and what is assumed of them."""
    open_ = _Open(step, model, stack, dp)
    return open_.ways(), tuple(open_.assumed)


def mixed(mixes: Sequence[RecomputeMix], layouts: Mapping[str, Layout]) -> tuple[LayoutMix, ...]:
    return tuple(tuple((share, layouts[mode]) for share, mode in mix) for mix in mixes)


def half_assumed(stack: TrainingStack) -> Assumption:
    """Meaning of selective recompute in a stack that repeats half of a forward pass."""
    return Assumption(
        name="recompute",
        value="selective",
        why=f"of {stack.short_name} repeats half of a forward pass, read as half the layers with "
        "recompute none and half with full",
    )


def stated_sequence(step: StepRow, model: Model) -> int:
    """Tokens of a sample: those of the row, or of the model's image."""
    if model.image is not None:
        return model.image.tokens
    sequence = step.layout.number("sequence")
    if sequence is None:
        raise RowFault(f"{column_of('sequence')}: not given")
    return sequence


def stated_precision(step: StepRow, stack: TrainingStack) -> tuple[str, Assumption | None]:
    """The recipe that a row means, and what is assumed of it.

    A bare format says in what a step multiplies; which copies of the weights it keeps is the habit
    of the stack, or else a master copy.
    """
    said, habit = step.precision, recipe_named(stack.habits.precision)
    if said and said not in _BARE:
        return recipe_named(said).name, None
    recipe = habit.name if said in ("", habit.other) else f"{said}-master"
    return recipe, Assumption(
        name="precision", value=recipe, why=f"habit of {stack.short_name}{said and f' for {said}'}"
    )


class _Open:
    """Open knobs of a row, filled with the stack's habits and noted."""

    def __init__(self, step: StepRow, model: Model, stack: TrainingStack, dp: int) -> None:
        self.assumed: list[Assumption] = []
        self._step, self._said = step, step.layout
        self._model, self._stack, self._dp = model, stack, dp
        transformer = model.transformer
        self._experts = transformer is not None and transformer.moe is not None

    def _taken(self, name: str, value: Value, why: str = "") -> None:
        why = why or f"habit of {self._stack.short_name}"
        self.assumed.append(Assumption(name=name, value=value, why=why))

    def ways(self) -> RowWays:
        """For each micro-batch the variants to be tried."""
        step, said, stack = self._step, self._said, self._stack
        for name in ("tp", "pp", "global_batch"):
            if said[name] is None:
                raise RowFault(f"{column_of(name)}: not given")
        if said["dp"] is None and step.ranks is None and step.nodes is None:
            self._taken("nodes", 1, "the row names none")
        vpp = said.degree("vpp")
        if said["vpp"] is None and said.degree("pp") > 1:
            self._taken("vpp", vpp, "the row names none")
        if said["ep"] is None and self._experts:
            self._taken("ep", 1, "the row names none")
        precision, assumed = stated_precision(step, stack)
        # What a publication leaves out was not worth a word to its authors: it is as usual.
        base = said.changed(sequence=stated_sequence(step, self._model)).complete(
            {
                "dp": self._dp,
                "vpp": vpp,
                "zero": self._zero(),
                "sequence_parallel": self._sequence_parallel(),
                "schedule": "interleaved" if vpp > 1 else "1f1b",
                "attention": stack.attention,
                "loss": stack.loss,
                "stage_split": self._stage_split(),
                **self._adapters(),
                **self._expert_ranks(),
                "precision": precision,
            }
        )
        if assumed is not None:
            self.assumed.append(assumed)
        if said["loss"] is None and stack.loss != KNOBS["loss"].default:
            self._taken("loss", stack.loss, "habit of the software")
        frozen = frozen_habit(stack, base.job, base.precision)
        if said["frozen_format"] is None and frozen is not None:
            self._taken("frozen_format", frozen)
            base = replace(base, frozen_format=frozen)
        mixes = self._recompute()
        modes = dict.fromkeys(mode for mix in mixes for _, mode in mix)
        return tuple(
            mixed(mixes, {m: replace(base, micro_batch=size, recompute=m) for m in modes})
            for size in self._micro_batches()
        )

    def _stage_split(self) -> StageSplit:
        """Pipeline split: with the ends only where this makes the parts even."""
        transformer, split = self._model.transformer, self._stack.stage_split
        parts = self._said.degree("pp") * self._said.degree("vpp")
        if transformer is None or parts == 1 or split != "layers":
            return split
        if transformer.layers % parts == 0 or (transformer.layers + ENDS) % parts:
            return split
        self._taken("stage_split", "layers-and-ends", "makes the stages even")
        return "layers-and-ends"

    def _zero(self) -> ZeroStage:
        said, habit = self._said["zero"], self._stack.habits.zero
        if said is not None:
            return said  # type: ignore[return-value]
        if self._dp * self._said.degree("cp") > 1:
            self._taken("zero", habit)
        return habit

    def _sequence_parallel(self) -> bool:
        if self._said.degree("tp") == 1:
            return False
        said, habit = self._said["sequence_parallel"], self._stack.habits.sequence_parallel
        if said is not None:
            return bool(said)
        self._taken("sequence_parallel", habit)
        return habit

    def _expert_ranks(self) -> Mapping[str, Value]:
        """Whole experts on a rank where the row spreads them over more than its replicas."""
        said, replicas = self._said, self._dp * self._said.degree("cp")
        over = self._experts and said["expert_tp"] is None and replicas % said.degree("ep") != 0
        if not over or replicas * said.degree("tp") % said.degree("ep") != 0:
            return {}
        self._taken("expert_tp", 1, "experts are spread over more ranks than there are replicas")
        return {"expert_tp": 1}

    def _adapters(self) -> Mapping[str, Value]:
        """Usual adapters of a LoRA row."""
        if self._said["job"] != "lora":
            return {}
        usual = {**OF_ADAPTERS, **adapter_places(self._model)}
        found = {name: value for name, value in usual.items() if self._said[name] is None}
        for name, value in found.items():
            self._taken(name, value, "usual of --job lora")
        return found

    def _recompute(self) -> tuple[RecomputeMix, ...]:
        """The mixtures of modes to be tried in turn."""
        habits, experts = self._stack.habits, self._stack.experts
        selective: RecomputeMix = HALF if habits.selective == "half" else ((1.0, "selective"),)
        said, habit = self._said.text("recompute"), habits.recompute
        if self._experts and experts is not None and experts.recompute is not None:
            habit = experts.recompute
        if said is None and habit is not None:
            said = habit
            self._taken("recompute", said)
        if said == "selective" and selective is HALF:
            self.assumed.append(half_assumed(self._stack))
        if said is None:
            self._taken("recompute", "none to full", "the least that fits, of all layers or some")
            some = (((1 - share, "none"), (share, "full")) for share in SOME_LAYERS)
            return (((1.0, "none"),), selective, *some, ((1.0, "full"),))
        return (selective,) if said == "selective" else (((1.0, said),),)

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
        tried = [size for size in TRIED_MICRO_BATCHES if share % size == 0]
        self._taken("micro_batch", " or ".join(map(str, tried)), TAKEN["fast"])
        return tried
