"""What is asked of the training use case: models on clusters, in layouts given or left open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.errors import InputError
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, fields
from trnbench.facts.workload.library import load_training_suite
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.step import Playing

if TYPE_CHECKING:
    from trnbench.app.run_request import RunRequest
    from trnbench.engines.emulate.schedule.disturbance import Straggler


BUYING = ("purchase", "region", "discount", "prices", "assumed_prices")
"""How a run is bought, beside the day of its prices."""


class TrainCase(Record):
    """A model on so many instances; what its layout leaves open is chosen."""

    model: str
    instance: str
    nodes: int
    layout: PartialLayout
    label: str = ""


class TrainRequest(Record):
    """What to answer: every case by every engine.

    `assume_supported`: what a stack refuses is predicted as if it ran. `seed` draws how late nodes
    are in a played step; without one all are as late as is expected of the slowest. `timeline`:
    keep what was played, for a chart or a trace; takes a single case, as `memory` does: what the
    worst rank holds, slot by slot. `config`: the file that says knobs of the one case. `runs`: the
    run of each case, where its length is given; then all parts of it are answered.
    """

    cases: tuple[TrainCase, ...]
    suite: str | None = None
    config: str | None = None
    engines: tuple[str, ...] = ("analytic",)
    stack: str | None = None
    logical_size: int | None = None
    assume_supported: bool = False
    seed: int | None = None
    stragglers: tuple[Straggler, ...] = ()
    timeline: bool = False
    memory: bool = False
    runs: tuple[RunRequest, ...] = ()

    def __post_init__(self) -> None:
        """Refuse to play one step of a run of which parts are asked."""
        shown = self.timeline or self.memory or self.seed is not None or self.stragglers
        if self.runs and shown:
            raise InputError(
                "a run has a step for each part: leave out --plot, --trace, --memory, --seed and "
                "--straggler, or --tokens and --phase"
            )

    @property
    def playing(self) -> Playing | None:
        """How the steps are to be played; None where the closed form is enough."""
        shown = self.timeline or self.memory
        if not shown and "emulate" not in self.engines:
            return None
        return Playing(seed=self.seed, stragglers=self.stragglers, timeline=shown)


def suite_cases(catalog: Catalog, name: str) -> tuple[TrainCase, ...]:
    """Return the cases of a training suite."""
    return tuple(
        TrainCase(
            label=case.label,
            model=case.model,
            instance=case.instance,
            nodes=case.nodes,
            layout=PartialLayout.of(case.layout),
        )
        for case in load_training_suite(catalog, name).case
    )


def inputs_of(request: TrainRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    plain = {one.name: getattr(request, one.name) for one in fields(request) if one.name != "runs"}
    return (
        plain
        | _run_inputs(request.runs)
        | {
            "cases": [
                {
                    "case": case.label or None,
                    "model": case.model,
                    "on": f"{case.instance}:{case.nodes}",
                    **case.layout.said,
                }
                for case in request.cases
            ],
            "stragglers": [f"{one.stage}={one.factor:g}" for one in request.stragglers],
        }
    )


def _run_inputs(runs: tuple[RunRequest, ...]) -> dict[str, object]:
    """Return what is asked of the runs; all have the same parts, and are bought alike."""
    if not runs:
        return {}
    from trnbench.app.run_parts import shown_part

    first = runs[0]
    return {
        "parts": [shown_part(part) for part in first.parts],
        "price_date": first.price_date.isoformat(),
        **{name: getattr(first, name) for name in BUYING},
    }
