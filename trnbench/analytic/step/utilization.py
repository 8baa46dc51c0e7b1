"""How much of the peak a step uses, by the three usual conventions.

MFU: FLOP the model needs (causal attention halved, nothing computed twice) over the tensor engines'
peak in the format of its matrix products. `mfu_headline`: the same over the rate that the vendor
states for that format. HFU: FLOP carried out, with recompute, copies and padding, over the peak.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.hardware.instance import Platform
from trnbench.program.points import Points
from trnbench.program.step import StepProgram


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Utilization:
    """Shares of the peak, by layout; not a number where there is no time, peak or stated rate."""

    mfu: FloatArray
    mfu_headline: FloatArray
    hfu: FloatArray


def utilization(
    program: StepProgram,
    platform: Platform,
    step_s: FloatArray,
    *,
    logical_size: int | None = None,
    points: Points | None = None,
) -> Utilization:
    """Return the utilization of steps that take so long, for all layouts or those at `points`."""
    chip = platform.chip

    def picked(values: FloatArray) -> FloatArray:
        return values if points is None else points.pick(values)

    number_format = chip.own_format(program.recipe.linear)
    known = number_format in chip.formats
    peak_flop_per_s = chip.peak_flop_per_s(number_format) if known else np.nan
    headline_flop_per_s = chip.headline_per_chip_flop_per_s.get(number_format, np.nan)
    chip_seconds = step_s * picked(program.grid.ranks("world")) / chip.ranks(logical_size)
    model_flop = picked(program.model_flop)
    return Utilization(
        mfu=np.asarray(model_flop / (chip_seconds * peak_flop_per_s)),
        mfu_headline=np.asarray(model_flop / (chip_seconds * headline_flop_per_s)),
        hfu=np.asarray(picked(program.hardware_flop) / (chip_seconds * peak_flop_per_s)),
    )
