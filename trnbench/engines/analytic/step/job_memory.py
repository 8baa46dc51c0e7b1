"""Memory of a job's layouts: the largest need over the phases of its step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from typing import get_args

import numpy as np

from trnbench.engines.analytic.step.memory import NeededMemory
from trnbench.engines.analytic.step.memory_reader import Flights
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.memory_overheads import MemoryOverheads
from trnbench.facts.records import Record, replace
from trnbench.program.job_phases import phases_of
from trnbench.program.points import Points
from trnbench.program.stages import StageRole
from trnbench.program.step import StepProgram


class JobMemory(Record, eq=False):
    """The memory of a program's layouts, phase by phase."""

    program: StepProgram
    phases: tuple[NeededMemory, ...]

    @classmethod
    def of(cls, program: StepProgram, overheads: MemoryOverheads) -> JobMemory:
        """The memory of a program by a stack's numbers."""
        return cls(
            program=program,
            phases=tuple(
                NeededMemory(program=one.program, overheads=overheads) for one in phases_of(program)
            ),
        )

    def played(self, program: StepProgram) -> JobMemory:
        """The memory of the same program in another schedule."""
        found = zip(self.phases, phases_of(program), strict=True)
        phases = tuple(held.played(phase.program) for held, phase in found)
        return replace(self, program=program, phases=phases)

    def bytes(
        self,
        points: Points,
        *,
        fragmentation_ratios: Sequence[float],
        flights: Flights | None = None,
        roles: Collection[StageRole] = get_args(StageRole),
    ) -> list[FloatArray]:
        """Bytes that a rank of the worst stage needs in the worst phase, at each ratio."""
        each = [
            one.bytes(
                points, fragmentation_ratios=fragmentation_ratios, flights=flights, roles=roles
            )
            for one in self.phases
        ]
        return [reduce(np.maximum, of_ratio) for of_ratio in zip(*each, strict=True)]
