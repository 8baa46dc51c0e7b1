"""The launch use case: the files that start a layout, with what was predicted of it."""

from __future__ import annotations

from trnbench import __version__
from trnbench.facts.calibration.stack_of import Stacks
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.hardware.library import load_platform, load_reliability
from trnbench.facts.records import Record, replace
from trnbench.facts.units import DAY_S, Dimension, show
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.launch.catalogue import (
    SCHEDULERS,
    framework_for,
    frameworks_on,
    pair_reasons,
    schedulers_on,
)
from trnbench.launch.folder import LaunchFolder, launch_folder
from trnbench.launch.plan import LaunchPlan
from trnbench.launch.software import Framework, Scheduler
from trnbench.money.checkpoint import checkpoint_bytes
from trnbench.money.failures import derived, operations_of, ranged
from trnbench.money.goodput import goodput
from trnbench.predict.compile_time import compile_s
from trnbench.predict.setup import TrainSetup, train_setup
from trnbench.show.row import Row, cells
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.launch.question import LaunchQuestion
from trnbench.verbs.train.answer import TrainAnswer
from trnbench.verbs.train.step_answers import blank_answer, step_answers


class Launched(Record, eq=False):
    """A folder of files; None where the answer is no, for the reasons of `step`."""

    step: TrainAnswer
    framework: Framework
    scheduler: Scheduler
    checkpoint_interval_s: float | None = None
    compile_s: float | None = None
    folder: LaunchFolder | None = None

    @property
    def feasible(self) -> bool:
        return self.folder is not None

    def refused(self, reasons: tuple[str, ...]) -> Launched:
        return replace(self, folder=None, step=replace(self.step, reasons=reasons))

    def row(self) -> Row:
        how = "framework=framework.name scheduler=scheduler.name checkpoint_interval_s compile_s"
        return {**self.step.row(), **cells(self, how)}


BLOCK = "capacity-block"
_OPEN_END_S = 30 * DAY_S
"""A run whose length nobody said is this long, as far as its checkpoints are concerned."""


def run(catalog: Catalog, question: LaunchQuestion, *, progress: Progress = quiet) -> Launched:
    """Return the files that start a model on a cluster, and what is predicted of its steps.

    Without any files where something says no. `stack` is a training framework, or a calibrated
    stack that one stands for, `scheduler` what starts it; `trnbench.verbs.launch.run.pairs` lists
    them. Knobs that are not given are chosen: the fastest layout that fits.

    >>> from trnbench.verbs.launch.run import launch
    >>> ran = launch("llama3.1-8b", on="trn1.32xlarge:4", stack="nxdt", scheduler="slurm", tp=32)
    >>> "job.sbatch" in ran.folder.texts
    True
    """
    scheduler, platform = SCHEDULERS[question.scheduler], load_platform(catalog, question.instance)
    framework = framework_for(catalog, platform, question.stack, _job(question.layout))
    reasons = tuple(pair_reasons(catalog, platform, framework, scheduler))
    # In the framework's words, before its stack says so in others.
    reasons = reasons or tuple(framework.conflicts(question.layout))
    stack = None if reasons else Stacks(catalog).by_name(question.stack, platform).stack
    setup = train_setup(
        catalog,
        question.model,
        platform,
        question.nodes,
        stack=stack,
        logical_size=question.logical_size,
    )
    layout = framework.settled(question.layout)
    if reasons:
        step = blank_answer(setup, layout, ())
    else:
        (step,) = step_answers(setup, layout, progress=progress)
    launched = Launched(step=step, framework=framework, scheduler=scheduler)
    if reasons or step.step is None:
        return launched.refused(reasons or step.reasons)
    plan = _plan(catalog, setup, step, question)
    reasons = (*framework.reasons(plan), *scheduler.refusals(plan))
    if reasons:
        return launched.refused(reasons)
    return Launched(
        step=step,
        framework=framework,
        scheduler=scheduler,
        checkpoint_interval_s=plan.checkpoint_interval_s,
        compile_s=plan.compile_s.value if framework.compiler else None,
        folder=launch_folder(
            plan, framework, scheduler, version=__version__, predicted=_in_words(step)
        ),
    )


launch = verb_of("launch", LaunchQuestion, run)


def _job(layout: PartialLayout) -> str | None:
    job = layout["job"]
    return None if job is None else str(job)


def _plan(
    catalog: Catalog, setup: TrainSetup, step: TrainAnswer, question: LaunchQuestion
) -> LaunchPlan:
    assert step.step is not None
    reliability = load_reliability(catalog, setup.platform.chip.name)
    layout, steps = step.layout.complete(), question.steps
    if question.tokens is not None:
        steps = max(1, round(question.tokens / float(layout.global_batch * layout.sample_tokens)))
    work_s = _OPEN_END_S if steps is None else steps * step.step.step_time_s
    interval_s = question.checkpoint_interval_s
    if interval_s is None:
        best = goodput(
            operations_of(reliability, setup.platform.instance),
            work_s=work_s,
            nodes=setup.nodes,
            checkpoint_bytes=checkpoint_bytes(setup.model, step.layout),
            ranges=False,
        )
        interval_s = float(best.interval_s)
    return LaunchPlan(
        model=setup.model,
        platform=setup.platform,
        nodes=setup.nodes,
        reserved=_reserved(setup.platform.instance, question.purchase),
        logical_size=setup.logical_size,
        layout=layout,
        step_time_s=step.step.step_time_s,
        checkpoint_interval_s=interval_s,
        compile_s=derived(*cold)
        if (cold := compile_s(setup, [layout]))
        else ranged(reliability.compile_s, reliability.provenance, "compile"),
        steps=steps,
        date=question.date,
    )


def _reserved(instance: Instance, purchase: str | None) -> bool:
    """Tell whether machines come out of a Capacity Block: if so said, or not sold on demand."""
    if purchase is not None:
        return purchase == BLOCK
    return BLOCK in instance.purchase and "on-demand" not in instance.purchase


def _in_words(step: TrainAnswer) -> tuple[tuple[str, str], ...]:
    """Return the prediction as titles and texts."""
    figures, memory = step.step, step.memory
    assert figures is not None
    assert memory is not None

    def seconds(value: float) -> str:
        return show(value, Dimension.SECONDS, digits=4)

    ends = f"{seconds(figures.low_step_time_s)} to {seconds(figures.high_step_time_s)}"
    rows = [("step", f"{seconds(figures.step_time_s)} (80 % interval {ends})")]
    each = step.tokens_per_sample
    if each:
        slow, fast = figures.high_step_time_s, figures.low_step_time_s
        per_s = [step.per_s(time_s, each) for time_s in (figures.step_time_s, slow, fast)]
        rows.append(("tokens/s", f"{per_s[0]:,.0f} ({per_s[1]:,.0f} to {per_s[2]:,.0f})"))
    held, room = (
        show(value, Dimension.BYTES, digits=3)
        for value in (memory.total_bytes, memory.available_bytes)
    )
    sure = f"fits with a probability of {memory.fit_probability:.0%}"
    return (
        *rows,
        ("memory of a rank", f"{held} of {room}; {sure}"),
        ("training stack", f"{step.software}; its speed is {step.basis}"),
    )


def pairs(catalog: Catalog, instances: tuple[str, ...] = ()) -> tuple[Row, ...]:
    """Rows of frameworks on instances, with the schedulers that can start them."""
    platforms = [
        load_platform(catalog, name)
        for name in instances or [entry.name for entry in catalog.entries("instances")]
    ]
    return tuple(
        {
            "instance": platform.instance.name,
            "framework": framework.name,
            "schedulers": tuple(scheduler.name for scheduler in schedulers_on(platform)),
            **cells(framework, "jobs versions"),
        }
        for platform in platforms
        for framework in frameworks_on(catalog, platform)
    )
