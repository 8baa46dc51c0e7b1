"""A saved question of `compare`: its options <-> a TOML file.

    model = "llama3.1-70b"
    tokens = "2T"
    instances = ["trn1.32xlarge", "p5.48xlarge"]
    deadline = "60 d"

A key is the field of the question, its type what the option is read to; `nodes` is one number. What
is not in the file is left to the planner or to its defaults.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import new_class
from typing import Annotated, Any

from trnbench.errors import DataFileError, Fault
from trnbench.facts import parsing
from trnbench.facts.catalog.quantity import Ratio, Seconds
from trnbench.facts.records import Record, asdict
from trnbench.facts.units import Dimension
from trnbench.facts.workload.layout import KNOBS
from trnbench.verbs.asking.option import Given, Option
from trnbench.verbs.compare.question import CompareQuestion

NEEDED = ("model", "instances")
KEYS = (
    *("model", "tokens", "phases", "instances", "sequence", "global_batch", "precision", "nodes"),
    *("deadline", "purchase", "region", "discount", "price_date", "prices", "assumed_prices"),
    *("stack", "speed", "mfu", "migration_cost"),
)
"""What comes first in a file; all other options of a comparison may follow."""
_NOT_KEPT = ("equal_cost", "sensitivity", "baseline", "check_capacity")
_FORMS: Mapping[object, Any] = {
    parsing.count: Annotated[float, Dimension.COUNT],
    parsing.duration: Seconds,
    parsing.deadline: Seconds,
    parsing.share: Ratio,
    parsing.date: datetime.date,
    parsing.whole: int,
}
"""By the reader of an option, the type of its value in a file."""


@cache
def scenario_options() -> Mapping[str, Option]:
    by_key = {
        one.field if one.field in KNOBS else one.field.removesuffix("_s"): one
        for one in CompareQuestion.options().values()
        if one.field not in _NOT_KEPT
    }
    return {**{key: by_key[key] for key in KEYS}, **by_key}


def read_scenario(path: Path) -> dict[str, Any]:
    """Return the options in a TOML file, or raise DataFileError with every fault in it."""
    from trnbench.facts.catalog.structure import structure
    from trnbench.facts.catalog.toml_file import read_toml

    table = structure(read_toml(path), _table())
    if isinstance(table, list):
        raise DataFileError(str(path), table, hint=f"also {'; '.join(map(str, table[1:]))}")
    values = asdict(table)
    if not any(values[key] for key in ("tokens", "samples", "phases")):
        lacking = Fault(path="tokens", message="missing: how long is the run?")
        raise DataFileError(str(path), [lacking], hint='e.g. tokens = "2T", or samples = "50K"')
    nodes = values["nodes"]
    values["nodes"] = () if nodes is None else (nodes,)
    return {one.name: values[key] for key, one in scenario_options().items() if _says(values[key])}


def scenario_file_options(path: Path) -> dict[str, str | list[str]]:
    given = read_scenario(path)
    options = scenario_options().values()
    return {one.name: one.text(given[one.name]) for one in options if one.name in given}


def scenario_text(given: Given) -> str:
    """Return options as TOML that reads back as the same options."""
    from trnbench.facts.catalog.toml_file import toml_text

    table = {
        key: _written(key, one, given[one.name])
        for key, one in scenario_options().items()
        if _says(given.get(one.name))
    }
    if "nodes" in table:
        table["nodes"] = next(iter(table["nodes"]))
    return toml_text(table)


@cache
def _table() -> type[Record]:
    """Return the form of a file: a record of its keys."""
    forms = {key: _form(key, one) for key, one in scenario_options().items()}
    open_keys = [key for key in forms if key not in NEEDED]
    space = {
        "__module__": __name__,
        "__annotations__": forms | {key: forms[key] | None for key in open_keys},
        **dict.fromkeys(open_keys),
    }
    return new_class("ScenarioFile", (Record,), exec_body=lambda own: own.update(space))


def _form(key: str, one: Option) -> Any:  # noqa: ANN401 - a type
    if key in KNOBS:
        return KNOBS[key].kind
    if one.is_switch or one.kind is float:
        return one.kind
    return _FORMS.get(one.read) or (tuple[str, ...] if one.several else str)


def _written(key: str, one: Option, given: Any) -> Any:  # noqa: ANN401
    value = one.value(given)
    if key in KNOBS or one.kind is float:
        return value
    if isinstance(value, tuple):
        return list(value)
    return one.text(value) if isinstance(value, float) and value else value


def _says(value: object) -> bool:
    return value not in (None, (), [], "")
