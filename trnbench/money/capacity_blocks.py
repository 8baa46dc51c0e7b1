"""Capacity Blocks: the fewest paid days that hold a run, as one block or several in a row.

Model: a run of `wall_s` seconds in k blocks of d1, d2, ... days has the hours of those days, less
the early end of every block, less a seam (a checkpoint before the end, a start in the next) between
two blocks. All days cost the same, so the cheapest purchase has the fewest days. For a number of
days only the fewest blocks that add up to it matter, hence a table of days by blocks.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import or_

import numpy as np
from numpy.typing import ArrayLike

from trnbench.facts.arrays import FloatArray
from trnbench.facts.prices.purchase import BlockRules
from trnbench.facts.units import DAY_S

_LONGEST_IN_TABLE = 20
"""Length of the table in longest blocks; beyond half of it the pattern repeats."""


def cheapest_row(
    rules: BlockRules, wall_s: ArrayLike, seam_s: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """(paid days, blocks) of the fewest days that hold runs; NaN where no blocks in a row do.

    Of equal days the fewest blocks.
    """
    wall, seam = np.broadcast_arrays(np.asarray(wall_s, float), np.asarray(seam_s, float))
    _, enough = _table(rules)
    lost = seam + rules.ends_early_s
    longest = rules.longest_days * DAY_S - lost
    # There is one seam less than blocks. With it taken off, every block loses the same.
    needed = wall - seam
    possible = np.isfinite(wall) & np.isfinite(seam) & (longest > 0)
    # Very long runs are filled with longest blocks first; only the rest needs the table.
    half = (_LONGEST_IN_TABLE // 2) * longest
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = np.where(possible, np.maximum(np.ceil((needed - half) / longest), 0.0), 0.0)
        rest = np.where(possible, needed - whole * longest, 0.0)
    used = np.where(possible, lost, 0.0)
    days, blocks = np.full(rest.shape, np.inf), np.full(rest.shape, np.nan)
    for count, enough_days in enumerate(enough, start=1):
        # So many blocks, and more of them, have more days than are needed.
        if enough_days[0] >= days.max(initial=0.0):
            break
        wanted = np.ceil((rest + count * used) / DAY_S)
        paid = enough_days[np.clip(wanted, 0, len(enough_days) - 1).astype(np.int64)]
        fewer = paid < days
        days, blocks = np.where(fewer, paid, days), np.where(fewer, float(count), blocks)
    return (
        np.where(possible, days + whole * rules.longest_days, np.nan),
        np.where(possible, blocks + whole, np.nan),
    )


def single_block_days(rules: BlockRules, wall_s: float) -> int | None:
    """Days of the shortest block that holds a run; None if no block is long enough."""
    usable = (days for days in rules.durations_days if days * DAY_S - rules.ends_early_s >= wall_s)
    return next(usable, None)


def durations_of(rules: BlockRules, days: int) -> tuple[int, ...]:
    """Fewest block lengths that add up to a number of days, longest first."""
    fewest, _ = _table(rules)
    chosen: list[int] = []
    while days >= len(fewest):
        chosen.append(rules.longest_days)
        days -= rules.longest_days
    while days:
        # The longest block whose remainder still needs one block less.
        fitting = (d for d in reversed(rules.durations_days) if d <= days)
        block = next(d for d in fitting if fewest[days - d] == fewest[days] - 1)
        chosen.append(block)
        days -= block
    return tuple(sorted(chosen, reverse=True))


def sizes_of(rules: BlockRules, nodes: int) -> tuple[int, ...] | None:
    """Block sizes to buy for a number of machines, largest first; None above the limit.

    The fewest machines that suffice, then the fewest blocks.
    """
    most = nodes + max(rules.sizes) if rules.most is None else rules.most
    fewest = _fewest_sizes(rules.sizes, most)
    bought = next((n for n in range(nodes, most + 1) if np.isfinite(fewest[n])), None)
    if bought is None:
        return None
    chosen: list[int] = []
    while bought:
        fitting = (size for size in sorted(rules.sizes, reverse=True) if size <= bought)
        size = next(s for s in fitting if fewest[bought - s] == fewest[bought] - 1)
        chosen.append(size)
        bought -= size
    return tuple(chosen)


@cache
def _table(rules: BlockRules) -> tuple[FloatArray, FloatArray]:
    """The fewest blocks of 0, 1, ... days, and the days of 1, 2, ... blocks that hold so many days.

    The latter by number of blocks, then by days; infinite where so many blocks hold too few.
    """
    fewest = _fewest(rules.durations_days, _LONGEST_IN_TABLE * rules.longest_days)
    most = int(fewest[np.isfinite(fewest)].max())
    enough = np.full((most, len(fewest) + 1), np.inf)
    for count in range(1, most + 1):
        days = np.flatnonzero(fewest == count)
        enough[count - 1, days] = days
    # What holds more days holds fewer, too: the least from each day on.
    return fewest, np.minimum.accumulate(enough[:, ::-1], axis=1)[:, ::-1]


@cache
def _fewest_sizes(sizes: tuple[int, ...], most: int) -> FloatArray:
    return _fewest(sizes, most)


def _fewest(parts: tuple[int, ...], most: int) -> FloatArray:
    """Fewest parts that add up to each of 0 to `most`; infinite where no parts do."""
    fewest = np.full(most + 1, np.inf)
    # With one part more, what was reached last reaches further: each total is met first with the
    # fewest. Totals are bits of a whole number, so that a part is added to all of them by a shift.
    count, missing, reached = 0, (1 << most + 1) - 1, 1
    while reached:
        bits = np.frombuffer(reached.to_bytes(most // 8 + 1, "little"), dtype=np.uint8)
        fewest[np.flatnonzero(np.unpackbits(bits, bitorder="little"))] = count
        missing &= ~reached
        count, reached = count + 1, missing & reduce(or_, (reached << part for part in parts), 0)
    return fewest
