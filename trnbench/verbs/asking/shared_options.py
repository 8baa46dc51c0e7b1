"""Options that several verbs are asked, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trnbench.facts.parsing import engine_text, share
from trnbench.verbs.asking.question import Question, option

ENGINES = ("analytic", "emulate", "both")


def _engines(text: str) -> tuple[str, ...]:
    return ENGINES[:2] if text == "both" else (text,)


def engine_option(help: str, *more: str) -> Any:  # noqa: ANN401 - the type of the field
    """Declare the choice of engines; `more` are others than the two and both."""
    return option(
        help,
        default=("analytic",),
        name="engine",
        choices=(*ENGINES, *more),
        parse=_engines,
        write=engine_text,
        several="one text",
    )


DETAILS: Any = option("Show layouts, rates, remarks and counts too.", default=False)
"""Whether people see all of an answer."""


class AgainstKept(Question):
    """A kept answer that this one is held against."""

    against: str | None = option(
        "Beside a kept run: an id, a tag, or the JSON of an answer as a file.",
        default=None,
        metavar="RUN",
    )
    fail_over: float | None = option(
        "With --against: exit with 1 where a figure is worse by more: 5%; of errors: points.",
        default=None,
        read=share,
        metavar="SHARE",
    )


class PathsQuestion(Question):
    """Data files to check, and folders of such."""

    paths: tuple[Path, ...] = option(
        "Files or folders.",
        default=(),
        metavar="PATH...",
        argument=True,
        required=True,
        several="repeated",
    )
