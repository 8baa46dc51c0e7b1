"""Question of `study`: a file, its workers, and how its cells are looked at."""

from __future__ import annotations

from functools import partial
from typing import Any

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.verbs.asking.question import Question, option

_FILE: Any = option(
    "A study file, or the name of a shipped one.",
    metavar="FILE",
    argument=True,
    required=True,
    completes=("studies",),
)


class StudyEffort(Question):
    """Workers of a study: local `workers`, or those of a Dask `scheduler`.

    `retry`: cells that failed before are asked again. `confirmed`: however many there are.
    """

    file: str = _FILE
    workers: int | None = option(
        "Processes on this machine; default: one for each processor.",
        read=partial(parsing.whole, most=1024),
    )
    scheduler: str | None = option(
        "Instead: the workers of a Dask cluster, tcp://...", metavar="ADDRESS"
    )
    retry: bool = option("Try failed cells again.")
    confirmed: bool = option("Run more than 100,000 cells without asking first.", name="yes")
    no_keep: bool = option("Keep neither cells nor answer: it cannot go on.")
    tag: str | None = option("Keep the answer under this name.", read=parsing.short_text)


class StudyView(Question):
    """View of a study: a figure over two axes, or the best of a figure by an axis."""

    file: str = _FILE
    rows: str | None = option("A pivot: this axis down.", metavar="AXIS")
    columns: str | None = option("A pivot: this axis across.", metavar="AXIS")
    figure: str | None = option("A pivot: of this figure, step_time_s.", metavar="KEY")
    best: str | None = option("Only the row that is best in this figure.", metavar="KEY")
    by: str | None = option("With --best: one for each of this axis.", metavar="AXIS")
    plot: bool = option("Shade the pivot as a heat map.")

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        if (self.rows is None) != (self.columns is None):
            raise InputError("a pivot has --rows and --columns, an axis each")
        if self.rows is not None and self.figure is None:
            raise InputError("a pivot shows one figure: --figure step_time_s")
        if self.figure is not None and self.rows is None:
            raise InputError("--figure needs the axes of a pivot: --rows and --columns")
        if self.by is not None and self.best is None:
            raise InputError("--by groups what is the best: give --best FIGURE")
        if self.best is not None and self.rows is not None:
            raise InputError("give a pivot or --best, one of the two")
