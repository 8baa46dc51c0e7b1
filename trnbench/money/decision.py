"""Choosing under uncertainty: chances of being cheapest, regret, and what a measurement is worth.

Bills are arrays, a row an option and a column a common draw. The *regret* of a choice is its bill
less that of the option that turns out best, averaged over the draws. A *measurement* is one number
a draw, its signal. Preposterior analysis (Raiffa and Schlaifer, 1961): the draws are sorted by the
signal into bins of equal size, and in each bin the option with the least mean bill is chosen. A
choice that is learned and valued on the same draws looks better than it is, so each half of the
draws is valued by what the other half learned.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.records import Record

BINS = 16
"""Outcomes of a measurement that are told apart; each has dozens of draws."""


class BinRule(Record, eq=False):
    """Choices after a measurement: `choices[n]` where the signal is in bin n.

    `edges` are the upper ends of all bins but the last.
    """

    edges: FloatArray
    choices: IntArray

    def choose(self, signal: FloatArray) -> IntArray:
        """Place of the chosen option for each value of the signal."""
        chosen: IntArray = self.choices[np.searchsorted(self.edges, signal, side="right")]
        return chosen


def least_per_group(costs: FloatArray, groups: Sequence[str]) -> dict[str, FloatArray]:
    """Each group's bill, draw by draw, in USD: that of its cheapest option in the draw."""
    return {
        name: costs[[place for place, one in enumerate(groups) if one == name]].min(axis=0)
        for name in dict.fromkeys(groups)
    }


def regret_usd(costs: FloatArray, chosen: FloatArray) -> float:
    """Mean of bills less those of the best option of each draw."""
    return float(np.mean(chosen - costs.min(axis=0)))


def rule_of(costs: FloatArray, signal: FloatArray, bins: int = BINS) -> BinRule:
    """The option with the least mean bill in each bin of a signal."""
    order = np.argsort(signal, kind="stable")
    parts = np.array_split(order, bins)
    choices = np.array([int(costs[:, part].mean(axis=1).argmin()) for part in parts])
    return BinRule(edges=signal[[part[0] for part in parts[1:]]], choices=choices)


def regret_after_usd(costs: FloatArray, signal: FloatArray, bins: int = BINS) -> float:
    """Mean regret, in USD, of choosing after a measurement whose outcome is this signal."""
    halves = (slice(0, None, 2), slice(1, None, 2))
    regrets = []
    for learned, valued in (halves, halves[::-1]):
        rule = rule_of(costs[:, learned], signal[learned], bins)
        there = costs[:, valued]
        chosen = there[rule.choose(signal[valued]), np.arange(there.shape[1])]
        regrets.append(regret_usd(there, chosen))
    return float(np.mean(regrets))
