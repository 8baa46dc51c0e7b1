"""Options that several verbs are asked, each written once."""

from __future__ import annotations

from typing import Any

from trnbench.verbs.asking import option
from trnbench.written import engine_text

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
