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

import attrs

from trnbench.catalog.quantity import Ratio, Seconds
from trnbench.errors import DataFileError
from trnbench.units import Dimension, exact

Count = Annotated[float, Dimension.COUNT]


@attrs.frozen(kw_only=True)
class Scenario:
    """A training run to be planned; None leaves a choice to the planner or to its defaults.

    `nodes` fixes the size of every cluster; `deadline_s` asks for the cheapest that is done in
    time. `prices` and `assumed_prices` are a buyer's own, as the command line takes them.
    """

    model: str
    tokens: Count
    instances: tuple[str, ...]
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


def read_scenario(path: Path) -> Scenario:
    """Return the scenario in a TOML file, or raise DataFileError with every fault in it."""
    from trnbench.catalog.structure import structure
    from trnbench.catalog.toml_file import read_toml

    found = structure(read_toml(path), Scenario)
    if isinstance(found, list):
        raise DataFileError(str(path), found, hint=f"also {'; '.join(map(str, found[1:]))}")
    return found


def scenario_text(scenario: Scenario) -> str:
    """Return the scenario as TOML that reads back as the same scenario."""
    plain: dict[str, object] = {
        "model": scenario.model,
        "tokens": exact(scenario.tokens, Dimension.COUNT),
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
    }
    from trnbench.catalog.toml_file import toml_text

    return toml_text({key: value for key, value in plain.items() if value not in ("", [], 0.0)})
