"""What is asked of the training use case: models on clusters, in layouts given or left open."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from trnbench.catalog.search import Catalog
from trnbench.predict.step import Playing
from trnbench.workload.library import load_training_suite
from trnbench.workload.partial_layout import PartialLayout

if TYPE_CHECKING:
    from trnbench.emulate.schedule.disturbance import Straggler


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainCase:
    """A model on so many instances; what its layout leaves open is chosen."""

    model: str
    instance: str
    nodes: int
    layout: PartialLayout
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """What to answer: every case by every engine.

    `seed` draws how late nodes are in a played step; without one all are as late as is expected of
    the slowest. `timeline`: keep what was played, for a chart or a trace; takes a single case.
    """

    cases: tuple[TrainCase, ...]
    suite: str | None = None
    engines: tuple[str, ...] = ("analytic",)
    stack: str | None = None
    logical_size: int | None = None
    seed: int | None = None
    stragglers: tuple[Straggler, ...] = ()
    timeline: bool = False

    @property
    def playing(self) -> Playing | None:
        """How the steps are to be played; None where the closed form is enough."""
        if not self.timeline and "emulate" not in self.engines:
            return None
        return Playing(seed=self.seed, stragglers=self.stragglers, timeline=self.timeline)


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
    plain = {one.name: getattr(request, one.name) for one in fields(request)}
    return plain | {
        "cases": [
            {
                "case": case.label or None,
                "model": case.model,
                "on": f"{case.instance}:{case.nodes}",
                **case.layout.given,
            }
            for case in request.cases
        ],
        "stragglers": [f"{one.stage}={one.factor:g}" for one in request.stragglers],
    }
