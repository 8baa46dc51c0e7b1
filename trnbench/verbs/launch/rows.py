"""Rows of other answers, read as what they say to `launch`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from trnbench.errors import InputError
from trnbench.facts.calibration.training_stack import training_stack_of
from trnbench.facts.catalog.foreign import read_object
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.catalog.text_file import refused
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.units import counted
from trnbench.facts.workload.choices import MachinesFrom
from trnbench.facts.workload.layout import KNOBS
from trnbench.launch.catalogue import framework_for

_NUMBERS = ("nodes", "lnc", "tokens", "checkpoint_interval_s")
_TEXTS = ("model", "instance", "calibration", "job", "purchase")
_ANSWERS = ("plan", "compare", "train", "launch")


def options_of_answer(catalog: Catalog, path: Path, number: int = 1) -> dict[str, Any]:
    """A row of an answer in JSON as `launch` reads it; rows count from 1."""
    answer = read_object(path)
    rows = answer.get("rows")
    if answer.get("schema") not in [f"trnbench.{verb}/1" for verb in _ANSWERS]:
        verbs = ", ".join(_ANSWERS)
        raise refused(path, f"is not a JSON answer of {verbs}: `trnbench plan ... --json`")
    if not isinstance(rows, list) or not rows:
        raise refused(path, "has no rows: nothing kept what was asked")
    if not 1 <= number <= len(rows):
        raise InputError(f"--row {number}: {path} has {counted(len(rows), 'row')}")
    row = rows[number - 1]
    if not isinstance(row, Mapping) or not row.get("feasible"):
        raise InputError(f"{path}: row {number} is one that cannot run")
    return options_of_row(catalog, with_plain_cells(path, number, row))


def with_plain_cells(path: Path, number: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of a file; one whose cells, as far as they are read, are of no kind is refused."""
    for name in (*_NUMBERS, *_TEXTS, *KNOBS):
        value = row.get(name)
        kinds = int | float if name in _NUMBERS else str if name in _TEXTS else int | float | str
        if value is not None and not isinstance(value, kinds):
            wanted = "a number" if name in _NUMBERS else "a text" if name in _TEXTS else "a value"
            raise refused(path, f"row {number}: key {name}: expected {wanted}; correct it")
    return row


def options_of_row(catalog: Catalog, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as `launch` reads it: model, place, framework, layout, length, purchase."""
    needed = ("model", "instance", "nodes")
    missing = [name for name in needed if row.get(name) is None]
    if missing:
        raise InputError(f"a row to launch needs {', '.join(missing)}")
    bought = row.get("purchase")
    return {
        "model": str(row["model"]),
        "on": f"{row['instance']}:{row['nodes']}",
        "stack": framework_of_row(catalog, row),
        "lnc": row.get("lnc"),
        # Of a run in phases the one that takes longest is started: its length is not told.
        "tokens": None if row.get("phases") else row.get("tokens"),
        "checkpoint_interval": row.get("checkpoint_interval_s"),
        "purchase": bought if bought in get_args(MachinesFrom) else None,
        **{name: row[name] for name in KNOBS if row.get(name) is not None},
    }


def framework_of_row(catalog: Catalog, row: Mapping[str, Any]) -> str | None:
    """Framework that the training stack of a row stands for, if there is one.

    A row that names no stack was predicted with the instance's usual one.
    """
    platform = load_platform(catalog, str(row["instance"]))
    stack = str(row.get("calibration") or training_stack_of(catalog, platform.instance.name).name)
    job = row.get("job")
    try:
        return framework_for(catalog, platform, stack, None if job is None else str(job)).name
    except InputError:
        return None  # the command asks for --stack
