"""MLPerf logs: lines of `:::MLLOG` with a JSON object (github.com/mlcommons/logging)."""

from __future__ import annotations

import json

from trnbench.evidence.readers.blocks import LineBlock
from trnbench.evidence.readers.readings import Readings
from trnbench.facts.catalog.foreign import FAILURES
from trnbench.facts.records import State, field

_MILLI = 1e-3
_LONGEST_ENTRY = 65_536
"""Most bytes read of an entry; usual entries have some hundred."""


class MlLog(State):
    """Reader of the blocks of steps between evaluations, or of the rates in the log.

    Several ranks may print the same lines: a repetition of the last line is skipped.
    """

    mark: bytes = b":::MLLOG "
    found: Readings = field(default_factory=lambda: Readings(format="MLPerf log"))
    rates: Readings = field(
        default_factory=lambda: Readings(
            format="MLPerf log", told="samples", remark="tracked rates"
        )
    )
    _begun: tuple[float, int] | None = None
    _last: bytes = b""

    def readings(self) -> Readings:
        """Blocks of steps if any, else rates."""
        best = self.found if self.found.values or not self.rates.values else self.rates
        best.batches, best.sequences = self.found.batches, self.found.sequences
        best.unread, best.first_unread = self.found.unread, self.found.first_unread
        return best

    def take(self, block: LineBlock) -> None:
        """Read the lines of a block."""
        place = block.text.find(self.mark)
        while place >= 0:
            start = place + len(self.mark)
            end = block.text.find(b"\n", start)
            end = min(end if end >= 0 else len(block.text), start + _LONGEST_ENTRY)
            entry = block.text[start:end].partition(b"\r")[0].strip()
            if entry != self._last:
                self._last = entry
                if not self._read(entry):
                    line = 0 if self.found.unread else block.line_of(place)  # the first is shown
                    self.found.miss(line, entry.decode(errors="replace"))
            place = block.text.find(self.mark, start)

    def _read(self, entry: bytes) -> bool:
        """Record an entry; False if unreadable."""
        try:
            told = json.loads(entry)
            key, value, time_ms = told["key"], told["value"], float(told["time_ms"])
            more = told.get("metadata") or {}
            self._tell(key, value, time_ms, more)
        except FAILURES:
            return False
        return True

    def _tell(self, key: str, value: object, time_ms: float, more: dict[str, object]) -> None:
        samples = more.get("samples_count")
        match key, value, samples:
            case "global_batch_size", int(batch), _ if batch > 0:
                self.found.batches.add(batch)
            case "max_sequence_length", int(sequence), _:
                self.found.sequences.add(sequence)
            case "block_start", _, int(count):
                self._begun = time_ms, count
            case "block_stop", _, int(count) if self._begun and count > self._begun[1]:
                began_ms, before = self._begun
                for batch in self.found.batches:
                    steps = (count - before) / batch
                    self.found.add(None, (time_ms - began_ms) * _MILLI / steps)
                self._begun = None
            case "tracked_stats", {"train_step_time": float(time_s)}, _:
                self.found.add(None, time_s)
            case "tracked_stats", {"throughput": float(rate)}, _:
                self.rates.add(None, rate)
