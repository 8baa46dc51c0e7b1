"""Which of a chip's number formats stands for one that a recipe names."""

from __future__ import annotations

from trnbench.spec.chip import Chip


def format_on(chip: Chip, number_format: str) -> str:
    """Return the chip's own kind of a format; one that it has no kind of comes back as it is.

    An 8-bit `fp8_e4m3` is IEEE-like on some chips and finite-only (`fp8_e4m3fn`) on others.
    """
    if number_format in chip.formats:
        return number_format
    return next((own for own in chip.formats if own.startswith(number_format)), number_format)
