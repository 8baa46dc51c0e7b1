"""The launch use case: the files that start a layout, with what was predicted of it."""

from __future__ import annotations

import datetime
from typing import Any, Literal

from trnbench import __version__
from trnbench.answers.launch import Launched, LaunchPair
from trnbench.answers.train import TrainAnswer
from trnbench.app.knobs import layout_of
from trnbench.app.settled_steps import blank_answer
from trnbench.app.step_answers import step_answers
from trnbench.app.use_case import Progress, answered_by, quiet, takes_options_of
from trnbench.errors import InputError, UnknownNameError
from trnbench.facts import parsing
from trnbench.facts.calibration.stack_of import Stacks
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.hardware.library import load_platform, load_reliability
from trnbench.facts.parsing import clusters, literal, maybe
from trnbench.facts.records import Record
from trnbench.facts.units import DAY_S, Dimension, show
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.launch.catalogue import (
    SCHEDULERS,
    framework_for,
    frameworks_on,
    pair_reasons,
    schedulers_on,
)
from trnbench.launch.folder import launch_folder
from trnbench.launch.plan import LaunchPlan
from trnbench.money.checkpoint import checkpoint_bytes
from trnbench.money.failures import operations_of, ranged
from trnbench.money.goodput import goodput
from trnbench.predict.setup import TrainSetup, train_setup

MachinesFrom = Literal["on-demand", "capacity-block"]
BLOCK = "capacity-block"
_OPEN_END_S = 30 * DAY_S
"""A run whose length nobody said is this long, as far as its checkpoints are concerned."""


class LaunchRequest(Record):
    """A step to be started; what its layout leaves open is chosen.

    `checkpoint_interval_s` replaces the best, `tokens` or `steps` say how long the run is.
    """

    model: str
    instance: str
    nodes: int
    stack: str
    scheduler: str
    layout: PartialLayout
    logical_size: int | None = None
    purchase: str | None = None
    tokens: float | None = None
    steps: int | None = None
    checkpoint_interval_s: float | None = None
    date: datetime.date


def run(catalog: Catalog, request: LaunchRequest, *, progress: Progress = quiet) -> Launched:
    """Return the files; without any where something says no."""
    scheduler, platform = SCHEDULERS[request.scheduler], load_platform(catalog, request.instance)
    framework = framework_for(catalog, platform, request.stack, _job(request.layout))
    reasons = tuple(pair_reasons(platform, framework, scheduler))
    # In the framework's words, before its stack says so in others.
    reasons = reasons or tuple(framework.conflicts(request.layout))
    stack = None if reasons else Stacks(catalog).by_name(request.stack, platform).stack
    setup = train_setup(
        catalog,
        request.model,
        platform,
        request.nodes,
        stack=stack,
        logical_size=request.logical_size,
    )
    layout = framework.settled(request.layout)
    if reasons:
        step = blank_answer(setup, layout, ())
    else:
        (step,) = step_answers(setup, layout, progress=progress)
    found = Launched(step=step, framework=framework, scheduler=scheduler)
    if reasons or step.step is None:
        return found.refused(reasons or step.reasons)
    plan = _plan(catalog, setup, step, request)
    reasons = (*framework.reasons(plan), *scheduler.refusals(plan))
    if reasons:
        return found.refused(reasons)
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


def _job(layout: PartialLayout) -> str | None:
    job = layout["job"]
    return None if job is None else str(job)


def _plan(
    catalog: Catalog, setup: TrainSetup, step: TrainAnswer, request: LaunchRequest
) -> LaunchPlan:
    assert step.step is not None
    reliability = load_reliability(catalog, setup.platform.chip.name)
    layout, steps = step.layout.complete(), request.steps
    if request.tokens is not None:
        steps = max(1, round(request.tokens / float(layout.global_batch * layout.sample_tokens)))
    work_s = _OPEN_END_S if steps is None else steps * step.step.step_time_s
    interval_s = request.checkpoint_interval_s
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
        reserved=_reserved(setup.platform.instance, request.purchase),
        logical_size=setup.logical_size,
        layout=layout,
        step_time_s=step.step.step_time_s,
        checkpoint_interval_s=interval_s,
        compile_s=ranged(reliability.compile_s, reliability.provenance, "compile"),
        steps=steps,
        date=request.date,
    )


def _reserved(instance: Instance, purchase: str | None) -> bool:
    """Tell whether machines come out of a Capacity Block: if so said, or not sold on demand."""
    if purchase is not None:
        return purchase == BLOCK
    return BLOCK in instance.purchase and "on-demand" not in instance.purchase


def _in_words(step: TrainAnswer) -> tuple[tuple[str, str], ...]:
    """Return what was predicted, for people."""
    known, memory = step.step, step.memory
    assert known is not None
    assert memory is not None

    def seconds(value: float) -> str:
        return show(value, Dimension.SECONDS, digits=4)

    ends = f"{seconds(known.low_step_time_s)} to {seconds(known.high_step_time_s)}"
    rows = [("step", f"{seconds(known.step_time_s)} (80 % interval {ends})")]
    each = step.tokens_per_sample
    if each:
        slow, fast = known.high_step_time_s, known.low_step_time_s
        per_s = [step.per_s(time_s, each) for time_s in (known.step_time_s, slow, fast)]
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


@answered_by(run)
@takes_options_of(layout_of)
def launch(
    model: str,
    *,
    on: str,
    stack: str,
    scheduler: str,
    lnc: int | str | None = None,
    purchase: MachinesFrom | None = None,
    tokens: float | str | None = None,
    steps: int | str | None = None,
    checkpoint_interval: float | str | None = None,
    date: datetime.date | str | None = None,
    catalog: Catalog | None = None,
    progress: Progress = quiet,
    **knobs: Any,  # noqa: ANN401
) -> LaunchRequest:
    """Return the files that start a model on a cluster, and what is predicted of its steps.

    `stack` is a training framework, or a calibrated stack that one stands for, `scheduler` what
    starts it; `trnbench.app.verbs.launch.pairs` lists them. `purchase` is on-demand or
    capacity-block: where the machines come from. Knobs that are not given are chosen: the fastest
    layout that fits.

    >>> from trnbench.app import launch
    >>> ran = launch("llama3.1-8b", on="trn1.32xlarge:4", stack="nxdt", scheduler="slurm", tp=32)
    >>> "job.sbatch" in ran.folder.texts
    True
    """
    if scheduler not in SCHEDULERS:
        raise UnknownNameError("scheduler", scheduler, SCHEDULERS)
    if tokens is not None and steps is not None:
        raise InputError("--tokens and --steps both say how long the run is; give one of them")
    where = clusters(on)
    if len(where) != 1:
        raise InputError("--on: a job runs on one cluster, INSTANCE:NODES")
    return LaunchRequest(
        model=model,
        instance=where[0][0],
        nodes=where[0][1],
        stack=stack,
        scheduler=scheduler,
        layout=layout_of(**knobs),
        logical_size=maybe(parsing.whole("--lnc"), lnc),
        purchase=None if purchase is None else literal("purchase", purchase, MachinesFrom),
        tokens=maybe(parsing.count("--tokens"), tokens),
        steps=maybe(parsing.whole("--steps"), steps),
        checkpoint_interval_s=maybe(parsing.duration("--checkpoint-interval"), checkpoint_interval),
        date=maybe(parsing.date("--date"), date) or datetime.date.today(),
    )


def pairs(catalog: Catalog, instances: tuple[str, ...] = ()) -> tuple[LaunchPair, ...]:
    """Return which frameworks start on which instances, with the schedulers that can."""
    found = []
    for name in instances or tuple(entry.name for entry in catalog.entries("instances")):
        platform = load_platform(catalog, name)
        can = tuple(one.name for one in schedulers_on(platform))
        found += [
            LaunchPair(
                instance=platform.instance.name,
                framework=one.name,
                versions=one.versions,
                schedulers=can,
                jobs=one.jobs,
            )
            for one in frameworks_on(platform)
        ]
    return tuple(found)


def inputs_of(request: LaunchRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    return {
        "model": request.model,
        "on": f"{request.instance}:{request.nodes}",
        "stack": request.stack,
        "with": request.scheduler,
        **request.layout.plain,
        **request.layout.said,
        "lnc": request.logical_size,
        "purchase": request.purchase,
        "tokens": request.tokens,
        "steps": request.steps,
        "checkpoint_interval_s": request.checkpoint_interval_s,
    }
