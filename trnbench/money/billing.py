"""Bills: wall time and machines -> USD, over arrays of runs; and one run's bill with its notes.

Money is charged by three rules, one for each kind of purchase option:

    metered           on-demand, spot, quote: started seconds, at least the minimum
                      |=====run=====|
                      |----paid-----|

    committed         reserved, savings-plan: whole terms are signed for
                      |=====run=====|
                      |------------------ term, e.g. 1 year ------------------|
                      charged "whole": the term; "share": the run's part, the rest
                      being of use to others. The bill shows both sums.

    capacity-block    whole days of whole blocks, paid up front
                      |== block 1 ==|e|s|======= block 2 =======|e|
                      |-----------------------paid----------------|
                      e: a block ends early; s: seam, a checkpoint and a start. Both are paid
                      for and not used. Machines come in block sizes, so more may be paid for
                      than run.

All three fill the same record, `Charges`:

    billed_hours, usable_hours   of each machine; they differ by the early ends of blocks
    machines                     paid for: the nodes, or the next sum of block sizes
    elapsed_s                    start to end, with gaps between blocks; wall time otherwise
    cost_usd                     charged to this run
    committed_usd, share_usd     signed for, and the part of it that the run uses
    upfront_usd                  due before the start; terms count as paid by the month

Intervals of a cost are not scaled but billed again at each end (`cost`), as blocks and terms cost
in steps. A run of more than 1000 years counts as endless: its hours and costs are NaN.

`charges` works on arrays and answers "how much"; `bill` takes a single run and adds what a buyer
needs: block lengths and sizes, terms, sources of prices, notes and warnings, or the reasons why the
run cannot be bought this way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Generic, Literal

import numpy as np
from numpy.typing import ArrayLike

from trnbench.facts.arrays import FloatArray
from trnbench.facts.hardware.instance import PurchaseOption
from trnbench.facts.prices.purchase import BlockRules, PurchaseRules
from trnbench.facts.records import Record
from trnbench.facts.units import DAY_S, HOUR_S, Dimension, show, significant
from trnbench.money.capacity_blocks import cheapest_row, durations_of, single_block_days, sizes_of
from trnbench.money.failures import ranged
from trnbench.money.goodput import Amount, at_index
from trnbench.money.purchase import Offers, Tariff

METERED: tuple[PurchaseOption, ...] = ("on-demand", "spot", "quote")
LONGEST_S = 1000 * 365 * DAY_S
"""A longer run counts as endless."""
RateEnd = Literal["used", "low", "high"]
"""The rate itself, or an end of its range."""


class Charges(Record, Generic[Amount]):
    """Charges under one tariff, of one run or arrays over runs; NaN where none can be bought."""

    machines: Amount
    """Machines paid for, at least as many as run."""
    billed_hours: Amount
    """Paid hours of each machine."""
    usable_hours: Amount
    """Paid hours of each machine, less the early ends of blocks."""
    restarts: Amount
    """Seams between blocks."""
    seam_hours: Amount
    """Hours of all seams together."""
    elapsed_s: Amount
    """Seconds from start to end, with the gaps between blocks."""
    cost_usd: Amount
    upfront_usd: Amount
    """Due before the start; terms count as paid by the month."""
    committed_usd: Amount
    """USD signed for."""
    share_usd: Amount
    """Part of `committed_usd` that the run uses."""

    def at(self, index: tuple[int, ...] = ()) -> Charges[float]:
        return Charges(**at_index(self, index))


class Bill(Record):
    """One run's bill, term by term; USD, and hours of each machine."""

    tariff: Tariff
    nodes: int
    wall_s: float
    charged: Charges[float]
    storage_usd: float = 0.0
    """Part of the cost for kept checkpoints."""
    once_usd: float = 0.0
    """Part of the cost that is paid once, as for moving; the rest is for machines."""
    blocks_days: tuple[int, ...] = ()
    """Days of each block to buy, one after the other."""
    block_sizes: tuple[int, ...] = ()
    """Machines of each block to buy, side by side."""
    single_block_days: int | None = None
    """Days of one block that would hold the run, where `blocks_days` has several."""
    single_block_usd: float | None = None
    """USD of that block."""
    notes: tuple[str, ...] = ()
    """Notes on the purchase, besides those on the tariff."""
    warnings: tuple[str, ...] = ()

    @property
    def machines(self) -> int:
        return round(self.charged.machines)

    @property
    def restarts(self) -> int:
        return round(self.charged.restarts)


def charges(
    offers: Offers,
    tariff: Tariff,
    *,
    wall_s: ArrayLike,
    nodes: ArrayLike,
    seam_s: ArrayLike = 0.0,
    rate: RateEnd = "used",
) -> Charges[FloatArray]:
    """Charges of runs; `seam_s` are the seconds lost to a stop and a start between blocks."""
    wall, count, seam = np.broadcast_arrays(
        ending(wall_s), np.asarray(nodes, float), np.asarray(seam_s, float)
    )
    # The ends of a rate matter only for ranges of the cost: zones of spot, second-hand rates.
    usd = {
        "used": tariff.usd_per_hour,
        "low": tariff.low_usd_per_hour,
        "high": tariff.high_usd_per_hour,
    }[rate]
    rules = offers.rules
    if tariff.option in METERED or rules is None:
        return _metered(rules, usd, wall, count)
    if tariff.option == "capacity-block":
        block = rules.block_of(offers.instance)
        if offers.terms.single_block:
            return _one_block(block, usd, wall, count)
        return _blocks(block, usd, wall, count, seam)
    return _committed(rules, offers, tariff, usd, wall, count)


def ending(wall_s: ArrayLike) -> FloatArray:
    """Wall times in seconds, infinite above `LONGEST_S`."""
    wall = np.asarray(wall_s, float)
    return np.where(wall <= LONGEST_S, wall, np.inf)


def _metered(
    rules: PurchaseRules | None, usd: float, wall: FloatArray, nodes: FloatArray
) -> Charges[FloatArray]:
    billed = wall
    if rules is not None:
        step = rules.metered.step_s
        billed = np.maximum(np.ceil(wall / step) * step, rules.metered.minimum_s)
    hours = np.where(np.isfinite(wall), billed, np.nan) / HOUR_S
    cost = hours * nodes * usd
    return _by_hour(
        wall, nodes, hours, cost_usd=cost, committed_usd=np.zeros(wall.shape), share_usd=cost
    )


def _committed(
    rules: PurchaseRules,
    offers: Offers,
    tariff: Tariff,
    usd: float,
    wall: FloatArray,
    nodes: FloatArray,
) -> Charges[FloatArray]:
    term = term_years(rules, offers, tariff) * rules.commitment.year_s
    used = np.where(np.isfinite(wall), wall, np.nan)
    committed_hours = np.ceil(used / term) * term / HOUR_S
    committed = committed_hours * nodes * usd
    share = used / HOUR_S * nodes * usd
    whole = offers.terms.commitment == "whole"
    hours = committed_hours if whole else used / HOUR_S
    cost = committed if whole else share
    return _by_hour(wall, nodes, hours, cost_usd=cost, committed_usd=committed, share_usd=share)


def _by_hour(
    wall: FloatArray, nodes: FloatArray, hours: FloatArray, **usd: FloatArray
) -> Charges[FloatArray]:
    """Charges of machines without seams and without a payment up front."""
    none = np.zeros(wall.shape)
    return Charges(
        machines=nodes,
        billed_hours=hours,
        usable_hours=hours,
        restarts=none,
        seam_hours=none,
        elapsed_s=wall,
        upfront_usd=none,
        **usd,
    )


def _blocks(
    rules: BlockRules, usd: float, wall: FloatArray, nodes: FloatArray, seam: FloatArray
) -> Charges[FloatArray]:
    days, blocks = cheapest_row(rules, wall, seam)
    return _in_blocks(rules, usd, (wall, nodes, seam), (days, blocks, _machines(rules, nodes)))


def _one_block(
    rules: BlockRules, usd: float, wall: FloatArray, nodes: FloatArray
) -> Charges[FloatArray]:
    """Charges of runs that one block of allowed size and length holds; NaN of others."""
    days = _single_days(rules, wall)
    sizes = np.append(np.array(sorted(rules.sizes), float), np.nan)
    machines = sizes[np.searchsorted(sizes[:-1], nodes)]
    days, machines = (np.where(np.isnan(days + machines), np.nan, one) for one in (days, machines))
    bought = (days, np.where(np.isnan(days), np.nan, 1.0), machines)
    return _in_blocks(rules, usd, (wall, nodes, np.zeros(wall.shape)), bought)


def _in_blocks(
    rules: BlockRules,
    usd: float,
    run: tuple[FloatArray, FloatArray, FloatArray],
    bought: tuple[FloatArray, FloatArray, FloatArray],
) -> Charges[FloatArray]:
    """Charges of runs (wall and seam seconds, nodes) in blocks: days in all, blocks, machines."""
    (wall, nodes, seam), (days, blocks, machines) = run, bought
    seams = blocks - 1
    hours = days * DAY_S / HOUR_S
    cost = hours * machines * usd
    # Between two blocks pass the early end of the first and the seam.
    return Charges(
        machines=machines,
        billed_hours=hours,
        usable_hours=hours - blocks * rules.ends_early_s / HOUR_S,
        restarts=seams,
        seam_hours=seams * seam / HOUR_S,
        elapsed_s=wall + seams * (rules.ends_early_s + seam),
        cost_usd=cost,
        upfront_usd=cost,
        committed_usd=cost,
        share_usd=wall / HOUR_S * nodes * usd,
    )


def _machines(rules: BlockRules, nodes: FloatArray) -> FloatArray:
    """Machines to buy for each number of nodes; NaN where blocks do not hold so many."""
    # The search over block sizes runs once for each distinct number of nodes.
    distinct, where = np.unique(nodes, return_inverse=True)
    bought = [
        float(sum(sizes)) if (sizes := sizes_of(rules, int(count))) else np.nan
        for count in distinct
    ]
    return np.array(bought)[where].reshape(nodes.shape)


def single_block_usd(
    offers: Offers, tariff: Tariff, *, wall_s: FloatArray, nodes: FloatArray
) -> FloatArray:
    """USD of runs in one block each; NaN where no block holds the run or blocks are not sold."""
    if tariff.option != "capacity-block" or offers.rules is None:
        return np.full(wall_s.shape, np.nan)
    rules = offers.rules.block_of(offers.instance)
    days = _single_days(rules, wall_s)
    return np.asarray(days * DAY_S / HOUR_S * _machines(rules, nodes) * tariff.usd_per_hour)


def _single_days(rules: BlockRules, wall_s: FloatArray) -> FloatArray:
    """Days of the shortest block that holds a run; NaN where no block is long enough."""
    lengths = np.append(np.array(rules.durations_days, float), np.nan)
    days: FloatArray = lengths[np.searchsorted(lengths[:-1], (wall_s + rules.ends_early_s) / DAY_S)]
    return days


def term_years(rules: PurchaseRules, offers: Offers, tariff: Tariff) -> int:
    """Years of a tariff's commitment: as its row states, else as the buyer asks.

    If neither does, an own rate counts for the shortest term and a published rate for the longest,
    so that no term is charged short.
    """
    stated = tariff.price.term_years if tariff.price else None
    unstated = (max if tariff.price else min)(rules.commitment.years)
    return stated or offers.terms.term_years or unstated


def bill(
    offers: Offers, tariff: Tariff, *, wall_s: float, nodes: int, seam_s: float = 0.0
) -> Bill | tuple[str, ...]:
    """One run's bill in full, or the reasons why it cannot be bought this way."""
    charged = charges(offers, tariff, wall_s=wall_s, nodes=nodes, seam_s=seam_s).at()
    if not np.isfinite(charged.cost_usd):
        return _reasons(offers, tariff, wall_s=wall_s, nodes=nodes)
    rules, single = offers.rules, None
    days: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    if rules is None or tariff.option in METERED:
        notes = _spot_notes(rules, tariff)
    elif tariff.option == "capacity-block":
        block = rules.block_of(offers.instance)
        days = durations_of(block, round(charged.billed_hours * HOUR_S / DAY_S))
        sizes = sizes_of(block, nodes) or ()
        single = _single_block(block, tariff, wall_s, charged) if len(days) > 1 else None
        notes = _block_notes(block, days, single, nodes, charged)
        if tariff.discount:
            notes.append("whether the discount covers Capacity Blocks is for its contract to say")
    else:
        notes = [_commitment_words(rules, offers, tariff, charged)]
    return Bill(
        tariff=tariff,
        nodes=nodes,
        wall_s=wall_s,
        charged=charged,
        blocks_days=days,
        block_sizes=sizes,
        single_block_days=single[0] if single else None,
        single_block_usd=single[1] if single else None,
        notes=tuple(notes),
        warnings=(*tariff.warnings, *_zone_warnings(sizes, nodes)),
    )


def added(parts: Sequence[int]) -> str:
    """A sum as people write it: 42 + 3, or 3 x 182 + 119."""
    counted = Counter(parts)
    return " + ".join(f"{n} x {part}" if n > 1 else str(part) for part, n in counted.items())


def _reasons(offers: Offers, tariff: Tariff, *, wall_s: float, nodes: int) -> tuple[str, ...]:
    reasons = []
    if not np.isfinite(ending(wall_s)):
        reasons.append("the run never ends")
    if tariff.option == "capacity-block" and offers.rules is not None:
        rules = offers.rules.block_of(offers.instance)
        if sizes_of(rules, nodes) is None:
            reasons.append(f"{nodes} machines: Capacity Blocks hold {rules.most} on a day at most")
        elif offers.terms.single_block:
            reasons.append("no single Capacity Block holds the run (--buyable-only)")
    return tuple(reasons or ["starting between two Capacity Blocks takes longer than a block"])


def _commitment_words(
    rules: PurchaseRules, offers: Offers, tariff: Tariff, charged: Charges[float]
) -> str:
    years = term_years(rules, offers, tariff)
    share = significant(charged.share_usd)
    committed = significant(charged.committed_usd)
    charged_for = {
        "whole": f"all of it is charged; the run uses {share} USD of it",
        "share": f"only the run's part of {committed} USD is charged, the rest is of use to others",
    }[offers.terms.commitment]
    known = offers.terms.term_years or (tariff.price and tariff.price.term_years)
    stated = "" if known else " (assumed)"
    return f"a commitment of {years} year{'s' * (years > 1)}{stated}; {charged_for}"


def _spot_notes(rules: PurchaseRules | None, tariff: Tariff) -> list[str]:
    if tariff.option != "spot" or rules is None:
        return []
    notice = show(rules.spot.notice_s, Dimension.SECONDS)
    notes = [
        f"machines may be taken back at {notice} notice, and there may not be as many",
        _interruption_words(rules),
        _availability_words(rules),
    ]
    known = rules.spot.known_of
    if known is not None and not tariff.instance.startswith(known):
        notes.append(f"nothing is published of spot machines of {tariff.instance}: no middle")
    if tariff.price is None:
        return notes
    low, high = significant(tariff.low_usd_per_hour), significant(tariff.high_usd_per_hour)
    zones = tariff.price.zones or 1
    if zones == 1:
        return ["the price of the only zone read", *notes]
    return [f"the median of {zones} zones, {low} to {high} USD/h", *notes]


def known_availability(offers: Offers, tariff: Tariff) -> bool:
    """True when something was published on the lifetime of such machines, or when they stay."""
    known = offers.rules.spot.known_of if offers.rules else None
    return tariff.option != "spot" or known is None or offers.instance.name.startswith(known)


def _interruption_words(rules: PurchaseRules) -> str:
    spot = rules.spot
    taken = ranged(spot.reclaimed_per_month, rules.provenance, "spot.reclaimed_per_month")
    wait = ranged(spot.wait_s, rules.provenance, "spot.wait")
    month, until, low, high = (
        show(seconds, Dimension.SECONDS)
        for seconds in (spot.month_s, wait.value, wait.low, wait.high)
    )
    return (
        f"{taken.kind.word}: {100 * taken.value:.3g} % of machines are taken back in {month} "
        f"({100 * taken.low:.3g}-{100 * taken.high:.3g} %); another is there after {until} "
        f"({low} to {high})"
    )


def _availability_words(rules: PurchaseRules) -> str:
    spot = rules.spot
    share = ranged(spot.available, rules.provenance, "spot.available")
    away = show(spot.wait_s if spot.zone_wait_s is None else spot.zone_wait_s, Dimension.SECONDS)
    return (
        f"{share.kind.word}: all machines are there {100 * share.value:.3g} % of the time "
        f"({100 * share.low:.3g}-{100 * share.high:.3g} %), and away for {away} at a time, unpaid"
    )


def _zone_warnings(sizes: Sequence[int], nodes: int) -> tuple[str, ...]:
    if len(sizes) < 2 or nodes < 2:
        return ()
    return (
        f"needs {added(sizes)} machines in separate Capacity Blocks in one Availability Zone; "
        "EFA does not cross zones",
    )


def _single_block(
    rules: BlockRules, tariff: Tariff, wall_s: float, charged: Charges[float]
) -> tuple[int, float] | None:
    """(days, USD) of one block that holds a run; None where no block is long enough."""
    days = single_block_days(rules, wall_s)
    if days is None:
        return None
    return days, days * DAY_S / HOUR_S * charged.machines * tariff.usd_per_hour


def _block_notes(
    rules: BlockRules,
    lengths: Sequence[int],
    one: tuple[int, float] | None,
    nodes: int,
    charged: Charges[float],
) -> list[str]:
    early = show(rules.ends_early_s, Dimension.SECONDS)
    notes = [f"paid whole and up front; each block is usable until {early} before its end"]
    if charged.machines > nodes:
        notes.append(f"{int(charged.machines)} machines are the fewest on sale for {nodes}")
    if len(lengths) > 1:
        if one is not None:
            notes.append(
                f"bought as one {one[0]}-day block: {significant(one[1])} USD, no restart. This is "
                f"the cost's upper end: blocks in a row in one zone may not be on sale"
            )
        else:
            notes.append("blocks in a row in one zone are assumed to be on sale")
        notes.append("an extension of a running block, where there is one, saves the restart")
    if sum(lengths[:-1]) * DAY_S > rules.ahead_s:
        ahead = show(rules.ahead_s, Dimension.SECONDS)
        notes.append(f"blocks are sold at most {ahead} ahead: later ones at the rates of then")
    return notes
