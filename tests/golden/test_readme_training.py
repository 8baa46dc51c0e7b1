"""The README's table of training errors is what `validate` says."""

from __future__ import annotations

import re

import pytest

from tests.golden.test_readme import README, check
from trnbench.show.text_table import TextTable, markdown
from trnbench.verbs.validate.run import validate

TABLE = re.compile(r"(?<=<!-- training -->\n).*?(?=<!-- /training -->)", re.DOTALL)
GROUPS = {
    "trainium": ("fitted",),
    "gpu": ("fitted", "unseen, within stack", "unseen, cross stack"),
}
HEADINGS = (
    *("rows", "count", "mean error", "median", "bias", "within 10 %"),
    *("in the 80 % interval", "its half-width", "naive mean"),
)


@pytest.mark.slow
def test_the_table_of_training_errors_is_current():
    sections = validate(set=tuple(GROUPS))
    rows = [
        _row(section.name, group, section.summary)
        for section in sections
        for group in GROUPS[section.name]
    ]
    table = TextTable(
        headings=HEADINGS, rows=tuple(rows), right=(False, *[True] * (len(HEADINGS) - 1))
    )
    left_out = "\n".join(
        f"- {name}: {100 * fit.without_configuration:.1f} % where each configuration is left out"
        f"\n  of the fit, {100 * fit.error:.1f} % with it, "
        f"over {fit.rows} row{'s' * (fit.rows > 1)}"
        for section in sections
        if section.name == "trainium"
        for name, fit in section.fits.items()
    )
    orders = "\n".join(_order(section.name, section.summary.ranking) for section in sections)
    (found,) = TABLE.finditer(README.read_text())
    check(
        f"<!-- training -->\n{found[0]}<!-- /training -->",
        f"<!-- training -->\n{markdown(table)}\n\n{left_out}\n\n{orders}\n<!-- /training -->",
    )


def _row(name, group, summary):
    errors, naive = summary.errors[group], summary.naive[group]
    shares = (errors.mape, errors.median)
    return (
        f"{name}, {group}",
        str(errors.rows),
        *(f"{100 * share:.1f} %" for share in shares),
        f"{100 * errors.bias:+.1f} %",
        f"{100 * errors.near:.0f} %",
        f"{100 * errors.coverage:.0f} %",
        f"{100 * errors.half_width:.0f} %",
        f"{100 * naive.mape:.0f} %",
    )


def _order(name, order):
    return (
        f"- {name}: Kendall's tau {order.tau:+.2f} over {order.pairs} pairs of layouts measured "
        "more than 5 % apart; the layout\n  predicted fastest was "
        f"{100 * order.regret:.1f} % slower than the fastest on average, "
        f"{100 * order.largest_regret:.0f} % at worst."
    )
