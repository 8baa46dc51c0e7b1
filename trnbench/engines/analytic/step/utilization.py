"""Share of the peak that a step uses, by the three usual conventions.

MFU: FLOP the job needs (causal attention halved, nothing computed twice) over the tensor engines'
peak in the format of its matrix products; a job with adapters needs no gradients of frozen weights,
so about 4 FLOP a weight and token in place of 6. `mfu_headline`: the same over the rate that the
vendor states for that format. HFU: FLOP carried out, with recompute, copies and padding, over the
peak.
"""

from __future__ import annotations

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import Record
from trnbench.program.step import StepProgram


class Utilization(Record, eq=False):
    """Shares of the peak, by layout; not a number where there is no time, peak or stated rate."""

    mfu: FloatArray
    mfu_headline: FloatArray
    hfu: FloatArray


def check_peak(mfu: float, calibration: str) -> None:
    """Refuse a step that is faster than its chips: a calibration that says so is at fault."""
    if mfu > 1:
        raise InputError(
            f"{calibration}: makes a step faster than its chips' peak: MFU {mfu:.0%}",
            hint="a calibration of these chips or of this stack has a number that cannot be",
        )


def utilization(
    program: StepProgram,
    platform: Platform,
    step_s: FloatArray,
    *,
    logical_size: int | None = None,
) -> Utilization:
    """Utilization of steps of `step_s` seconds, for all layouts."""
    chip = platform.chip
    number_format = chip.own_format(program.recipe.linear)
    headline_flop_per_s = chip.headline_per_chip_flop_per_s.get(number_format, np.nan)
    chip_seconds = step_s * program.grid.ranks("world") / chip.ranks(logical_size)
    return Utilization(
        mfu=mfu(program, platform, step_s, logical_size=logical_size),
        mfu_headline=np.asarray(program.model_flop / (chip_seconds * headline_flop_per_s)),
        hfu=np.asarray(program.hardware_flop / (chip_seconds * _peak_flop_per_s(program, chip))),
    )


def mfu(
    program: StepProgram,
    platform: Platform,
    step_s: FloatArray,
    *,
    logical_size: int | None = None,
) -> FloatArray:
    """MFU of steps of `step_s` seconds, for all layouts."""
    chip = platform.chip
    chip_seconds = step_s * program.grid.ranks("world") / chip.ranks(logical_size)
    return np.asarray(program.model_flop / (chip_seconds * _peak_flop_per_s(program, chip)))


def _peak_flop_per_s(program: StepProgram, chip: Chip) -> float:
    number_format = chip.own_format(program.recipe.linear)
    return chip.peak_flop_per_s(number_format) if number_format in chip.formats else np.nan
