"""Columns and text (CSV or JSON) of the file written by `trnbench measure`.

The column `kind` names the kind of a row: kernels (matrix, stream, launch), collectives or training
steps. Inapplicable cells are blank.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from trnbench.evidence.columns import COLUMNS, StepColumn
from trnbench.facts.catalog.foreign import json_value
from trnbench.facts.catalog.text_file import chunks, refused

MeasuredKind = Literal["matrix", "stream", "launch", "collective", "train"]
KINDS: tuple[MeasuredKind, ...] = get_args(MeasuredKind)
"""Kinds of rows."""
KERNEL_KINDS: tuple[MeasuredKind, ...] = ("matrix", "stream", "launch")
_HEAD_BYTES = 200
SCHEMA = "trnbench.measured/1"

_OWN = (
    StepColumn(name="kind", help=f"what the row is of: {', '.join(KINDS)}"),
    StepColumn(name="date", help="when it was measured"),
    StepColumn(name="device", help="what its backend calls the device"),
    StepColumn(name="backend", help="cpu, cuda or neuron"),
    StepColumn(name="chip", help="the chip of the catalogue that it is, if any"),
    StepColumn(name="software", help="releases of Python, JAX and the backend's compiler"),
    StepColumn(name="driver", help="release of the driver, or of the host's kernel"),
    StepColumn(name="clock", help="clock when it was measured"),
    StepColumn(name="power_limit", help="power limit of a device"),
    StepColumn(name="cores", help="processors of the host that the process could use"),
    StepColumn(name="device_memory_bytes", help="memory of a device"),
    StepColumn(name="cache_bytes", help="the last cache of a host's processor"),
    StepColumn(name="settings", help="environment variables that decide what is measured"),
    StepColumn(name="seed", help="seed of the numbers"),
    StepColumn(name="kernel", help="what was timed"),
    StepColumn(name="shape", help="its sizes on one device"),
    StepColumn(name="dtype", help="format of its operands"),
    StepColumn(name="collective", help="the operation of a collective"),
    StepColumn(name="size_bytes", help="size of a collective, as nccl-tests counts"),
    StepColumn(name="latency_ms", help="median time of a kernel, all devices at work"),
    StepColumn(name="time_us", help="median time of a collective"),
    StepColumn(name="low_s", help="the 5th of 100 repeats"),
    StepColumn(name="high_s", help="the 95th of 100 repeats"),
    StepColumn(name="spread", help="half of what lies between these, over the median"),
    StepColumn(name="known_to", help="half width of the median's 95 % interval, over the median"),
    StepColumn(name="repeats", help="repeats"),
    StepColumn(name="outliers", help="repeats far from the others"),
    StepColumn(name="processor_s", help="what the host's processors were busy with one repeat"),
    StepColumn(name="compile_s", help="time of compiling, and of the first run"),
    StepColumn(name="flop", help="operations on one device"),
    StepColumn(name="bytes", help="bytes of memory that one device reads and writes"),
    StepColumn(name="flop_per_s", help="operations a second of one device"),
    StepColumn(name="bytes_per_s", help="bytes a second of one device"),
    StepColumn(name="algbw_bytes_per_s", help="size of a collective over its time"),
    StepColumn(name="busbw_bytes_per_s", help="the same, times the bus factor of nccl-tests"),
    StepColumn(name="check", help="error of the numbers over the largest there may be"),
    StepColumn(name="compiled_flop", help="operations of a step by the compiler's cost analysis"),
    StepColumn(name="first_loss", help="loss of the first step"),
    StepColumn(name="last_loss", help="loss of the last step"),
)
_NAMED = {column.name: column for column in (*_OWN, *COLUMNS)}
MEASURED_COLUMNS: tuple[StepColumn, ...] = tuple(_NAMED.values())
"""Every column of the file, in order."""


def is_measured_json(path: Path) -> bool:
    """True when a file begins as the JSON of such a table does."""
    head = next(chunks(path, what="JSON"), b"")
    return SCHEMA.encode() in head[:_HEAD_BYTES]


def is_measured(columns: Iterable[str]) -> bool:
    """True when a table with these columns is one of several kinds."""
    return {"kind", "software", "repeats"} <= set(columns)


def measured_text(rows: Sequence[Mapping[str, str]], *, as_json: bool = False) -> str:
    """Rows as the text of a file: CSV, or JSON with the same cells."""
    filled = {name for row in rows for name, cell in row.items() if cell}
    names = [column.name for column in MEASURED_COLUMNS if column.name in filled]
    if as_json:
        cells = [{name: row[name] for name in names if row.get(name)} for row in rows]
        return json.dumps({"schema": SCHEMA, "rows": cells}, indent=1) + "\n"
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([row.get(name, "") for name in names] for row in rows)
    return out.getvalue()


def csv_of_json(path: Path, text: str) -> str:
    """The CSV text of a JSON file of measured rows; any other JSON is refused."""
    document = json_value(path, text)
    rows = document.get("rows") if isinstance(document, dict) else None
    if not isinstance(rows, list) or document.get("schema") != SCHEMA:
        raise refused(path, f"is no JSON of measured rows: its schema is not {SCHEMA}")
    texts = (isinstance(row, dict) and all(type(x) is str for x in row.values()) for row in rows)
    if not all(texts):
        raise refused(path, "has rows whose cells are no texts")
    return measured_text([{"kind": "", **row} for row in rows])
