"""Values of options that are one of a few names, and the setting that options of a layout make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, get_args

from trnbench.parsing import one_of

if TYPE_CHECKING:
    from trnbench.answers.train import Setting


def literal(option: str, text: str | None, choices: object) -> str | None:
    """Return one of a Literal's values; no text is None."""
    return None if text is None else one_of(option, get_args(choices))(text)


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
        recompute=cast("Recompute | None", literal("recompute", recompute, Recompute)),
        schedule=cast("Schedule | None", literal("schedule", schedule, Schedule)),
        attention=cast("AttentionKernel | None", literal("attention", attention, AttentionKernel)),
        context_parallel=cast(
            "ContextParallel | None",
            literal("context-parallel", context_parallel, ContextParallel),
        ),
        capacity_factor=capacity_factor,
        precision=None if precision is None else recipe_named(precision).name,
    )
