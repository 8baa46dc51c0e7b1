"""What is answered about a training step: records, and the row that machines read of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trnbench.analytic.step.memory import CATEGORIES
from trnbench.analytic.step.time import STEP_CATEGORIES, StepCategory
from trnbench.answers.figures import HIGH, LOW
from trnbench.answers.row import Cell, Row
from trnbench.catalog.provenance import Kind
from trnbench.predict.prediction import RankMemory, StepFigures
from trnbench.workload.partial_layout import PartialLayout

if TYPE_CHECKING:
    from trnbench.emulate.schedule.timeline import Timeline


COMMUNICATION: tuple[StepCategory, ...] = ("tensor", "context", "expert", "pipeline", "data")
"""Categories of which a part may run beside compute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """How many layouts were looked at for one that was left open."""

    legal: int
    feasible: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainAnswer:
    """One training step on one cluster by one engine; `step` is None where the answer is no.

    `chosen` names the knobs that a search found, `assumed` those that were not given and took
    their default. `basis`: whether the calibration was fitted to measured steps of these chips.
    """

    label: str
    model: str
    instance: str
    chip: str
    nodes: int
    chips: int
    ranks: int
    logical_size: int | None
    tokens_per_sample: int | None
    layout: PartialLayout
    engine: str
    calibration: str
    basis: str
    evidence: Kind
    chosen: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    searched: Searched | None = None
    step: StepFigures | None = None
    memory: RankMemory | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    timeline: Timeline | None = field(default=None, repr=False)

    @property
    def feasible(self) -> bool:
        """Whether the step can run."""
        return not self.reasons

    def per_s(self, step_time_s: float, each: float = 1.0) -> float:
        """Return samples (times `each`) a second at a step time."""
        return (self.layout.number("global_batch") or 0) * each / step_time_s

    def row(self) -> Row:
        """Return the step as JSON and CSV hold it: times in seconds, sizes in bytes."""
        step, memory = self.step, self.memory
        by_category = memory.by_category if memory else {}
        row: dict[str, Cell] = {
            "case": self.label or None,
            "model": self.model,
            "instance": self.instance,
            "nodes": self.nodes,
            "chips": self.chips,
            "chip": self.chip,
            "ranks": self.ranks,
            "lnc": self.logical_size,
            "engine": self.engine,
            **self.layout.plain,
            **_rates(self),
            "memory_bytes": memory.total_bytes if memory else None,
            "memory_capacity_bytes": memory.capacity_bytes if memory else None,
            "memory_available_bytes": memory.available_bytes if memory else None,
            "worst_stage": memory.stage if memory else None,
            **{
                f"exposed_{_key(category)}_s": step.exposed_s.get(category) if step else None
                for category in STEP_CATEGORIES
            },
            **{
                f"hidden_{_key(category)}_s": step.hidden_s.get(category) if step else None
                for category in COMMUNICATION
            },
            **{f"memory_{category}_bytes": by_category.get(category) for category in CATEGORIES},
            "chosen": self.chosen,
            "defaults": self.assumed,
            "calibration": self.calibration,
            "basis": self.basis,
            "evidence": self.evidence.word,
            "feasible": self.feasible,
            "reasons": self.reasons,
            "warnings": self.warnings,
            "notes": self.notes,
        }
        return row


def _rates(answer: TrainAnswer) -> dict[str, Cell]:
    step, tokens = answer.step, answer.tokens_per_sample
    names = ("step_time_s", "sequences_per_s", "tokens_per_s", "mfu")
    if step is None:
        ends = {f"{end}{name}": None for name in names for end in ("", "low_", "high_")}
        return {**ends, "mfu_headline": None, "hfu": None}
    rates: dict[str, Cell] = {}
    for end, time_s in (
        ("", step.step_time_s),
        # The longest step has the lowest rate.
        ("low_", step.high_step_time_s),
        ("high_", step.low_step_time_s),
    ):
        rates |= {
            f"{end}sequences_per_s": answer.per_s(time_s),
            f"{end}tokens_per_s": answer.per_s(time_s, tokens) if tokens else None,
            f"{end}mfu": step.mfu * step.step_time_s / time_s,
        }
    rates |= {f"{end}step_time_s": getattr(step, f"{end}step_time_s") for end in ("", LOW, HIGH)}
    ordered: dict[str, Cell] = {
        f"{end}{name}": rates[f"{end}{name}"] for name in names for end in ("", LOW, HIGH)
    }
    return {**ordered, "mfu_headline": step.mfu_headline, "hfu": step.hfu}


def _key(category: str) -> str:
    return category.replace("-", "_")
