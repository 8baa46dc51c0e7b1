"""The training use case with real numbers: losses of some steps, and what they cost for real."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from hashlib import sha256

import numpy as np

from trnbench.engines.analytic.step.memory import memory
from trnbench.engines.execute.checkpoint import resume, save
from trnbench.engines.execute.coverage import check_memory, problems
from trnbench.engines.execute.draws import text_of
from trnbench.engines.execute.exchange import TrafficLine, program_flop, traffic_lines
from trnbench.engines.execute.optimizer import AdamW
from trnbench.engines.execute.trainer import Trainer, TrainingRun
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, asdict, replace
from trnbench.facts.units import HOUR_S
from trnbench.facts.workload.layout import KNOBS, Value
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.price_terms import PriceTerms
from trnbench.money.purchase import load_offers
from trnbench.predict.settled import SEARCHED
from trnbench.predict.setup import TrainSetup
from trnbench.program.step import StepProgram, training_step
from trnbench.show.row import Row
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.knobs import refuse_wanted
from trnbench.verbs.asking.use_case import Cancel, Progress, never, quiet
from trnbench.verbs.train.answer import TrainAnswer
from trnbench.verbs.train.question import TASK, FunctionalQuestion
from trnbench.verbs.train.step_answers import step_answers

AGREEMENT = 0.02
"""By how much the memory model may miss what was measured."""


class FormatFlop(Record):
    """Operations of all steps over all ranks on operands of a format."""

    number_format: str
    flop: int
    program_flop: float

    @property
    def agrees(self) -> bool:
        return self.flop == self.program_flop


class StageHeld(Record):
    """Peak bytes of a rank of one class of stages, measured and as the memory model says.

    `peaks_bytes` adds up the peak of each category, as the model does; `peak_bytes` is what was
    there at one time.
    """

    role: str
    by_category: Mapping[str, float]
    model_by_category: Mapping[str, float]
    peak_bytes: float

    @property
    def peaks_bytes(self) -> float:
        return sum(self.by_category.values())

    @property
    def model_bytes(self) -> float:
        return sum(self.model_by_category.values())

    @property
    def agrees(self) -> bool:
        """True when the model lies between what was there at one time and the peaks added up."""
        above = self.peak_bytes <= self.model_bytes * (1 + AGREEMENT)
        return above and self.peaks_bytes >= self.model_bytes * (1 - AGREEMENT)


class FunctionalRun(Record):
    """Some training steps with real numbers; `reasons` tell why there are none.

    `answer` is the modelled step on the instance; `resumed` counts the steps that a checkpoint
    brought, `measured` those that this run carried out and measured. Without a published price
    `usd_per_hour` (of all instances) is None.
    """

    answer: TrainAnswer
    task: str
    seed: int
    losses: tuple[float, ...]
    tokens_per_step: int
    resumed: int = 0
    measured: int = 0
    usd_per_hour: float | None = None
    region: str | None = None
    traffic: tuple[TrafficLine, ...] = ()
    flop: tuple[FormatFlop, ...] = ()
    stages: tuple[StageHeld, ...] = ()
    busiest_link: tuple[int, int, float] | None = None
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def agrees(self) -> bool:
        """True when all that was measured is what the program and the models say."""
        parts: tuple[TrafficLine | FormatFlop | StageHeld, ...] = (
            *self.traffic,
            *self.flop,
            *self.stages,
        )
        return all(part.agrees for part in parts)

    def rows(self) -> tuple[Row, ...]:
        """Return a row for each step."""
        step = self.answer.step
        return tuple(
            self._row(i + 1, loss, step.step_time_s if step else None)
            for i, loss in enumerate(self.losses)
        )

    def _row(self, number: int, loss: float, step_s: float | None) -> Row:
        time_s = None if step_s is None else number * step_s
        per_hour = self.usd_per_hour
        cost = None if time_s is None or per_hour is None else per_hour * time_s / HOUR_S
        return {
            "step": number,
            "loss": loss,
            "tokens": number * self.tokens_per_step,
            "modelled_time_s": time_s,
            "modelled_cost_usd": cost,
        }


TOKENS_PER_STEP = 1024
LONGEST_SEQUENCE = 128
"""Of texts where none is asked for: long enough to learn from, short enough to be quick."""
_NEWEST = date.max
_DIGITS = 12
"""Of a digest that tells models apart."""


def run_functional(
    catalog: Catalog,
    question: FunctionalQuestion,
    *,
    progress: Progress = quiet,
    cancel: Cancel = never,
) -> FunctionalRun:
    """Return the losses of a small model, trained with real numbers on emulated ranks.

    Knobs that are not given are 1. With `resume`, a folder, it keeps checkpoints there and goes on
    from the newest. `progress` hears of each step before it starts; once `cancel` is true the step
    under way is the last: what is done is kept and returned.
    """
    setup = question.software.setup(catalog, question.model, *question.place)
    model = setup.model
    answer = replace(step_answers(setup, _settled(model, question.layout))[0], engine="functional")
    layout = answer.layout
    blank = FunctionalRun(
        answer=answer,
        task=TASK,
        seed=question.seed,
        losses=(),
        tokens_per_step=layout.degree("global_batch") * layout.degree("sequence"),
        reasons=answer.reasons,
    )
    if blank.reasons:
        return blank
    program, notes = _program(model, layout)
    reasons = problems(program)
    if reasons:
        return replace(blank, reasons=reasons)
    check_memory(program)
    assert model.vocabulary is not None
    text = text_of(TASK, model.vocabulary.size, question.seed)
    trainer = Trainer(program, TrainingRun(text=text, optimizer=AdamW(), seed=question.seed))
    losses, resumed, interrupted = _train(trainer, question, layout, progress, cancel)
    usd_per_hour, region = _rate(catalog, setup)
    links = trainer.book.links_bytes()
    measured = len(losses) - resumed
    most = np.unravel_index(int(links.argmax()), links.shape)
    return replace(
        blank,
        losses=losses[: question.steps],
        resumed=min(resumed, question.steps),
        measured=measured,
        usd_per_hour=usd_per_hour,
        region=region,
        traffic=traffic_lines(trainer.book.by_operation(), program, measured),
        flop=_flop(trainer, measured),
        stages=_held(setup, trainer) if measured else (),
        busiest_link=(int(most[0]), int(most[1]), float(links.max())) if links.any() else None,
        notes=notes,
        interrupted=interrupted,
    )


train_functional = verb_of("train_functional", FunctionalQuestion, run_functional)


# Before the first step


def _settled(model: Model, given: PartialLayout) -> PartialLayout:
    """Return the layout with what a search would choose filled in: nothing is searched for here."""
    refuse_wanted(given.wanted)
    length = model.transformer.position.length if model.transformer else 1
    sequence = given.number("sequence") or min(length, LONGEST_SEQUENCE)
    together = given.degree("dp") * given.degree("micro_batch")
    defaults: dict[str, Value | None] = {
        **{name: KNOBS[name].default for name in SEARCHED},
        "sequence": sequence,
        "global_batch": -(-max(TOKENS_PER_STEP // sequence, 1) // together) * together,
        "sequence_parallel": given.degree("tp") > 1,
        "schedule": "interleaved" if given.degree("vpp") > 1 else "1f1b",
    }
    return PartialLayout(**{**defaults, **given.given})


def _program(model: Model, layout: PartialLayout) -> tuple[StepProgram, tuple[str, ...]]:
    """Return the program to execute; where no token is dropped, experts have room for all."""
    notes: tuple[str, ...] = ()
    moe = model.transformer.moe if model.transformer else None
    if moe is not None and layout["capacity_factor"] is None:
        layout = layout.changed(capacity_factor=moe.experts / moe.top_k)
        notes = (
            "No token is dropped: every expert has room for every token, and empty room travels "
            "too; the modelled time takes an even load.",
        )
    return training_step(model, layout.complete()), notes


# Steps


def _train(
    trainer: Trainer,
    question: FunctionalQuestion,
    layout: PartialLayout,
    progress: Progress,
    cancel: Cancel,
) -> tuple[tuple[float, ...], int, bool]:
    """Return the losses, how many a checkpoint brought, and whether the run was interrupted."""
    same = _same(question, layout, trainer.program.model)
    losses: list[float] = []
    if question.folder is not None:
        found = resume(question.folder, trainer, same)
        losses += found or ()
        if found is None:
            # A folder that cannot be written to is found out now, not after the first steps.
            save(question.folder, trainer, losses, same)
    resumed = len(losses)
    while len(losses) < question.steps and not cancel():
        latest = f"loss {losses[-1]:.4f}" if losses else question.model
        progress(len(losses), question.steps, latest)
        losses.append(trainer.step())
        ends = len(losses) == question.steps or cancel()
        if question.folder is not None and (ends or len(losses) % question.save_every == 0):
            save(question.folder, trainer, losses, same)
    interrupted = cancel()
    return tuple(losses), resumed, interrupted


def _same(
    question: FunctionalQuestion, layout: PartialLayout, model: Model
) -> Mapping[str, object]:
    """Return the inputs that must equal those of the run whose checkpoint is resumed.

    A name may stand for another model by then: a digest of its shapes goes with it.
    """
    shapes = repr((model.transformer, model.vocabulary, model.head))
    digest = sha256(shapes.encode()).hexdigest()[:_DIGITS]
    given = {"model": f"{model.name} ({digest})", "seed": question.seed, "task": TASK}
    return {**given, **layout.plain, **asdict(AdamW())}


# After the last step


def _rate(catalog: Catalog, setup: TrainSetup) -> tuple[float | None, str | None]:
    """Return USD per hour of all instances on demand, and where; None without a price."""
    offers = load_offers(
        catalog, setup.platform.instance, PriceTerms(on=_NEWEST, options=("on-demand",))
    )
    if not offers.tariffs:
        return None, None
    tariff = offers.tariffs[0]
    return tariff.usd_per_hour * setup.nodes, tariff.region


def _flop(trainer: Trainer, steps: int) -> tuple[FormatFlop, ...]:
    said, done = program_flop(trainer.program), trainer.book.flop
    return tuple(
        FormatFlop(
            number_format=name, flop=done.get(name, 0), program_flop=steps * said.get(name, 0)
        )
        for name in sorted({*said, *done})
    )


def _held(setup: TrainSetup, trainer: Trainer) -> tuple[StageHeld, ...]:
    """Return the memory of the first stage of each class, beside the model's."""
    model = memory(trainer.program, setup.platform, fragmentation_ratio=0.0)
    held = []
    for of_class, said in zip(trainer.program.stages, model.stages, strict=True):
        if not int(of_class.multiplicity):
            continue
        residency = trainer.stages[int(of_class.index)].residency
        held.append(
            StageHeld(
                role=of_class.role,
                by_category=dict(residency.by_category.items()),
                model_by_category={name: float(n) for name, n in said.by_category.items()},
                peak_bytes=residency.peak_bytes,
            )
        )
    return tuple(held)
