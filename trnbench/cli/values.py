"""Values of options that are one of a few names."""

from __future__ import annotations

from typing import get_args

from trnbench.parsing import one_of


def literal(option: str, text: str | None, choices: object) -> str | None:
    """Return one of a Literal's values; no text is None."""
    return None if text is None else one_of(option, get_args(choices))(text)
