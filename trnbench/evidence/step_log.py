"""A log of training steps as one measured row: the median step, once the first ones have warmed up.

Lines of text are searched for a step time or a rate of the whole cluster; a CSV file has a column
of one. The layout is not in a log: whoever has the log says it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from trnbench.catalog.text_file import read_text, refused
from trnbench.errors import unhandled
from trnbench.evidence.rows import MAX_BYTES, EvidenceFile, EvidenceRow, EvidenceSet
from trnbench.evidence.training_told import COLUMNS
from trnbench.hardware.compute_unit import Multiprocessors, NeuronCores
from trnbench.hardware.instance import Platform
from trnbench.workload.partial_layout import PartialLayout

_NUMBER = r"(\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?)"
_TIME = re.compile(
    r"(?:(?:elapsed )?time per (?:iteration|step)|(?:iteration|step|batch)[ _-]?(?:time|latency)"
    r"|sec(?:onds)?(?:/| per )(?:step|it(?:eration)?)|train_step_timing)"
    rf"(?P<label>[^\d\n]{{0,24}}?)[:=\s]\s*{_NUMBER}\s*(?P<unit>ms\b|msec\b|us\b|s\b|sec\b)?",
    re.IGNORECASE,
)
_LEADING_RATE = re.compile(
    rf"{_NUMBER}\s*(?P<what>tok(?:en)?s?|seq(?:uence)?s?|samples?)\s*(?:/|per )\s*s", re.IGNORECASE
)
_RATE = re.compile(
    r"(?P<what>tok(?:en)?s?|seq(?:uence)?s?|samples?)[ _]?(?:/|per[ _]|_per_)s(?:ec(?:ond)?)?"
    rf"(?P<label>[^\d\n]{{0,16}}?)[:=\s]\s*{_NUMBER}",
    re.IGNORECASE,
)
_EACH = re.compile(r"/\s*(?:gpu|device|core|chip|rank)|per[ _](?:gpu|device|core|chip|rank)", re.I)
_MILLI, _MICRO = 1e-3, 1e-6
_COLUMNS: Mapping[str, tuple[str, float]] = {
    "step_time_s": ("time", 1.0),
    "time_s": ("time", 1.0),
    "step_time_ms": ("time", _MILLI),
    "time_ms": ("time", _MILLI),
    "tokens_per_s": ("tokens", 1.0),
    "seq_per_s": ("samples", 1.0),
    "sequences_per_s": ("samples", 1.0),
    "samples_per_s": ("samples", 1.0),
}
_WARM_UP = 5
"""One step in so many, and at least one of several, comes before a run is warm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """What ran while a log was written; `layout` says batch, sequence and precision, or more."""

    model: str
    platform: Platform
    nodes: int
    layout: PartialLayout

    @property
    def ranks(self) -> int:
        """The ranks of the cluster."""
        return self.nodes * self.platform.instance.chips * self.platform.chip.ranks(None)


def logged_steps(path: Path, run: LoggedRun) -> EvidenceFile:
    """Return a log as a file of evidence with one row; refused where no step can be found."""
    text = read_text(path, what="log", max_bytes=MAX_BYTES)
    times = _of_csv(path, text, run)
    if times is None:
        times = [time for line in text.splitlines() if (time := _of_line(path, line, run))]
    if not times:
        raise refused(
            path,
            "has no step time or rate; expected such as 'step time: 1.23 s' or '4,500 tokens/s'",
        )
    cold = 0 if len(times) == 1 else max(1, len(times) // _WARM_UP)
    evidence: EvidenceSet
    match run.platform.chip.unit:
        case NeuronCores():
            evidence = "trainium_training"
        case Multiprocessors():
            evidence = "gpu_training"
        case unknown:
            unhandled(unknown, "set of measured steps")
    row = EvidenceRow(id=path.stem, line=1, cells=_cells(run, evidence, median(times[cold:])))
    return EvidenceFile(name=path.name, set=evidence, rows=(row,))


def _of_csv(path: Path, text: str, run: LoggedRun) -> list[float] | None:
    """Return the step times of a CSV log, s; None where the text is none."""
    table = list(csv.DictReader(io.StringIO(text)))
    columns = [column for column in (table[0] if table else ()) if column in _COLUMNS]
    if not columns:
        return None
    what, scale = _COLUMNS[columns[0]]
    times = []
    for line, row in enumerate(table, start=2):
        cell = row[columns[0]] or ""
        try:
            number = float(cell) * scale
        except ValueError:
            raise refused(path, f"line {line}: {columns[0]} {cell!r} is not a number") from None
        times.append(_time_s(path, what, number, run))
    return times


def _of_line(path: Path, line: str, run: LoggedRun) -> float | None:
    """Return the step time in a line of a log, s."""
    found = _TIME.search(line)
    if found:
        unit = (found["unit"] or "").lower() or found["label"].lower()
        scale = _MILLI if "ms" in unit else _MICRO if "us" in unit else 1.0
        return _time_s(path, "time", _number(found[2]) * scale, run)
    found = _LEADING_RATE.search(line)
    number = found[1] if found else ""
    if found is None:
        found = _RATE.search(line)
        number = found[3] if found else ""
    if found is None:
        return None
    if _EACH.search(line[found.start() :]):
        raise refused(path, f"a rate of one device, not of the cluster: {line.strip()[:80]!r}")
    what = "tokens" if found["what"].lower().startswith("tok") else "samples"
    return _time_s(path, what, _number(number), run)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _time_s(path: Path, what: str, number: float, run: LoggedRun) -> float:
    if not 0 < number < float("inf"):
        raise refused(path, f"{number:g} is no time and no rate")
    if what == "time":
        return number
    sequence = run.layout.degree("sequence") if what == "tokens" else 1
    samples = run.layout.degree("global_batch") * sequence
    return samples / number


def _cells(run: LoggedRun, evidence: EvidenceSet, step_s: float) -> Mapping[str, str]:
    """Return a run as a row of a set has it: knobs under their columns, and where it ran."""
    cells = {
        COLUMNS[evidence].get(name, name): ("yes" if value else "no")
        if isinstance(value, bool)
        else str(value)
        for name, value in {"tp": 1, "pp": 1, **run.layout.given}.items()
    }
    instance, chip = run.platform.instance.name, run.platform.chip.name
    if evidence == "gpu_training":
        cells |= {"gpu": chip, "system": instance, "n_gpus": str(run.ranks), "framework": "unnamed"}
        cells.setdefault("dp", str(max(run.ranks // run.layout.replica_ranks, 1)))
    else:
        cells |= {"instance": instance, "neuroncores": str(run.ranks)}
    return {**cells, "model": run.model, "nodes": str(run.nodes), "step_time_s": repr(step_s)}
