"""Answer about a training step: records, and the row that machines read of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from trnbench.engines.analytic.step.memory_parts import CATEGORIES, MemoryCategory
from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.records import Record, field
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.assumption import Assumption
from trnbench.predict.prediction import PhaseFigures, RankMemory, StepFigures
from trnbench.predict.settled import TAKEN, USUAL_STACK, Prefer, assumptions
from trnbench.program.slots import STEP_CATEGORIES, StepCategory
from trnbench.show.figures import HIGH, LOW
from trnbench.show.row import Cell, Row, cells, with_end

if TYPE_CHECKING:
    from trnbench.engines.analytic.step.memory_timeline import MemoryTimeline
    from trnbench.engines.emulate.schedule.timeline import Timeline

COMMUNICATION: tuple[StepCategory, ...] = ("tensor", "context", "expert", "pipeline", "data")
"""Categories of a step that can hide behind compute."""


def _timed(how: str, names: Iterable[str]) -> dict[str, str]:
    return {f"{how}_{name.replace('-', '_')}_s": name for name in names}


MEMORY_PARTS: Mapping[str, MemoryCategory] = {f"memory_{name}_bytes": name for name in CATEGORIES}
"""Keys of a row that add up to the memory of a rank, in bytes -> category."""
EXPOSED_PARTS: Mapping[str, str] = _timed("exposed", STEP_CATEGORIES)
"""Keys of a row that add up to the time of a step, in seconds -> category."""
HIDDEN_PARTS: Mapping[str, str] = _timed("hidden", COMMUNICATION)
"""Keys of communication that hides behind compute, in seconds -> category."""


class Searched(Record):
    """Number of layouts that were tried for one that was left open."""

    legal: int
    feasible: int


class RunPart(Record):
    """Part of a run that a step is repeated for: its tokens and its share of the run's time.

    `days` and `cost_usd` are that share of the run's, with its checkpoints, failures and bill;
    None where it has none. `tokens` are None of a model that knows none.
    """

    tokens: float | None
    share: float | None
    days: float | None = None
    cost_usd: float | None = None

    def row(self) -> Row:
        told = cells(self, "tokens run_share=share days cost_usd")
        return {key: with_end(value) for key, value in told.items()}


class OtherLayout(Record):
    """Another layout of a step: its time over the answer's, and the seconds more of each part."""

    layout: PartialLayout
    times: float
    more_s: Mapping[str, float] = field(default_factory=dict)


class TrainAnswer(Record):
    """One training step on one cluster by one engine; `step` is None where the answer is no.

    `chosen` names the knobs that a search found, `assumed` those that were not given and took
    their default. `part` is what of a run it is repeated for. `stack` is the training stack as
    `--stack` takes it, `usual_stack` true where nobody named it, `stack_state` the state of its
    software. `basis`: whether the calibration
    was fitted to measured steps of these chips.
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
    stack: str
    stack_state: str | None
    basis: str
    beyond_rows: tuple[str, ...] = ()
    """Settings beyond the measured steps of the stack, in words."""
    claimed_mfu: float | None = None
    """MFU that the software's maker claims on these chips."""
    evidence: Kind
    chosen: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    usual_stack: bool = False
    passed_over: tuple[str, ...] = ()
    """Stacks with measured steps on the chips, where the usual one has none."""
    implied: tuple[Assumption, ...] = ()
    """What the stack does where the layout says nothing."""
    preferred: Prefer = "fast"
    """Which of nearly equally fast layouts was to be chosen."""
    beside: Mapping[Literal["usual", "simplest", "fastest"], OtherLayout] = field(
        default_factory=dict
    )
    """Layouts that a chosen one is explained by; none where nothing was chosen."""
    searched: Searched | None = None
    step: StepFigures | None = None
    memory: RankMemory | None = None
    phases: tuple[PhaseFigures, ...] = ()
    part: RunPart | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    timeline: Timeline | None = None
    memory_timeline: MemoryTimeline | None = None

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        own = (
            assumptions(
                self.layout, self.assumed, self.chosen, self.stack, taken=TAKEN[self.preferred]
            )
            + self.implied
        )
        others = f"; with steps on its chips: {', '.join(self.passed_over)} (--stack)"
        why = USUAL_STACK + others * bool(self.passed_over)
        stack = Assumption(name="stack", value=self.stack, why=why)
        return (stack, *own) if self.usual_stack else own

    @property
    def software(self) -> str:
        return self.stack + (f" ({self.stack_state})" if self.stack_state else "")

    @property
    def feasible(self) -> bool:
        return not self.reasons

    def per_s(self, step_time_s: float, each: float = 1.0) -> float:
        return (self.layout.number("global_batch") or 0) * each / step_time_s

    def row(self) -> Row:
        """Return the step as JSON and CSV hold it: times in seconds, sizes in bytes."""
        step, memory = self.step, self.memory
        return {
            "case": self.label or None,
            **cells(self, "model instance nodes chips chip ranks lnc=logical_size engine"),
            **self.layout.plain,
            **_rates(self),
            **cells(memory, "memory_bytes=total_bytes low_memory_bytes=low_bytes"),
            **cells(memory, "high_memory_bytes=high_bytes memory_capacity_bytes=capacity_bytes"),
            **cells(memory, "memory_available_bytes=available_bytes fit_probability"),
            **cells(memory, "worst_stage=stage"),
            **cells(step, "device_s_per_microbatch optimizer_s"),
            **_seconds(EXPOSED_PARTS, step.exposed_s if step else {}),
            **_seconds(HIDDEN_PARTS, step.hidden_s if step else {}),
            **_held(memory),
            **(self.part.row() if self.part else {}),
            "job_phases": [phase_row(one, step) for one in self.phases],
            **cells(self, "chosen defaults=assumed calibration stack stack_state basis"),
            **cells(self, "beyond_rows"),
            **cells(self, "evidence=evidence.word feasible reasons warnings notes"),
        }

    def memory_rows(self) -> tuple[Row, ...]:
        """Return bytes in the worst rank's memory, a row a slot; times where slots ran."""
        held = self.memory_timeline
        if held is None:
            return ()
        rows, peak = [], held.peak
        for one in held.instants:
            played = None if one.micro_batch is None else self.timeline
            place = held.stage, one.slot
            rows.append(
                {
                    **cells(one, "slot phase micro_batch_number=micro_batch chunk"),
                    "start_s": played and float(played.start_s[place]),
                    "end_s": played and float(played.end_s[place]),
                    **cells(one, "in_flight memory_bytes=total_bytes"),
                    **{f"memory_{name}_bytes": size for name, size in one.by_category.items()},
                    "peak": one is peak,
                }
            )
        return tuple(rows)


def phase_row(phase: PhaseFigures, step: StepFigures | None) -> Row:
    """Return a phase of a job's step: its time, as a share of the step too, and memory of a rank.

    Phases on nodes of their own run beside the others: shares then add up to more than 1.
    """
    time_s = phase.step_time_s
    return {
        "job_phase": phase.name,
        "phase_time_s": time_s,
        "phase_share": time_s / step.step_time_s if step and time_s is not None else None,
        **cells(phase.memory, "memory_bytes=total_bytes memory_available_bytes=available_bytes"),
        **_held(phase.memory),
    }


def _held(memory: RankMemory | None) -> Row:
    parts = memory.by_category if memory else {}
    return {key: parts.get(name) for key, name in MEMORY_PARTS.items()}


def _seconds(keys: Mapping[str, Any], seconds: Mapping[Any, float]) -> Row:
    return {key: seconds.get(name) for key, name in keys.items()}


def _rates(answer: TrainAnswer) -> dict[str, Cell]:
    step, tokens = answer.step, answer.tokens_per_sample
    names = ("step_time_s", "sequences_per_s", "tokens_per_s", "mfu")
    if step is None:
        keys = [key for name in names for key in (name, LOW + name, HIGH + name)]
        return dict.fromkeys((*keys, "mfu_headline", "hfu"))
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
    rates |= cells(step, "step_time_s low_step_time_s high_step_time_s")
    ordered = {key: rates[key] for name in names for key in (name, LOW + name, HIGH + name)}
    return ordered | cells(step, "mfu_headline hfu")
