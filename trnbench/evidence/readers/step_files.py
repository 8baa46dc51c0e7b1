"""Step files other than line logs: JSON of trainers, CSV with a column of times."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from trnbench.evidence.readers.readings import Readings
from trnbench.evidence.readers.step_formats import Told
from trnbench.facts.catalog.foreign import json_value
from trnbench.facts.catalog.text_file import bounded_lines, chunks, first_line, read_text, refused

MAX_JSON_BYTES = 64 << 20
_MILLI = 1e-3
_COLUMNS: Mapping[str, tuple[Told, float]] = {
    "step_time_s": ("time", 1.0),
    "time_s": ("time", 1.0),
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
