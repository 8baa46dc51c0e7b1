"""The options that hold an answer against a kept one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.errors import InputError
from trnbench.facts.parsing import share

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.show.report import Report

Against = Annotated[
    str | None,
    typer.Option(
        metavar="RUN", help="Beside a kept run: an id, a tag, or the JSON of an answer as a file."
    ),
]
FailOver = Annotated[
    float | None,
    typer.Option(
        "--fail-over",
        parser=share("--fail-over"),
        metavar="SHARE",
        help="With --against: exit with 1 where a figure is worse by more: 5%; of errors: points.",
    ),
]


def refuse_limit_alone(against: str | None, fail_over: float | None) -> None:
    """Refuse a limit that nothing is held to."""
    if fail_over is not None and against is None:
        raise InputError("--fail-over needs --against: a kept run, or the JSON of an answer")


def write_against(
    out: Output, report: Report, against: str | None, fail_over: float | None
) -> bool:
    """Write a report, beside a kept run if one is named; tell whether it got worse than allowed."""
    regressed = False
    if against is not None:
        from trnbench.verbs.runs.against import compared_with

        report, regressed = compared_with(report, against, fail_over)
    out.write(report)
    return regressed
