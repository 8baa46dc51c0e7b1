"""Question of `validate`: measurements, of which sets, and what their files do not say."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from trnbench.errors import InputError
from trnbench.facts.parsing import quantity
from trnbench.facts.units import Dimension
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.verbs.asking.given_run import GivenPlace, GivenRun
from trnbench.verbs.asking.knobs import GIVEN_KNOBS
from trnbench.verbs.asking.question import Question, group, option
from trnbench.verbs.asking.shared_options import AgainstKept


class ValidateQuestion(Question):
    """Measurements, the shipped ones where no file is given, and the sets to look at.

    `place`, `layout` and `stack` are those of rows whose file does not say them.
    """

    evidence: tuple[Path, ...] = option(
        "A CSV file of measurements; what nccom-test or nccl-tests print; a log of steps; "
        "or a folder of these (repeatable); default: the shipped.",
        default=(),
        several="repeated",
        metavar="FILE",
    )
    sets: tuple[str, ...] = option(
        "trainium, gpu, collectives, kernels, attention, gpu-kernels, compile (repeatable); "
        "default: all.",
        default=(),
        name="set",
        several="repeated",
        metavar="NAME",
    )
    place: GivenPlace = group(GivenPlace)
    stack: str | None = option(
        "The training stack of rows whose software no stack names.",
        default=None,
        completes=("stacks",),
    )
    engine: Literal["analytic", "emulate"] = option(
        "analytic, or emulate: kernels and attention, each instruction played.", default="analytic"
    )
    layout: PartialLayout = group(GIVEN_KNOBS)

    def __post_init__(self) -> None:
        """Refuse cells of rows where no file lacks them."""
        if (self.given.cells or self.stack) and not self.evidence:
            raise InputError("--model, --on, --stack and knobs are for files given with --evidence")

    @property
    def given(self) -> GivenRun:
        """The cells that files lack."""
        return GivenRun(model=self.place.model, on=self.place.on, layout=self.layout)

    def inputs(self) -> dict[str, object]:
        """The question as plain data."""
        return {
            "evidence": [str(path) for path in self.evidence],
            "sets": self.sets,
            **self.place.inputs(),
            "layout": dict(self.layout.given),
            "stack": self.stack,
            "engine": self.engine,
        }


class ValidateShowing(Question):
    """Tables of the answer, and the errors that it is held to."""

    template: bool = option("Write the columns of measured steps, and no row.", default=False)
    fail_above: float | None = option(
        "Exit with 1 where a set's mean error is above, such as 15%.",
        default=None,
        read=lambda what: quantity(what, Dimension.RATIO),
        metavar="SHARE",
    )
    held: AgainstKept = group(AgainstKept)
    plot: bool = option("Draw predicted over measured.", default=False)
    details: bool = option(
        "Show every row and group of the shipped sets too, as --set NAME does.", default=False
    )
