"""A rank of NeuronCores as a calibration knows it, and the seconds of work played on it.

The shares of its peaks that a chip reaches are software's, not the model's: they slow the machine
that instructions are played on, and everything else follows from the play.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from trnbench.facts.calibration.chip_efficiency import ComputeEfficiency
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.machine.costs.instructions import TransferCost, transfer_cost
from trnbench.machine.costs.shares import reached_share
from trnbench.program.matrix import MatrixProduct
from trnbench.program.precision import PrecisionRecipe


class BusyRun(Record):
    """Seconds of played work, and of each part of the machine meanwhile."""

    time_s: float = 0.0
    busy: Mapping[str, float] = field(default_factory=dict)  # s by part (`machine.costs`)

    def times(self, factor: float) -> BusyRun:
        """Time and busy seconds scaled by a factor: repeated runs, or a slower one."""
        return BusyRun(
            time_s=self.time_s * factor,
            busy={name: value * factor for name, value in self.busy.items()},
        )


NO_RUN = BusyRun()


def in_turn(runs: Iterable[BusyRun]) -> BusyRun:
    """Sum of runs played in sequence."""
    time_s, busy = 0.0, dict[str, float]()
    for run in runs:
        time_s += run.time_s
        for name, value in run.busy.items():
            busy[name] = busy.get(name, 0.0) + value
    return BusyRun(time_s=time_s, busy=busy)


def side_by_side(one: BusyRun, other: BusyRun) -> BusyRun:
    return one if one.time_s >= other.time_s else other


Runs = Memo[Hashable, BusyRun]  # Runs played so far, for one chip and efficiency


class Rank(Record, eq=False):
    """Cores of a chip as one rank, with the numbers of one calibration."""

    chip: Chip
    unit: NeuronCores
    cores: int
    efficiency: ComputeEfficiency
    memory_share: float  # of its bandwidth, with what unused ranks leave
    recipe: PrecisionRecipe
    expert_load: float  # Factor by which work on experts' tokens takes longer on the busiest rank
    runs: Runs = field(default_factory=Memo)

    @property
    def single(self) -> bool:
        """True where every function of the framework is a kernel of its own."""
        return self.efficiency.kernels.passes == "single"

    def reached(self, product: MatrixProduct) -> Chip:
        """Chip with its tensor engine and memory as fast as such products find them."""
        share = reached_share(self.efficiency.chip, product.format_a, product.k)
        return self._slowed(float(share))

    def own(self, product: MatrixProduct) -> MatrixProduct:
        """A product in the chip's own kinds of its operands' formats."""
        return replace(
            product,
            format_a=self.chip.own_format(product.format_a),
            format_b=self.chip.own_format(product.format_b),
        )

    @property
    def transfer(self) -> TransferCost:
        slowed = self._slowed(1.0)
        assert slowed.cores is not None
        return transfer_cost(slowed, slowed.cores)

    def _slowed(self, tensor_share: float) -> Chip:
        tensor, memory = self.unit.tensor, self.chip.memory
        return replace(
            self.chip,
            cores=replace(
                self.unit, tensor=replace(tensor, clock_hz=tensor.clock_hz * tensor_share)
            ),
            memory=replace(
                memory,
                bandwidth_per_chip_bytes_per_s=memory.bandwidth_per_chip_bytes_per_s
                * self.memory_share,
            ),
        )
