"""The training use case: what steps of models on clusters take and hold, and how sure that is."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnbench.answers.train import TrainAnswer
from trnbench.app.knobs import layout_of
from trnbench.app.step_answers import step_answers
from trnbench.app.train_request import TrainCase, TrainRequest, suite_cases
from trnbench.app.use_case import (
    Engine,
    Progress,
    answered_by,
    engines_of,
    quiet,
    takes_options_of,
)
from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.facts.catalog.search import Catalog, open_catalog
from trnbench.facts.parsing import clusters, maybe
from trnbench.facts.records import replace
from trnbench.facts.units import Dimension
from trnbench.predict.setup import TrainSetup, train_setup
from trnbench.program.step import training_step

if TYPE_CHECKING:
    from trnbench.app.run_request import RunRequest
    from trnbench.engines.emulate.schedule.disturbance import Straggler

_STRAGGLER = re.compile(r"(\d{1,6})=(.+)")


def run(
    catalog: Catalog,
    request: TrainRequest,
    *,
    progress: Progress = quiet,
) -> tuple[TrainAnswer, ...]:
    """Return the answers, case by case.

    `progress` hears of each case before it starts, and of layouts searched for one.
    """
    if request.runs:
        from trnbench.app.train_run import quotes_of_runs

        runs = quotes_of_runs(catalog, request, progress=progress)
        return tuple(step for one in runs for step in one.steps)
    if (request.timeline or request.memory) and len(request.cases) != 1:
        raise InputError("a chart, a trace or --memory shows one step: give one model on one place")
    answers: list[TrainAnswer] = []
    for number, case in enumerate(request.cases):
        what = case.label or f"{case.model} on {case.instance}:{case.nodes}"
        progress(number, len(request.cases), what)
        setup = train_setup(
            catalog,
            case.model,
            case.instance,
            case.nodes,
            stack=request.stack,
            logical_size=request.logical_size,
            assume_supported=request.assume_supported,
        )
        found = step_answers(
            setup, case.layout, request.engines, playing=request.playing, progress=progress
        )
        if request.memory:
            found = tuple(_with_memory(setup, answer) for answer in found)
        answers += [replace(answer, label=case.label) for answer in found]
    return tuple(answers)


def _with_memory(setup: TrainSetup, answer: TrainAnswer) -> TrainAnswer:
    """Return an answer with what the worst rank holds, slot by slot, if its layout is legal."""
    if answer.memory is None:
        return answer
    from trnbench.engines.analytic.step.memory_timeline import memory_timeline

    held = memory_timeline(
        training_step(setup.model, answer.layout.complete()),
        setup.stack.memory,
        setup.stack.fragmentation,
    )
    return replace(answer, memory_timeline=held)


@answered_by(run)
@takes_options_of(layout_of)
def train(
    model: str | None = None,
    *,
    on: str | Sequence[str] = (),
    suite: str | None = None,
    config: str | Path | None = None,
    tokens: float | str | None = None,
    samples: float | str | None = None,
    phase: str | Sequence[str] = (),
    purchase: str | Sequence[str] = (),
    region: str | None = None,
    price_date: datetime.date | str | None = None,
    discount: float | str | None = None,
    price: str | Sequence[str] = (),
    assume_price: str | Sequence[str] = (),
    stack: str | None = None,
    lnc: int | str | None = None,
    assume_supported: bool = False,
    engine: Engine = "analytic",
    seed: int | None = None,
    straggler: str | Sequence[str] = (),
    trace: bool = False,
    memory: bool = False,
    catalog: Catalog | None = None,
    progress: Progress = quiet,
    **knobs: Any,  # noqa: ANN401
) -> TrainRequest:
    """Return what one training step takes and holds, one answer for each place and engine.

    Knobs that are not given are chosen: the fastest layout that fits. `config` is a file, or a
    folder, of a training framework or Slurm that says knobs, and hosts: those given beside it win.
    A `suite` brings models, places and layouts. With `tokens`, `samples` or `phase`s a whole run is
    answered, a step for each of its parts with their days and bill (`answer.part`), bought as
    `purchase` to `assume_price` say. `assume_supported` predicts what the stack's software refuses
    as if it ran. `trace` keeps what was played, `memory` tells what the worst rank holds slot by
    slot (`answer.memory_timeline`). `trnbench.app.train_functional` trains with real numbers.

    >>> from trnbench import train
    >>> (answer,) = train("llama2-7b", on="trn1.32xlarge:4", tp=8, pp=1, zero=1)
    >>> answer.feasible
    True
    """
    if (model is None) == (suite is None):
        raise InputError("give a model (such as llama3.1-8b) or --suite NAME, one of the two")
    if engine == "analytic" and (seed is not None or straggler):
        option = "--straggler" if straggler else "--seed"
        raise InputError(f"{option} acts on the played schedule; it needs --engine emulate or both")
    if seed is not None and seed < 0:
        raise InputError("--seed must not be negative")
    layout = layout_of(**knobs)
    if suite is not None:
        if on or lnc is not None or layout.said or config is not None:
            raise InputError("a suite brings its own places and layouts; leave out --on and these")
        cases = suite_cases(catalog or open_catalog(), suite)
    elif not on:
        raise InputError("on which instance? e.g. --on trn1.32xlarge:32")
    elif config is not None:
        from trnbench.app.configured import configured_case

        cases = (configured_case(catalog or open_catalog(), model or "", on, Path(config), layout),)
    else:
        cases = tuple(
            TrainCase(model=model or "", instance=instance, nodes=nodes, layout=layout)
            for instance, nodes in clusters(on)
        )
    buying = {
        "purchase": purchase,
        "region": region,
        "price_date": price_date,
        "discount": discount,
        "price": price,
        "assume_price": assume_price,
    }
    runs: tuple[RunRequest, ...] = ()
    length = {"tokens": tokens, "samples": samples, "phase": phase}
    if any(one not in (None, ()) for one in length.values()):
        if suite is not None:
            raise InputError("a suite has steps, no runs; leave out --tokens and --phase")
        same = {"stack": stack, "lnc": lnc, "assume_supported": assume_supported}
        asked = {**length, "catalog": catalog, **buying, **same}
        runs = _runs(cases, asked)
    elif bought := next((name for name, value in buying.items() if value), None):
        option = bought.replace("_", "-")
        raise InputError(f"--{option} is for the bill of a run: give --tokens or --phase too")
    return TrainRequest(
        cases=cases,
        runs=runs,
        suite=suite,
        config=None if config is None else str(config),
        engines=engines_of(engine),
        stack=stack,
        logical_size=maybe(parsing.whole("--lnc"), lnc),
        assume_supported=assume_supported,
        seed=seed,
        stragglers=tuple(_straggler(text) for text in parsing.texts(straggler)),
        timeline=trace,
        memory=memory,
    )


def _runs(cases: Sequence[TrainCase], asked: Mapping[str, Any]) -> tuple[RunRequest, ...]:
    """Return the run of each case; prices may be of the instance of any."""
    from trnbench.app.run_request import run_request

    names = tuple(dict.fromkeys(case.instance for case in cases))
    runs = []
    for case in cases:
        options = {**asked, **case.layout.said, "on": names, "nodes": case.nodes}
        runs.append(run_request(case.model, **options).but(instances=(case.instance,)))
    return tuple(runs)


def _straggler(text: str) -> Straggler:
    match = _STRAGGLER.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--straggler: cannot read {text!r}; write STAGE=FACTOR, such as 0=1.2")
    factor = parsing.quantity("--straggler", Dimension.RATIO)(match[2])
    from trnbench.engines.emulate.schedule.disturbance import Straggler

    return Straggler(stage=int(match[1]), factor=factor)
