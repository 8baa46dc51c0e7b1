"""Values of options: text into numbers and names; what is malformed names its option."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast, get_args

from trnbench.errors import InputError, UnitError, UnknownNameError
from trnbench.units import Dimension, parse

if TYPE_CHECKING:
    from trnbench.answers.train import Setting


def one_of(option: str, text: str | None, choices: object) -> str | None:
    """Return what is one of a Literal's values; another is an input error."""
    known = get_args(choices)
    if text is not None and text not in known:
        raise UnknownNameError(option, text, known)
    return text


def positive(option: str, value: float | None) -> float | None:
    """Return a number that is above 0 and finite, or None if none was given."""
    if value is not None and not 0 < value < math.inf:
        raise InputError(f"{option} must be a positive number, found {value}")
    return value


def quantity(option: str, text: str, dimension: Dimension) -> float:
    """Return a quantity in base units."""
    try:
        return parse(text, dimension)
    except UnitError as error:
        raise InputError(f"{option}: {error.message}") from None


def money(option: str, text: str) -> float:
    """Return a sum in USD: 5M, 5M USD or 5,000,000."""
    try:
        return parse(text, Dimension.COUNT)
    except UnitError:
        return quantity(option, text, Dimension.USD)


def whole(option: str, text: str) -> int:
    """Return a whole number."""
    digits = text.strip()
    if not (digits.isdecimal() and digits.isascii() and len(digits) < 12):
        raise InputError(f"{option}: {text!r} is not a whole number")
    return int(digits)


def setting_of(
    *,
    zero: int | None,
    recompute: str | None,
    schedule: str | None,
    attention: str | None,
    context_parallel: str | None,
    capacity_factor: float | None,
    precision: str | None,
    **degrees: Any,  # noqa: ANN401
) -> Setting:
    """Return what the options of a layout settle; a name that none has is an input error."""
    from trnbench.answers.train import Setting
    from trnbench.program.grid import ContextParallel
    from trnbench.program.precision import recipe_named
    from trnbench.workload.layout import AttentionKernel, Recompute, Schedule, ZeroStage

    return Setting(
        **degrees,
        zero=cast("ZeroStage | None", zero),
        recompute=cast("Recompute | None", one_of("recompute", recompute, Recompute)),
        schedule=cast("Schedule | None", one_of("schedule", schedule, Schedule)),
        attention=cast("AttentionKernel | None", one_of("attention", attention, AttentionKernel)),
        context_parallel=cast(
            "ContextParallel | None",
            one_of("context-parallel", context_parallel, ContextParallel),
        ),
        capacity_factor=positive("--capacity-factor", capacity_factor),
        precision=None if precision is None else recipe_named(precision).name,
    )
