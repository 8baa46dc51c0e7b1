"""Training frameworks for which launch files are written, and their calibrated stacks.

A framework's name selects, on an instance, the stack calibrated with that framework there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trnbench.facts.records import Record

if TYPE_CHECKING:
    from trnbench.facts.hardware.instance import Platform


class KnownFramework(Record):
    """A framework: its name in calibrations, its Neuron chips, and its support of GPUs."""

    called: str
    neuron_chips: tuple[str, ...] = ()
    gpus: bool = False

    def runs_on(self, platform: Platform) -> bool:
        """True when the framework runs on the platform."""
        from trnbench.facts.hardware.compute_unit import (
            NeuronCores,  # names alone are quick to complete
        )

        chip = platform.chip
        return chip.name in self.neuron_chips if isinstance(chip.unit, NeuronCores) else self.gpus


SOFTWARE: Mapping[str, KnownFramework] = {
    "nxdt": KnownFramework(called="nxd-training", neuron_chips=("trainium1", "trainium2")),
    "optimum-neuron": KnownFramework(
        called="optimum-neuron", neuron_chips=("trainium1", "trainium2")
    ),
    "torchtitan": KnownFramework(
        called="torchtitan", neuron_chips=("trainium2", "trainium3"), gpus=True
    ),
    "megatron": KnownFramework(called="Megatron-LM", gpus=True),
    "megatron-bridge": KnownFramework(called="Megatron-Bridge", gpus=True),
}
"""Frameworks by their `--stack` name."""
