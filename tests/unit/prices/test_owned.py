"""What an hour of a machine of one's own costs, by hand."""

from __future__ import annotations

import pytest

from trnbench.facts.prices.owned import Owning, rate_terms


def test_an_hour_is_purchase_power_and_staff():
    # 300,000 / (4 x 8,760) = 8.5616; 10.2 kW x 0.12 = 1.224; 17,520 a year / 8,760 = 2.
    terms = rate_terms(
        Owning(capex_usd=300e3, years=4, power_w=10.2e3, usd_per_kwh=0.12, staff_usd_per_year=17520)
    )
    assert [term.name for term in terms] == ["purchase", "power", "staff"]
    assert [term.usd_per_hour for term in terms] == pytest.approx([8.561644, 1.224, 2.0])


def test_only_what_is_given_is_a_term_and_no_overhead_is_made_up():
    (only,) = rate_terms(Owning(capex_usd=8760.0, years=1))
    assert (only.name, only.usd_per_hour) == ("purchase", 1.0)
    powered = Owning(capex_usd=8760.0, years=1, power_w=1000.0, usd_per_kwh=0.1)
    assert rate_terms(powered)[1].usd_per_hour == pytest.approx(0.1)


def test_a_sites_overhead_multiplies_the_power():
    terms = rate_terms(
        Owning(capex_usd=1.0, years=1, power_w=1000.0, usd_per_kwh=0.1, power_overhead=1.3)
    )
    assert terms[1].usd_per_hour == pytest.approx(0.13)
    assert terms[1].note.endswith("times 1.3 for its site")
