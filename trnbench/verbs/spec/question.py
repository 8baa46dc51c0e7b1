"""Question of `spec`: which files, or how a cluster of one's own differs from a known one."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.facts.catalog.search import SPEC_SECTIONS
from trnbench.facts.units import Dimension, exact, parse, show, unit_scale
from trnbench.verbs.asking.question import Question, option

if TYPE_CHECKING:
    from trnbench.facts.prices.owned import Owning

_ADAPTERS = re.compile(r"(?P<count>\d+)\s*[xX]\s*(?P<rate>.+)")
_RATIO = re.compile(r"(?P<down>\d+(\.\d+)?)\s*:\s*(?P<up>\d+(\.\d+)?)")
_MOST_CHIPS = 4096
_COMPARED = ("instances", "chips")


class SpecListQuestion(Question):
    """The spec files of a kind, or of all kinds."""

    kind: str | None = option(
        f"One of {', '.join(SPEC_SECTIONS)}; default: all.",
        metavar="KIND",
        argument=True,
        completes=("kinds of specs",),
    )


class SpecShowQuestion(Question):
    """A spec by its name or alias, or `section/name`."""

    name: str = option("", metavar="NAME", argument=True, required=True, completes=_COMPARED)


class SpecDiffQuestion(Question):
    """Specs side by side; the others are compared with the first."""

    names: tuple[str, ...] = option(
        "", metavar="NAME...", argument=True, required=True, several="repeated", completes=_COMPARED
    )


def _adapters(text: str) -> tuple[int, str]:
    """Number of adapters, and the rate of each as it was written."""
    match = _ADAPTERS.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--network: expected adapters x rate such as 8x400Gbit/s, found {text!r}")
    count = parsing.whole("--network", most=_MOST_CHIPS)(match["count"])
    rate = parsing.quantity("--network", Dimension.BYTES_PER_S)(match["rate"])
    shown = show(rate, Dimension.BYTES_PER_S, scale=unit_scale("Gbit/s", Dimension.BYTES_PER_S))
    exactly = parse(shown, Dimension.BYTES_PER_S) == rate
    return count, shown if exactly else exact(rate, Dimension.BYTES_PER_S)


def _oversubscription(text: str) -> float:
    match = _RATIO.fullmatch(text.strip())
    if match is None or not float(match["up"]):
        raise InputError(f"--oversubscribed: expected a ratio such as 2:1, found {text!r}")
    ratio = float(match["down"]) / float(match["up"])
    if ratio < 1:
        raise InputError(
            f"--oversubscribed: {text!r} is below 1:1, a spine faster than the adapters",
            hint="the first number is of the adapters: 2:1 for a spine with half of their speed",
        )
    return ratio


def _watts(option: str) -> Callable[[str], float]:
    return parsing.quantity(option, Dimension.WATTS)


def _overhead(option: str) -> Callable[[str], float]:
    def parsed(text: str) -> float:
        overhead = parsing.count(option)(text)
        if overhead < 1:
            raise InputError(f"{option} must be at least 1, found {text!r}")
        return overhead

    return parsed


class SpecNewQuestion(Question):
    """An instance `like` a known one, but for what is given.

    `usd_per_hour` is of one instance, stated, or worked out from what `owning` one costs.
    """

    name: str = option("What to call it.", metavar="NAME", argument=True, required=True)
    like: str = option(
        "A known instance that it is like, but for what is given here.",
        metavar="INSTANCE",
        required=True,
        completes=("instances",),
    )
    chip: str | None = option("Its chip.", completes=("chips",))
    chips: int | None = option(
        "Chips of one instance, joined by a switch.", read=partial(parsing.whole, most=_MOST_CHIPS)
    )
    network: tuple[int, str] | None = option(
        "Network adapters of one instance, and what each carries one way: 8x400Gbit/s.",
        parse=_adapters,
        several="one text",
        metavar="NxRATE",
    )
    oversubscription: float | None = option(
        "What adapters carry over what the spine carries for them: 2:1.",
        name="oversubscribed",
        parse=_oversubscription,
        metavar="N:1",
    )
    rails: bool = option(
        "Adapter i of every instance is on leaf switch i; only other traffic crosses the spine.",
        name="rail_optimised",
    )
    usd_per_hour: float | None = option("What an hour of one instance costs.", read=parsing.money)
    capex_usd: float | None = option(
        "Or work that out: what one instance costs to buy,", read=parsing.money
    )
    years: float | None = option("for how many years of 8,760 hours,", read=parsing.count)
    power_w: float | None = option("what it draws, such as 10.2kW,", read=_watts, metavar="POWER")
    usd_per_kwh: float | None = option("what a kWh costs,", read=parsing.money)
    power_overhead: float | None = option(
        "its site's power over its own, if that is paid too,",
        name="pue",
        read=_overhead,
        metavar="N",
    )
    staff_usd_per_year: float | None = option(
        "and a year of who looks after one.", read=parsing.money
    )
    force: bool = option("Replace files of this name that are there.")

    def __post_init__(self) -> None:
        """Refuse a rate that is stated and worked out, and a part of its costs without another."""
        given = self._costs
        if self.usd_per_hour is not None and given:
            raise InputError(
                f"give --usd-per-hour, or what it is worked out from ({', '.join(given)})"
            )
        for part, other in (
            ("--capex", "--years"),
            ("--years", "--capex"),
            ("--power", "--usd-per-kwh"),
            ("--usd-per-kwh", "--power"),
            ("--pue", "--power"),
            ("--staff-usd-per-year", "--capex"),
            ("--power", "--capex"),
        ):
            if part in given and other not in given:
                raise InputError(f"{part} needs {other}")

    @property
    def _costs(self) -> dict[str, float]:
        """The costs of owning that are given, by option."""
        costs = {
            "--capex": self.capex_usd,
            "--years": self.years,
            "--power": self.power_w,
            "--usd-per-kwh": self.usd_per_kwh,
            "--pue": self.power_overhead,
            "--staff-usd-per-year": self.staff_usd_per_year,
        }
        return {name: cost for name, cost in costs.items() if cost is not None}

    @property
    def owning(self) -> Owning | None:
        """The costs of owning one instance, from which its hourly rate follows."""
        if not self._costs:
            return None
        from trnbench.facts.prices.owned import Owning

        return Owning(
            capex_usd=self.capex_usd or 0.0,
            years=self.years or 1.0,
            power_w=self.power_w or 0.0,
            usd_per_kwh=self.usd_per_kwh or 0.0,
            power_overhead=self.power_overhead or 1.0,
            staff_usd_per_year=self.staff_usd_per_year or 0.0,
        )
