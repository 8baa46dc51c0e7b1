"""A chip as the kernels of a product find it: software's level, and neighbours that work too.

Both engines price or play the chip that is returned, so that a level means the same in both.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from trnbench.errors import InputError
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import KernelLevel, NeuronCores
from trnbench.facts.records import replace
from trnbench.machine.tiling.legality import Rate

KernelSoftware: TypeAlias = Literal["nki", "compiled", "traced"]
"""Where a kernel comes from: written by hand, made by the compiler, part of a traced program."""
KERNEL_SOFTWARE: tuple[KernelSoftware, ...] = get_args(KernelSoftware)
HAND_WRITTEN: KernelSoftware = "nki"


def level_of(chip: Chip, software: KernelSoftware) -> KernelLevel | None:
    """The level of a Trainium chip's products by this software.

    None for hand-written kernels of a chip on which none was timed: its documented rates stand.
    """
    unit = chip.unit
    found = unit.kernels.get(software) if isinstance(unit, NeuronCores) else None
    if found is None and software != HAND_WRITTEN:
        raise InputError(
            f"{chip.name}: no {software} kernels are known; "
            f"add [cores.kernels.{software}] to its file"
        )
    return found


def busy_share(chip: Chip, busy_cores: int) -> float:
    """Share of its rate that a core keeps beside the others that work, the first die first."""
    unit = chip.unit
    if not isinstance(unit, NeuronCores):
        return 1.0
    of_a_die = unit.count / (chip.dies or 1)
    return unit.busy_die_share if min(busy_cores, of_a_die) > of_a_die / 2 else 1.0


def at_level(chip: Chip, rate: Rate, level: KernelLevel, busy_cores: int) -> Chip:
    """The chip with the tensor engine that kernels of this level have."""
    unit = chip.unit
    assert isinstance(unit, NeuronCores)
    share = level.share
    if rate.passes > 1 and level.several_pass_share is not None:
        share = level.several_pass_share
    clock_hz = unit.tensor.clock_hz * share * busy_share(chip, busy_cores)
    return replace(chip, cores=replace(unit, tensor=replace(unit.tensor, clock_hz=clock_hz)))
