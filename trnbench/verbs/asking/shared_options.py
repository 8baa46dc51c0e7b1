"""Options that several verbs are asked, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnbench.errors import InputError
from trnbench.facts.parsing import engine_text, share
from trnbench.verbs.asking.question import Question, option

if TYPE_CHECKING:
    from trnbench.show.report import Report

ENGINES = ("analytic", "emulate", "both")


def engine_option(help: str, *more: str) -> Any:  # noqa: ANN401 - the type of the field
    """Declare the choice of engines; `more` are others than the two and both."""
    return option(
        help,
        default=("analytic",),
        name="engine",
        choices=(*ENGINES, *more),
        parse=lambda text: ENGINES[:2] if text == "both" else (text,),
        write=engine_text,
        several="one text",
    )


DETAILS: Any = option("Show layouts, rates, remarks and counts too.")
"""True when people see all of an answer."""


class AgainstKept(Question):
    """A kept answer that this one is held against."""

    against: str | None = option(
        "Compare with a kept run: an id, a tag, or the JSON of an answer as a file.", metavar="RUN"
    )
    fail_over: float | None = option(
        "With --against: exit with 1 where a figure is worse by more: 5%; of errors: points.",
        read=share,
    )

    def __post_init__(self) -> None:
        """Refuse a limit that nothing is held to."""
        if self.fail_over is not None and self.against is None:
            raise InputError("--fail-over needs --against: a kept run, or the JSON of an answer")

    def beside(self, report: Report) -> tuple[Report, bool]:
        """The report beside the kept answer, and whether it got worse than allowed."""
        if self.against is None:
            return report, False
        from trnbench.verbs.runs.diff_text import compared_with

        return compared_with(report, self.against, self.fail_over)


class PathsQuestion(Question):
    """Data files to check, and folders of such."""

    paths: tuple[Path, ...] = option(
        "Files or folders.", metavar="PATH...", argument=True, required=True, several="repeated"
    )
