"""Two training steps beside each other: by how much they differ, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trnbench.facts.records import Record

if TYPE_CHECKING:
    from trnbench.verbs.train.answer import TrainAnswer


class PartBeside(Record):
    """One part of two totals: seconds of a step, or bytes of a rank."""

    name: str
    first: float
    second: float

    @property
    def difference(self) -> float:
        return self.second - self.first


def time_beside(first: TrainAnswer, second: TrainAnswer) -> tuple[PartBeside, ...]:
    """Return the exposed seconds of two steps by category, the largest difference first."""
    if first.step is None or second.step is None:
        return ()
    return _beside(first.step.exposed_s, second.step.exposed_s)


def memory_beside(first: TrainAnswer, second: TrainAnswer) -> tuple[PartBeside, ...]:
    """Return the bytes per rank of two steps by category, the largest difference first."""
    if first.memory is None or second.memory is None:
        return ()
    held = (first.memory.by_category, second.memory.by_category)
    return _beside(*({str(name): size for name, size in one.items()} for one in held))


def _beside(first: Mapping[str, float], second: Mapping[str, float]) -> tuple[PartBeside, ...]:
    parts = (
        PartBeside(name=name, first=first.get(name, 0.0), second=second.get(name, 0.0))
        for name in dict.fromkeys([*first, *second])
    )
    return tuple(
        sorted(
            (part for part in parts if part.first or part.second),
            key=lambda part: -abs(part.difference),
        )
    )
