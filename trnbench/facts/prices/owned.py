"""What an hour of a machine of one's own costs: its price and what it uses, term by term.

Rates are of an hour in which the machine is there, used or not: an hour of use costs the rate over
the share of hours that are used.
"""

from __future__ import annotations

from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, show, significant

HOURS_PER_YEAR = 8760
WH_PER_KWH = 1000.0


class Owning(Record):
    """What owning one instance costs: bought once, kept for years, powered, looked after.

    `power_w` is what it draws, cooling only if `power_overhead` (its site's power over its own, the
    PUE) says so.
    """

    capex_usd: float
    years: float
    power_w: float = 0.0
    usd_per_kwh: float = 0.0
    power_overhead: float = 1.0
    staff_usd_per_year: float = 0.0


class RateTerm(Record):
    """One term of an hourly rate, with its arithmetic as a note."""

    name: str
    usd_per_hour: float
    note: str


def rate_terms(owning: Owning) -> tuple[RateTerm, ...]:
    """Return the terms of the hourly rate of an instance that is owned, none of them 0."""
    overhead = owning.power_overhead
    found = (
        RateTerm(
            name="purchase",
            usd_per_hour=owning.capex_usd / (owning.years * HOURS_PER_YEAR),
            note=f"{_usd(owning.capex_usd)} over {significant(owning.years)} years of "
            f"{HOURS_PER_YEAR:,} hours",
        ),
        RateTerm(
            name="power",
            usd_per_hour=owning.power_w / WH_PER_KWH * overhead * owning.usd_per_kwh,
            note=f"{show(owning.power_w, Dimension.WATTS)} at "
            f"{_usd(owning.usd_per_kwh)} a kWh"
            + (f", times {significant(overhead)} for its site" if overhead != 1 else ""),
        ),
        RateTerm(
            name="staff",
            usd_per_hour=owning.staff_usd_per_year / HOURS_PER_YEAR,
            note=f"{_usd(owning.staff_usd_per_year)} a year over {HOURS_PER_YEAR:,} hours",
        ),
    )
    return tuple(term for term in found if term.usd_per_hour > 0)


def _usd(value: float) -> str:
    return f"USD {significant(value, 6)}"
