"""Hourly cost of an owned machine, term by term: purchase, power, staff.

Rates are per hour of ownership, idle or not; an hour of use costs the rate over the utilisation.
"""

from __future__ import annotations

from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, show, significant

HOURS_PER_YEAR = 8760
WH_PER_KWH = 1000.0


class Owning(Record):
    """Costs of owning one instance."""

    capex_usd: float
    years: float
    """Depreciation period."""
    power_w: float = 0.0
    """Electrical power of the instance, without cooling."""
    usd_per_kwh: float = 0.0
    power_overhead: float = 1.0
    """PUE of the site: total power over the machines' power."""
    staff_usd_per_year: float = 0.0


class RateTerm(Record):
    """One term of an hourly rate, with its arithmetic as a note."""

    name: str
    usd_per_hour: float
    note: str


def rate_terms(owning: Owning) -> tuple[RateTerm, ...]:
    """Terms above 0 of the hourly rate of an owned instance."""
    overhead = owning.power_overhead
    terms = (
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
    return tuple(term for term in terms if term.usd_per_hour > 0)


def _usd(value: float) -> str:
    return f"USD {significant(value, 6)}"
