"""A saved question of the main job: train this model on so many tokens, on which instances?

A scenario is a frozen record, and a TOML file of the same keys:

    model = "llama3.1-70b"
    tokens = "2T"
    instances = ["trn1.32xlarge", "p5.48xlarge"]
    deadline = "60 d"
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

from trnbench.errors import DataFileError
from trnbench.facts.catalog.quantity import Ratio, Seconds
from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, exact, parse, show

Count = Annotated[float, Dimension.COUNT]


class Scenario(Record):
    """A training run to be planned; None leaves a choice to the planner or to its defaults.

    `phases` are parts in % of the tokens, as `--phase` takes them. `nodes` fixes the size of every
    cluster; `deadline_s` asks for the cheapest that is done in time. `prices` and `assumed_prices`
    are a buyer's own, as the command line takes them.
    """

    model: str
    tokens: Count
    instances: tuple[str, ...]
    phases: tuple[str, ...] = ()
    sequence: int | None = None
    global_batch: int | None = None
    precision: str | None = None
    nodes: int | None = None
    deadline_s: Seconds | None = None
    purchase: tuple[str, ...] = ()
    region: str | None = None
    discount: Ratio = 0.0
    price_date: datetime.date | None = None
    prices: tuple[str, ...] = ()
    assumed_prices: tuple[str, ...] = ()
    stack: str | None = None


def read_scenario(path: Path) -> Scenario:
    """Return the scenario in a TOML file, or raise DataFileError with every fault in it."""
    from trnbench.facts.catalog.structure import structure
    from trnbench.facts.catalog.toml_file import read_toml

    found = structure(read_toml(path), Scenario)
    if isinstance(found, list):
        raise DataFileError(str(path), found, hint=f"also {'; '.join(map(str, found[1:]))}")
    return found


def scenario_file_options(path: Path) -> dict[str, str | list[str]]:
    """Return the scenario in a file as options of `compare`."""
    return scenario_options(read_scenario(path))


def _count_text(count: float) -> str:
    """Return a count as people write it, such as 2T, where that says all of it."""
    short = show(count, Dimension.COUNT, digits=6)
    return short if parse(short, Dimension.COUNT) == count else exact(count, Dimension.COUNT)


def scenario_options(scenario: Scenario) -> dict[str, str | list[str]]:
    """Return the scenario as options of `compare`, by name and as they are written."""
    plain: dict[str, str | list[str]] = {
        "model": scenario.model,
        "tokens": _count_text(scenario.tokens),
        "phase": list(scenario.phases),
        "on": ",".join(scenario.instances),
        "sequence": str(scenario.sequence or ""),
        "global_batch": str(scenario.global_batch or ""),
        "precision": scenario.precision or "",
        "nodes": str(scenario.nodes or ""),
        "deadline": ""
        if scenario.deadline_s is None
        else exact(scenario.deadline_s, Dimension.SECONDS),
        "purchase": ",".join(scenario.purchase),
        "region": scenario.region or "",
        "discount": repr(scenario.discount) if scenario.discount else "",
        "price_date": "" if scenario.price_date is None else scenario.price_date.isoformat(),
        "price": list(scenario.prices),
        "assume_price": list(scenario.assumed_prices),
    }
    return {name: value for name, value in plain.items() if value}


def scenario_text(scenario: Scenario) -> str:
    """Return the scenario as TOML that reads back as the same scenario."""
    plain: dict[str, object] = {
        "model": scenario.model,
        "tokens": _count_text(scenario.tokens),
        "phases": list(scenario.phases),
        "instances": list(scenario.instances),
        "sequence": scenario.sequence or "",
        "global_batch": scenario.global_batch or "",
        "precision": scenario.precision or "",
        "nodes": scenario.nodes or "",
        "deadline": ""
        if scenario.deadline_s is None
        else exact(scenario.deadline_s, Dimension.SECONDS),
        "purchase": list(scenario.purchase),
        "region": scenario.region or "",
        "discount": scenario.discount,
        "price_date": scenario.price_date or "",
        "prices": list(scenario.prices),
        "assumed_prices": list(scenario.assumed_prices),
        "stack": scenario.stack or "",
    }
    from trnbench.facts.catalog.toml_file import toml_text

    return toml_text({key: value for key, value in plain.items() if value not in ("", [], 0.0)})
