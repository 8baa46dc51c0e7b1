"""Summaries of monitors and profilers: neuron-monitor, neuron-profile, nvidia-smi.

The busy share times the step time is a device's working time per step; a profile gives the time of
one run of a graph, which may be a part of a step.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Literal

from trnbench.evidence.readers.blocks import blocks
from trnbench.evidence.readers.readings import refuse_unread
from trnbench.facts.catalog.foreign import FAILURES, json_value, reads, why
from trnbench.facts.catalog.text_file import chunks, read_text, refused
from trnbench.facts.records import Record, State, field

DeviceTool = Literal["neuron-monitor", "neuron-profile", "nvidia-smi"]
MAX_JSON_BYTES = 64 << 20
_PERCENT = 100.0
_MOST_ERRORS = 1e15
_LONGEST_RUN_S = 1e9
"""No count of errors and no run of a graph is above these."""
_MIB = 2.0**20
_SHARES = {
    "tensor_engine_active_time_percent": "tensor engine",
    "vector_engine_active_time_percent": "vector engine",
    "scalar_engine_active_time_percent": "scalar engine",
    "gpsimd_engine_active_time_percent": "GpSimd engine",
    "dma_active_time_percent": "DMA",
    "cc_op_active_time_percent": "collectives",
}
"""Busy shares in a profile's summary: named percent, but fractions."""


class DeviceSummary(Record):
    """Figures of a monitor's or profiler's file."""

    path: Path
    tool: DeviceTool
    samples: int
    devices: int
    unread: int = 0
    errors: int = 0
    """Failed executions."""
    busy: float | None = None
    """Median over samples of the mean busy share of devices in use."""
    memory_peak_bytes: float | None = None
    """Most memory of one device."""
    run_s: float | None = None
    """Device time of one run of a profiled graph."""
    shares: tuple[tuple[str, float], ...] = ()
    """Busy share of that time, by engine."""


def device_tool(path: Path) -> DeviceTool | None:
    """Tool that wrote a file, by its beginning; None if unknown."""
    head = next(chunks(path, what="text"), b"").decode("utf-8-sig", errors="replace").lstrip()
    if '"neuron_runtime_data"' in head and head.startswith("{"):
        return "neuron-monitor"
    if head.startswith("{") and '"total_time"' in head and "_active_time" in head:
        return "neuron-profile"
    first = head.partition("\n")[0]
    return "nvidia-smi" if "utilization.gpu" in first and "," in first else None


@reads("a file of a monitor")
def read_devices(path: Path) -> DeviceSummary:
    """Summary of a monitor's or profiler's file; other files are refused."""
    match device_tool(path):
        case "neuron-monitor":
            return _monitor(path)
        case "neuron-profile":
            return _profile(path)
        case "nvidia-smi":
            return _smi(path)
    raise refused(
        path, "is of no known monitor; expected neuron-monitor, neuron-profile, nvidia-smi"
    )


class _Samples(State):
    """Samples of a monitor so far."""

    tool: DeviceTool
    seen: int = 0
    errors: int = 0
    busy: array[float] = field(default_factory=lambda: array("d"))
    held: float = 0.0
    devices: set[str] = field(default_factory=set)
    unread: int = 0
    first_unread: str = ""

    def miss(self, line: int, why: object) -> None:
        self.unread += 1
        self.first_unread = self.first_unread or f"line {line}: {str(why)[:80]}"

    def summary(self, path: Path) -> DeviceSummary:
        if self.unread > 1 or not self.seen:
            of = self.seen + self.unread
            said = f"{of:,} samples of {self.tool}"
            refuse_unread(path, self.unread, of, said, self.first_unread)
        if not self.busy:
            raise refused(path, "has no sample in which a device was in use")
        return DeviceSummary(
            path=path,
            tool=self.tool,
            samples=self.seen,
            devices=len(self.devices),
            unread=self.unread,
            errors=self.errors,
            busy=median(self.busy),
            memory_peak_bytes=self.held or None,
        )


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    for block in blocks(path):
        yield from enumerate(block.text.split(b"\n"), start=block.line)


def _monitor(path: Path) -> DeviceSummary:
    found = _Samples(tool="neuron-monitor")
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            _take(found, json.loads(line))
        except FAILURES as error:
            found.miss(number, why(error))
    return found.summary(path)


def _take(found: _Samples, sample: Mapping[str, Any]) -> None:
    """Add one report, of several processes on a host, each with its own cores."""
    busy: list[float] = []
    for process in sample["neuron_runtime_data"]:
        report = process["report"]
        cores = report.get("neuroncore_counters", {}).get("neuroncores_in_use", {})
        busy += [core["neuroncore_utilization"] / _PERCENT for core in cores.values()]
        found.devices |= cores.keys()
        used = report.get("memory_used", {}).get("neuron_runtime_used_bytes", {})
        held = used.get("usage_breakdown", {}).get("neuroncore_memory_usage", {})
        found.held = max([found.held, *(float(sum(core.values())) for core in held.values())])
        summed = report.get("execution_stats", {}).get("error_summary", {})
        errors = sum(summed.values())
        if not 0 <= errors <= _MOST_ERRORS:
            raise ValueError(f"{errors:.40g} errors")
        found.errors += errors
    if not all(0 <= one <= 1 for one in busy):
        raise ValueError(f"a core is busy {max(busy):.0%} of the time")
    found.seen += 1
    if any(busy):
        found.busy.append(sum(busy) / len(busy))


def _smi(path: Path) -> DeviceSummary:
    found = _Samples(tool="nvidia-smi")
    heading: list[str] = []
    for number, line in _lines(path):
        try:
            cells = _cells(line)
            if not heading:
                heading = [name.partition(" ")[0] for name in cells]
            elif any(cells):
                _take_smi(found, dict(zip(heading, cells, strict=False)))
        except FAILURES as error:
            found.miss(number, why(error))
    return found.summary(path)


def _cells(line: bytes) -> list[str]:
    text = line.decode("utf-8-sig", errors="replace").strip()
    return [cell.strip() for cell in next(csv.reader([text]), [])]


def _take_smi(found: _Samples, row: Mapping[str, str]) -> None:
    """Add the sample of one GPU."""
    busy = _amount(row["utilization.gpu"]) / _PERCENT
    if not 0 <= busy <= 1:
        raise ValueError(f"a GPU is busy {busy:.0%} of the time")
    held = _amount(row["memory.used"]) if "memory.used" in row else 0.0
    if not 0 <= held < float("inf"):
        raise ValueError(f"a GPU holds {held:g} MiB")
    found.seen += 1
    found.devices.add(row.get("uuid") or row.get("index") or "0")
    found.held = max(found.held, held * _MIB)
    if busy:
        found.busy.append(busy)


def _amount(cell: str) -> float:
    return float(cell.removesuffix("%").removesuffix("MiB"))


def _profile(path: Path) -> DeviceSummary:
    table = json_value(path, read_text(path, what="JSON", max_bytes=MAX_JSON_BYTES))
    several = [one for one in table.values() if isinstance(one, dict) and "total_time" in one]
    if not several:
        raise refused(path, "has no profile with a total_time")
    for one in several:
        for key in ("total_time", "total_active_time_percent", *_SHARES):
            # By their name they are percent, and the profiler writes fractions.
            most = _LONGEST_RUN_S if key == "total_time" else 1.0
            value = one.get(key, 1.0)
            if not isinstance(value, int | float) or not 0 <= value <= most:
                raise refused(path, f"{key}: {value!r:.40} is not a number between 0 and {most:g}")
    longest = max(several, key=lambda one: float(one["total_time"]))
    return DeviceSummary(
        path=path,
        tool="neuron-profile",
        samples=len(several),
        devices=len(several),
        run_s=float(longest["total_time"]),
        busy=longest.get("total_active_time_percent"),
        shares=tuple(
            (name, float(longest[key])) for key, name in _SHARES.items() if key in longest
        ),
    )
