"""Measured steps of logs: the warm pace of a run, without outliers.

Begin with `read_steps`: one file of any known format, with the run's size where the file lacks it.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trnbench.errors import DataFileError, Fault
from trnbench.evidence.readers.readings import Readings
from trnbench.evidence.readers.step_formats import Told
from trnbench.evidence.readers.step_text import logged
from trnbench.facts.arrays import FloatArray
from trnbench.facts.catalog.foreign import json_value, reads
from trnbench.facts.catalog.text_file import bounded_lines, chunks, first_line, read_text, refused
from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, counted, show

SHORTEST_STEP_S, LONGEST_STEP_S = 1e-6, 1e7
"""A step takes longer than a launch and less than four months."""
_COLD = 1.1
"""Leading steps this many times slower than later ones are warm-up."""
_ODD = 1.5
"""Steps this factor above or below the median are excluded."""
_DRIFT = 1.1
"""Ratio of a run's halves from which on a drift is reported."""
_DISAGREE = 1.5
"""Ratio of two ranks' times of one step beyond which they ran different jobs."""
_LEAST = 1e-30
"""Lower bound of times and rates and their inverses, so that results stay finite."""
_TENTH = 0.1
_TWO = 2
"""Fewest steps in half a run for a drift."""
_ENDS = (0.1, 0.5, 0.9)

MAX_JSON_BYTES = 64 << 20
_MILLI = 1e-3
_COLUMNS: Mapping[str, tuple[Told, float]] = {
    "step_time_s": ("time", 1.0),
    "time_s": ("time", 1.0),
    "step_time": ("time", 1.0),
    "step time": ("time", 1.0),
    "seconds": ("time", 1.0),
    "step_time_ms": ("time", _MILLI),
    "time_ms": ("time", _MILLI),
    "train_step_timing in s": ("time", 1.0),
    "tokens_per_s": ("tokens", 1.0),
    "seq_per_s": ("samples", 1.0),
    "sequences_per_s": ("samples", 1.0),
    "samples_per_s": ("samples", 1.0),
}
"""Columns of a CSV log -> quantity and scale; the first known column counts."""
_MOST_STEPS = 1_000_000_000
_AVERAGE = "Average throughput"
_NONE = (
    "has no step time or rate; expected lines of training software, or such as "
    "'step time: 1.23 s' or '4,500 tokens/s'"
)
_NO_COLUMN = "has no column of steps; call it step_time_s, step_time_ms or tokens_per_s"


class NoSteps(DataFileError):
    """A file without any step."""


class RunSize(Record):
    """Known size of a step, for converting rates to times."""

    global_batch: int | None = None
    sequence: int | None = None
    ranks: int | None = None


class MeasuredSteps(Record):
    """Steps of a log: the median of those that count, and the ends of the middle 80 %."""

    path: Path
    format: str
    step_time_s: float
    low_s: float
    high_s: float
    used: int
    """Steps that count; `warm_up`, `odd`, `skipped`: excluded ones."""
    warm_up: int
    odd: int
    skipped: int
    unread: int
    lines: int
    global_batch: int | None
    sequence: int | None
    memory_bytes: float | None
    recompilations: int
    remarks: tuple[str, ...]
    """Remarks for people on what was read and excluded."""


@reads("a log of steps")
def read_steps(path: Path, run: RunSize | None = None, *, block_bytes: int = 0) -> MeasuredSteps:
    """Measured steps of a log; refuse a file with none, or with too few readable ones.

    A batch or sequence in the file may be omitted in `run`, and must agree. `block_bytes` sets the
    reading block, without effect on results.
    """
    readings = stepped_file(path) or logged(path, block_bytes)
    if not readings.values:
        why = _NO_COLUMN if path.suffix.lower() == ".csv" else _NONE
        raise NoSteps(str(path), [Fault(path="", message=why)])
    run = _known(path, readings, run or RunSize())
    times = _times_s(path, readings, run)
    for end in (float(times.min()), float(times.max())):
        if not SHORTEST_STEP_S <= end <= LONGEST_STEP_S:
            raise refused(path, f"a step of {end:.3g} s is not a step of training")
    warm_up = _warm_up(times)
    drift = _drift(times[warm_up:])
    # Drift is computed before, because the order is lost here.
    times[warm_up:].sort()  # where they lie: a log may have many millions of steps
    used, (low_s, step_time_s, high_s) = _even(times[warm_up:])
    return MeasuredSteps(
        path=path,
        format=readings.format,
        step_time_s=step_time_s,
        low_s=low_s,
        high_s=high_s,
        used=used,
        warm_up=warm_up,
        odd=times.size - warm_up - used,
        skipped=readings.skipped,
        unread=readings.unread,
        lines=readings.lines,
        global_batch=run.global_batch,
        sequence=run.sequence,
        memory_bytes=readings.memory_bytes or None,
        recompilations=readings.recompilations,
        remarks=tuple(_remarks(readings, times, warm_up, used, drift)),
    )


def _even(ordered: FloatArray) -> tuple[int, list[float]]:
    """Number of steps near the median, and their low end, median and high end."""
    (middle,) = _shares(ordered, (0.5,))
    first, last = np.searchsorted(ordered, (middle / _ODD, middle * _ODD))
    even = ordered[first : max(last, first + 1)]
    return even.size, _shares(even, _ENDS)


def _shares(ordered: FloatArray, shares: Sequence[float]) -> list[float]:
    """Quantiles of sorted values."""
    found = []
    for share in shares:
        place = share * (ordered.size - 1)
        low, high = ordered[int(place)], ordered[min(int(place) + 1, ordered.size - 1)]
        found.append(float(low + (high - low) * (place - int(place))))
    return found


def _known(path: Path, readings: Readings, run: RunSize) -> RunSize:
    """Size of a run by its log and by the caller, which must agree."""
    return RunSize(
        global_batch=_one(path, "global batch", readings.batches, run.global_batch),
        sequence=_one(path, "sequence length", readings.sequences, run.sequence),
        ranks=run.ranks,
    )


def _one(path: Path, what: str, found: set[int], given: int | None) -> int | None:
    if len(found) > 1:
        several = ", ".join(map(str, sorted(found)[:4]))
        raise refused(path, f"has steps of more than one {what}: {several}; give one log of each")
    told = next(iter(found), None)
    if None not in (told, given) and told != given:
        raise refused(path, f"has a {what} of {told}, and {given} is given")
    return given if told is None else told


def _times_s(path: Path, readings: Readings, run: RunSize) -> FloatArray:
    """Time of each step, s."""
    values = np.frombuffer(readings.values, dtype=np.float64)
    steps = np.frombuffer(readings.steps, dtype=np.int32) if readings.steps else None
    for end in (float(values.min()), float(values.max())):
        if not _LEAST < end < 1 / _LEAST:
            raise refused(path, f"{end:g} is neither a time nor a rate")
    if steps is not None and not (steps[1:] > steps[:-1]).all():
        _refuse_disagreement(path, readings, steps, values)
        steps, first = np.unique(steps, return_index=True)
        values = values[first]
    if readings.told == "time":
        steps = None
        readings.steps = array("i")  # as many as there are times: their memory is needed
        return values
    batch = _needed(path, readings, run)
    if readings.window > 1:
        return batch / _rates(values, steps, readings.window)
    return batch / values


def _needed(path: Path, readings: Readings, run: RunSize) -> float:
    """Work of a step in the unit of the rate: steps, samples, or tokens (of all or one device)."""
    wanted: dict[str, int | None] = {}
    if readings.told != "steps":
        wanted["--global-batch"] = run.global_batch
    if readings.told.startswith("tokens"):
        wanted["--sequence"] = run.sequence
    lacking = [option for option, value in wanted.items() if value is None]
    if readings.told == "tokens each" and run.ranks is None:
        lacking.append("--on")
    if lacking:
        raise refused(
            path,
            f"tells {readings.told.replace(' each', ' of each device')} per second; give "
            f"{' and '.join(lacking)} to make step times of them",
        )
    done = 1.0
    for value in wanted.values():
        done *= value or 1
    return done / (run.ranks or 1) if readings.told == "tokens each" else done


def _rates(values: FloatArray, steps: NDArray[np.int32] | None, window: int) -> FloatArray:
    """Rates of separate steps, from those of a moving window that starts cold.

    The first reading covers one step, the next two, until the window is full. A long log gives
    non-overlapping windows without the first; a short one differences.
    """
    stride = int(np.median(np.diff(steps))) if steps is not None and len(steps) > 1 else 1
    size = -(-window // stride)
    if len(values) >= 2 * size:
        return values[: size - 1 : -size][::-1]
    passed = np.arange(1, len(values) + 1)[:size] / values[:size]
    return 1 / np.maximum(np.diff(passed, prepend=0.0), 1e-12)


def _warm_up(times: FloatArray) -> int:
    cold = times > _COLD * float(np.median(times[len(times) // 2 :]))
    return int(cold.argmin())


def _refuse_disagreement(
    path: Path, readings: Readings, steps: NDArray[np.int32], values: FloatArray
) -> None:
    """Refuse a file whose ranks print different times for the same steps."""
    again = np.flatnonzero(np.diff(steps) == 0)
    if not again.size:
        return
    ratio = values[again + 1] / values[again]
    apart = again[(ratio > _DISAGREE) | (ratio < 1 / _DISAGREE)]
    if apart.size > _TENTH * again.size:
        one, other = values[apart[0]], values[apart[0] + 1]
        raise refused(
            path,
            f"its ranks disagree: step {steps[apart[0]]} of {readings.format} has {one:.4g} and "
            f"{other:.4g}; expected the log of one run",
        )


def _remarks(
    readings: Readings, times: FloatArray, warm_up: int, used: int, drift: str
) -> list[str]:
    steps = counted(used, "step")
    found = [f"{steps} of {readings.format} in {counted(readings.lines, 'line')}"]
    if readings.every > 1:
        found.append(f"of {readings.seen:,} steps one in {readings.every} is looked at")
    if readings.remark:
        found.append(readings.remark)
    if warm_up:
        longest = show(float(times[:warm_up].max()), Dimension.SECONDS, digits=3)
        found.append(f"{warm_up:,} of warm-up left out (longest {longest})")
    odd = times.size - warm_up - used
    if odd:
        worst = show(float(times[warm_up:].max()), Dimension.SECONDS, digits=3)
        found.append(f"{odd:,} far from the median left out (longest {worst})")
    if readings.recompilations:
        again = counted(readings.recompilations, "time")
        found.append(f"it compiles {again} more after its first steps")
    if readings.skipped:
        found.append(f"{readings.skipped:,} skipped iterations left out")
    repeated = len(readings.values) - times.size if readings.window == 1 else 0
    if repeated:
        found.append(f"{repeated:,} repeated lines")
    if readings.unread:
        found.append(f"{readings.unread:,} not read, first {readings.first_unread}")
    if drift:
        found.append(drift)
    return found


def _drift(warm: FloatArray) -> str:
    """Text of a warm run's change of pace; empty without one."""
    half = warm.size // 2
    if half < _TWO:
        return ""
    early, late = float(np.median(warm[:half])), float(np.median(warm[half:]))
    if max(early, late) <= _DRIFT * min(early, late):
        return ""
    shown = [show(one, Dimension.SECONDS, digits=3) for one in (early, late)]
    return f"its pace changes from {shown[0]} to {shown[1]} per step"


def stepped_file(path: Path) -> Readings | None:
    """Readings of a JSON or CSV file; None for a log of lines."""
    first = first_line(path, what="CSV or log").strip()
    if first.startswith("{") and not first.startswith("{'") and _is_one_object(path):
        return _json(path)
    names = [name.strip().strip('"') for name in first.split(",")]
    column = next((name for name in names if name in _COLUMNS), None)
    return _csv(path, column) if column else None


def _csv(path: Path, column: str) -> Readings:
    told, scale = _COLUMNS[column]
    found = Readings(format=f"column {column}", told=told)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.reader(bounded_lines(path, file), strict=True)
            heading = [name.strip() for name in next(table)]
            place = heading.index(column)
            for cells in table:
                cell = cells[place].strip() if place < len(cells) else ""
                found.lines = table.line_num
                if not cell:
                    continue  # loggers write a line for each kind of figure
                try:
                    found.add(None, float(cell) * scale)
                except ValueError:
                    raise refused(
                        path, f"line {table.line_num}: {column} {cell[:40]!r} is not a number"
                    ) from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise refused(path, f"is not CSV: {error}") from None
    return found


def _is_one_object(path: Path) -> bool:
    lines = next(chunks(path, what="JSON"), b"").lstrip(b"\xef\xbb\xbf \t\r\n").splitlines()
    return not (len(lines) > 1 and lines[0].endswith(b"}") and lines[1].startswith(b"{"))


def _json(path: Path) -> Readings:
    text = read_text(path, what="JSON", max_bytes=MAX_JSON_BYTES)
    table = json_value(path, text)
    lines = text.count("\n") + 1
    for read in (_trainer_state, _trainer_results, _nxd_metrics):
        if found := read(table):
            found.lines = lines
            return found
    raise refused(
        path,
        "is JSON of no known kind; expected trainer_state.json, train_results.json or the metrics "
        "file of NeuronX Distributed",
    )


def _trainer_state(table: Mapping[str, object]) -> Readings | None:
    """Steps of trainer_state.json (Hugging Face Trainer, Optimum Neuron)."""
    history = table.get("log_history")
    if not isinstance(history, list):
        return None
    found = Readings(format="trainer_state.json")
    for entry in history:
        if isinstance(entry, dict) and (time_s := _number(entry.get("train/step_time"))):
            step = entry.get("step")
            known = isinstance(step, int) and 0 <= step < _MOST_STEPS
            found.add(step if known else None, time_s)
    if found.values:
        if len(found.steps) != len(found.values):
            found.steps = found.steps[:0]
        found.remark = "a mean of up to 50 steps, which starts cold"
        return found
    last = next((one for one in reversed(history) if isinstance(one, dict)), {})
    return _trainer_results({**last, "steps": table.get("global_step")}) or found


def _trainer_results(table: Mapping[str, object]) -> Readings | None:
    """Mean step of a whole run, from the Trainer's summary."""
    found = Readings(
        format="Hugging Face Trainer's summary",
        remark="the mean of the whole run, start-up and evaluation included",
    )
    runtime_s, steps = _number(table.get("train_runtime")), _number(table.get("steps"))
    rate = _number(table.get("train_steps_per_second"))
    if runtime_s and steps:
        found.add(None, runtime_s / steps)
    elif rate:
        found.add(None, 1 / rate)
    return found if found.values else None


def _nxd_metrics(table: Mapping[str, object]) -> Readings | None:
    """Average rate in a metrics file of NeuronX Distributed (training_utils.py)."""
    results = next(iter(table.values()), None)
    metrics = results.get("metrics") if isinstance(results, dict) else None
    if not isinstance(metrics, list):
        return None
    found = Readings(
        format="NeuronX Distributed's metrics",
        told="samples",
        remark="the mean of the run without its first 10 steps",
    )
    for metric in metrics:
        if isinstance(metric, dict) and metric.get("MetricName") == _AVERAGE:
            rate = _number(metric.get("MeasuredValue"))
            if rate:
                found.add(None, rate)
    return found


def _number(value: object) -> float | None:
    """A positive number, also as text, as newer trainers write."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 < number < float("inf") else None
