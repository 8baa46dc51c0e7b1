"""Values from the lines of one format, in file order, with counts."""

from __future__ import annotations

from array import array
from pathlib import Path

from trnbench.evidence.readers.step_formats import Told
from trnbench.facts.arrays import FloatArray
from trnbench.facts.catalog.text_file import refused
from trnbench.facts.records import State, field

MOST_UNREAD = 0.1
"""Share of unreadable lines above which a file is refused."""
MOST_KEPT = 1 << 23
"""Most values kept: 64 MiB."""


def refuse_unread(path: Path, unread: int, of: int, said: str, first: str) -> None:
    """Refuse a file with too many unreadable lines, `unread` of `of`; `said` names them."""
    if unread > MOST_UNREAD * of:
        raise refused(
            path,
            f"{unread:,} of {said} cannot be read, first {first}; expected at least "
            f"{1 - MOST_UNREAD:.0%}",
        )


class Readings(State):
    """Values of steps in base units, with step numbers where lines have them."""

    format: str
    told: Told = "time"
    window: int = 1
    remark: str = ""
    steps: array[int] = field(default_factory=lambda: array("i"))
    values: array[float] = field(default_factory=lambda: array("d"))
    batches: set[int] = field(default_factory=set)
    sequences: set[int] = field(default_factory=set)
    memory_bytes: float = 0.0
    skipped: int = 0
    """Iterations without an optimizer step."""
    lines: int = 0
    """Lines of the file so far."""
    unread: int = 0
    """Unreadable step lines; `first_unread`: the first, with its number."""
    first_unread: str = ""
    recompilations: int = 0
    """Compilations between steps, after the first few."""
    seen: int = 0
    """Values read, of which one in `every` is kept."""
    every: int = 1

    def add(self, step: int | None, value: float) -> None:
        """Add one value."""
        if step is not None:
            self.steps.append(step)
        if self.seen % self.every == 0:
            self.values.append(value)
        self.seen += 1
        self._thin()

    def take(self, values: FloatArray) -> None:
        self.values.frombytes(values[-self.seen % self.every :: self.every].tobytes())
        self.seen += values.size
        self._thin()

    def _thin(self) -> None:
        while len(self.values) > MOST_KEPT and not self.steps and self.window == 1:
            self.values = self.values[::2]
            self.every *= 2

    def miss(self, line: int, text: str) -> None:
        self.unread += 1
        self.first_unread = self.first_unread or f"line {line}: {text.strip()[:80]!r}"

    def checked(self, path: Path) -> Readings:
        """Readings as they are; refuse a file with too many unreadable lines."""
        steps = len(self.values) * self.every + self.skipped + self.unread
        said = f"{steps:,} step lines of {self.format}"
        refuse_unread(path, self.unread, steps, said, self.first_unread)
        if not self.values and self.skipped:
            raise refused(
                path,
                f"all {self.skipped:,} iterations of {self.format} were skipped (the loss scale "
                "overflowed): none is a whole step",
            )
        return self
