"""Numbers of a comparison moved in steps, the plans that follow, and the options that say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trnbench.facts.parsing import count_text, share_text, time_text
from trnbench.facts.records import Record
from trnbench.show.row import Interval
from trnbench.verbs.asking.option import Given

STEP = 0.05
"""Share by which one step moves a number."""
LEAST, MOST = -18, 60
"""Steps as far as a number is moved."""
Steps = Mapping[tuple[str, str], int]
"""Steps of 5 % by what is moved, and the instance type where it is of one."""


class Supposed(Record):
    """The best plan of an instance type: its days, its mean bill, and its chance in the draws."""

    instance: str
    nodes: int
    days: Interval
    cost_usd: Interval | None
    cheapest: float
    usd_per_hour: float | None = None
    """Rate of an instance, before any move; None where it has no price."""


class WhatIfFound(Record):
    """Plans as the steps have them and as they were, the least mean bill first, and the verdict."""

    steps: Steps
    moved: tuple[Supposed, ...]
    before: tuple[Supposed, ...]
    deadline_s: float | None
    verdict: str


def discount_of(now: float, steps: Steps) -> float:
    """A discount with its steps, from none to nearly all."""
    return round(min(max(now + STEP * steps.get(("discount", ""), 0), 0.0), 0.95), 6)


def moved_scenario(scenario: Given, steps: Steps, deadline_s: float | None) -> dict[str, Any]:
    """The options that ask for the moved numbers; own prices in USD are moved themselves."""
    given = dict(scenario)
    prices = {text.partition("=")[0].strip(): text for text in given.get("price") or ()}
    for (what, of), count in steps.items():
        change = f"{round(100 * STEP * count):+d}%"
        match what:
            case "price" if "%" in prices.get(of, ""):
                was = 1 + float(prices[of].partition("=")[2].strip(" %")) / 100
                prices[of] = f"{of}={100 * (was * (1 + STEP * count) - 1):+.6g}%"
            case "price" if of in prices:
                usd = float(prices[of].partition("=")[2].strip(" ?"))
                prices[of] = f"{of}={usd * (1 + STEP * count):.6g}"
            case "price":
                prices[of] = f"{of}={change}"
            case "speed":
                given["speed"] = (*(given.get("speed") or ()), f"{of}={change}")
            case "tokens":
                length = "tokens" if given.get("tokens") else "samples"
                given[length] = count_text(given[length] * (1 + STEP * count))
            case "deadline" if deadline_s is not None:
                given["deadline"] = time_text(deadline_s * (1 + STEP * count))
            case _:
                given["discount"] = share_text(discount_of(given.get("discount") or 0.0, steps))
    return {**given, "price": tuple(prices.values())} if prices else given
