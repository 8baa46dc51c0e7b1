"""Columns of a measured training step, and of the file that `trnbench measure` writes.

Files with these columns can be scored and fitted. Blank cells are unstated, and the reader lists
its assumptions. A knob's column has the knob's name, or the usual short one.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from trnbench.facts.catalog.foreign import json_value
from trnbench.facts.catalog.text_file import chunks, refused
from trnbench.facts.records import Record
from trnbench.facts.workload.layout import KNOBS, Value

_SHORT = {"micro_batch": "mbs", "global_batch": "gbs", "sequence": "seq"}
"""Usual short columns of knobs."""


class StepColumn(Record):
    """A column: description, an example cell, and other names in files."""

    name: str
    help: str
    example: str = ""
    aliases: tuple[str, ...] = ()


def _column(name: str, help: str, aliases: str = "", *, example: str = "") -> StepColumn:
    return StepColumn(name=name, help=help, example=example, aliases=tuple(aliases.split()))


def column_of(knob: str) -> str:
    return _SHORT.get(knob, knob)


_WHERE = (
    _column("id", "the row's name; default: its line"),
    _column("use", "fit: calibrate fits these rows and leaves out the others"),
    _column("source", "where it was read"),
    _column("licence", "under which terms"),
    _column(
        "instance",
        "instance type, or what its makers call the machine",
        "instance_type system machine on",
        example="p5.48xlarge",
    ),
    _column("nodes", "instances; default: as many as the ranks need", example="2"),
    _column(
        "ranks",
        "logical cores or GPUs in use; default: all of the nodes",
        "world_size n_gpus gpus devices",
    ),
    _column(
        "lnc",
        "physical NeuronCores in a logical one; default: the chip's",
        "logical_nc_config logical_size",
    ),
)
MODEL_COLUMNS = (
    _column("model", "a model of `workload list`, or any name with shapes", example="llama3.1-8b"),
    _column("layers", "layers; default of all shapes: those of the model's name"),
    _column("hidden", "width of the residual stream"),
    _column("heads", "attention heads"),
    _column("kv_heads", "key and value heads"),
    _column("ffn", "width of the MLP"),
    _column("mlp", "swiglu, geglu, gelu, relu or sqrelu"),
    _column("vocab", "vocabulary", "vocab_size"),
    _column("tied", "1 where input and output share one vocabulary matrix, else 0"),
    _column("head_size", "width of a head; default: hidden / heads", "head_dim"),
    _column("experts", "experts of a layer"),
    _column("top_k", "experts that a token goes to"),
    _column("expert_ffn", "width of an expert"),
    _column("shared_experts", "experts that every token goes to"),
    _column("dense_layers", "leading layers without experts"),
    _column("latent", "1 for multi-head latent attention"),
    _column("window", "what is said of sliding windows; taken as the whole sequence"),
)
_KNOB_ALIASES = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "dp": "data_parallel replicas",
    "cp": "context_parallel_size",
    "ep": "expert_parallel",
    "mbs": "micro_batch micro_batch_size microbatch",
    "gbs": "global_batch global_batch_size",
    "seq": "sequence seq_len sequence_length seq_length",
    "zero": "zero_stage",
    "recompute": "activation_recompute activation_checkpointing",
    "precision": "dtype",
}
_EXAMPLES = {"tp": "8", "pp": "1", "mbs": "1", "gbs": "128", "seq": "8192"}
KNOB_COLUMNS = tuple(
    _column(
        name,
        f"--{knob.name.replace('_', '-')}: {knob.help}",
        _KNOB_ALIASES.get(name, ""),
        example=_EXAMPLES.get(name, ""),
    )
    for knob in KNOBS.values()
    for name in [column_of(knob.name)]
)
_OUTCOME = (
    _column(
        "framework",
        "the software that ran; default: the machine's own stack",
        "stack software",
        example="NeMo",
    ),
    _column("release", "its release"),
    _column("offload", "what waited in host memory: activations are scored, other rows are not"),
    _column("data", "mock, packed (samples of their own in a sequence) or real; default: by notes"),
    _column("outcome", "measured (default) or crashed_or_oom", example="measured"),
    _column(
        "step_time_s",
        "wall-clock seconds of a step",
        "step_time step_s time_s iteration_time_s seconds_per_step",
        example="5.0",
    ),
    _column("device_s_per_microbatch", "device seconds of one micro-batch"),
    _column("optimizer_s", "device seconds of the optimizer, once a step"),
    _column("memory_gb", "peak memory of a rank, GiB", "memory_gib peak_memory_gb peak_memory_gib"),
    _column("memory_mib_chip", "steady memory of a chip with all its ranks in use, MiB"),
    _column("recompilations", "compilations between steps, after the first few; logs tell"),
    _column("trust", "high, medium or low; none: not to be used, the notes say why"),
    _column("notes", "remarks"),
)
COLUMNS: tuple[StepColumn, ...] = (*_WHERE, *MODEL_COLUMNS, *KNOB_COLUMNS, *_OUTCOME)
"""Every column of a measured step, in the order of a new file."""
_BY_NAME: Mapping[str, str] = {
    spelling: column.name for column in COLUMNS for spelling in (column.name, *column.aliases)
}


def template_csv() -> str:
    return ",".join(column.name for column in COLUMNS) + "\n"


def cells_of(knobs: Mapping[str, Value]) -> dict[str, str]:
    """Cells for some knobs."""
    cells = {
        column_of(name): str(int(value) if isinstance(value, bool) else value)
        for name, value in knobs.items()
    }
    # A row's bare bf16 leaves open which copies are kept; the recipe of that name keeps none.
    if cells.get("precision") == "bf16":
        cells["precision"] = "bf16-pure"
    return cells


def named_columns(columns: Iterable[str]) -> list[str]:
    """Columns by their canonical names: aliases, capitals and hyphens normalised."""
    return [_BY_NAME.get(_plain(column), column) for column in columns]


def _plain(column: str) -> str:
    return re.sub(r"[\s\-]+", "_", column.strip().lower())


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
    StepColumn(name="throttled", help="why its clock was no higher, while it was measured"),
    StepColumn(name="power_limit", help="power limit of a device"),
    StepColumn(name="ecc", help="on where its memory corrects errors, else off"),
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
    StepColumn(
        name="latency_ms",
        help="time of a kernel, all devices at work: least median of a block",
    ),
    StepColumn(name="time_us", help="time of a collective, likewise"),
    StepColumn(name="low_s", help="the 5th of 100 repeats"),
    StepColumn(name="high_s", help="the 95th of 100 repeats"),
    StepColumn(name="spread", help="half the range of the blocks' medians, over the least"),
    StepColumn(name="known_to", help="half width of the median's 95 % interval, over the median"),
    StepColumn(name="repeats", help="repeats"),
    StepColumn(name="outliers", help="blocks of repeats far from the others"),
    StepColumn(name="processor_s", help="what the host's processors were busy with one repeat"),
    StepColumn(name="compile_s", help="time of compiling, and of the first run"),
    StepColumn(name="flop", help="operations on one device"),
    StepColumn(name="bytes", help="bytes of memory that one device reads and writes"),
    StepColumn(name="flop_per_s", help="operations per second of one device"),
    StepColumn(name="bytes_per_s", help="bytes per second of one device"),
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
        raise refused(path, f"is not a JSON file of measured rows: its schema is not {SCHEMA}")
    texts = (isinstance(row, dict) and all(type(x) is str for x in row.values()) for row in rows)
    if not all(texts):
        raise refused(path, "has rows whose cells are not texts")
    return measured_text([{"kind": "", **row} for row in rows])
