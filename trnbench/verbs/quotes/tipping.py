"""Distance of each input from the value at which another instance type is recommended.

Every move is answered from the same clusters, layouts and draws as the comparison itself: prices,
speeds, tokens and failures change what a cluster costs, and the deadline which clusters will do.
Nothing is searched again, as a layout that is the fastest stays the fastest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.facts.units import Dimension, money_text, show, significant
from trnbench.money.market import Market
from trnbench.money.objective import Limits
from trnbench.predict.common_draws import CommonDraws
from trnbench.show.charts.record import SENSITIVITY, Bar, BarChart, ChartAxis, parts_of
from trnbench.show.report import change_text
from trnbench.show.row import Row, cells
from trnbench.show.text_table import Style
from trnbench.verbs.quotes.draws import fastest_work_s
from trnbench.verbs.quotes.markets import Explored
from trnbench.verbs.quotes.question import RunRequest
from trnbench.verbs.quotes.rivals import best_of_market
from trnbench.verbs.quotes.text import time_text

FURTHEST = 4.0
"""Inputs are moved to a fourth and to four times what they are."""
STEP = 1.15
"""Factor between inputs that are tried before the change is narrowed down."""
NEAR = 1.002
"""Factor between two inputs with different choices that are as good as one."""
NONE = "none keeps it"
MovedInput = Literal["price", "speed", "deadline", "budget", "tokens", "failures"]


class Tipping(Record):
    """An input and the multiples of it at which the choice changes, downwards and upwards.

    A multiple is None where the choice stays as far as inputs are moved; `down_to` and `up_to` are
    the types recommended then, None where no type keeps the limits any more.
    """

    moved: MovedInput
    instance: str | None = None
    now: str = ""
    down: float | None = None
    down_to: str | None = None
    up: float | None = None
    up_to: str | None = None

    @property
    def title(self) -> str:
        return f"{self.moved} of {self.instance}" if self.instance else self.moved

    @property
    def distance(self) -> float:
        """Logarithm of the smaller move that changes the choice."""
        return min((abs(math.log(one)) for one in (self.down, self.up) if one), default=math.inf)

    def row(self) -> Row:
        return cells(self, "moved instance now down down_to up up_to")


class TippingWorld(Record, eq=False):
    """The choice, and the seconds of pure training that its draws have on each cluster.

    `sizes` are the numbers of nodes that are compared, None the cheapest. `late`: where no plan of
    a type keeps the limits, the nearest one stands for it.
    """

    run: RunRequest
    limits: Limits
    explored: tuple[Explored, ...]
    sizes: Sequence[int | None] = (None,)
    late: bool = False
    draws: CommonDraws = field(default_factory=CommonDraws)
    work: Memo[tuple[str, int], FloatArray] = field(default_factory=Memo)

    def mean_usd(self, explored: Explored, market: Market, limits: Limits, slower: float) -> float:
        """Mean bill of the best plan of an instance type; infinite where there is none."""
        moved = replace(explored, market=market)

        def work_s(nodes: int) -> FloatArray:
            return slower * self.work.of(
                (explored.name, nodes), lambda: fastest_work_s(explored, nodes, self.draws)
            )

        found = [
            best_of_market(
                moved,
                limits,
                nodes=nodes,
                confidence=self.run.confidence,
                late=self.late,
                work_s=work_s,
            )
            for nodes in self.sizes
        ]
        return min((plans[0].mean_usd for plans in found if plans), default=math.inf)

    def mfu(self, name: str | None) -> float:
        """Highest MFU of an instance type's clusters, from 0 to 1."""
        (one,) = (one for one in self.explored if one.name == name)
        clusters = (cluster for part in one.searches for cluster in part.by_nodes.values())
        return max((cluster.best.mfu for cluster in clusters if cluster.best), default=0.0)

    def means(self, moved: MovedInput, factor: float, only: str | None) -> dict[str, float]:
        """Mean bills by instance type with an input moved, of one type or of all."""
        limits = self.limits
        if moved == "deadline" and limits.deadline_s is not None:
            limits = replace(limits, deadline_s=factor * limits.deadline_s)
        if moved == "budget" and limits.budget_usd is not None:
            limits = replace(limits, budget_usd=factor * limits.budget_usd)
        means = {}
        for one in self.explored:
            if one.market is None or only not in (None, one.name):
                continue
            market, slower = one.market, 1.0
            match moved:
                case "price":
                    market = market.changed(price=factor)
                case "failures":
                    stated = replace(market.stated, failures_times=factor)
                    market = replace(market, stated=stated)
                case "speed" | "tokens":
                    slower = factor if moved == "tokens" else 1 / factor
                    market = market.changed(speed=1 / slower)
            means[one.name] = self.mean_usd(one, market, limits, slower)
        return means


def tippings(
    world: TippingWorld, tell: Callable[[int, int], object] = lambda done, total: None
) -> tuple[Tipping, ...]:
    """Every input with the moves that change the recommended instance type, nearest first.

    `tell` is told the inputs that are done, of all, at every move.
    """
    limits, explored = world.limits, world.explored
    known = world.means("price", 1.0, None)
    chosen = _least(known)
    if chosen is None:
        return ()
    names = [name for name, mean in known.items() if math.isfinite(mean)]
    inputs: list[tuple[MovedInput, str | None]] = [("price", name) for name in names]
    inputs += [("speed", one.name) for one in explored if one.name in known]
    inputs += [("deadline", None)] if limits.deadline_s is not None else []
    inputs += [("budget", None)] if limits.budget_usd is not None else []
    inputs += [("tokens", None), ("failures", None)]
    found: list[Tipping] = []
    for moved, name in inputs:

        def choice(factor: float, moved: MovedInput = moved, name: str | None = name) -> str | None:
            tell(len(found), len(inputs))
            return _least({**known, **world.means(moved, factor, name)})

        down, up = (_first_change(choice, chosen, way) for way in (1 / STEP, STEP))
        if up and moved == "speed" and up[0] * world.mfu(name) > 1:
            up = None
        found.append(
            Tipping(
                moved=moved,
                instance=name,
                now=_now(world, moved),
                down=down and down[0],
                down_to=down and down[1],
                up=up and up[0],
                up_to=up and up[1],
            )
        )
    return tuple(sorted(found, key=lambda one: one.distance))


def _least(means: Mapping[str, float]) -> str | None:
    best = min(means, key=lambda name: (means[name], name), default=None)
    return best if best is not None and math.isfinite(means[best]) else None


def _first_change(
    choice: Callable[[float], str | None], chosen: str, step: float
) -> tuple[float, str | None] | None:
    """The nearest multiple with another choice, and that choice; None within the furthest."""
    tried = int(math.log(FURTHEST) / abs(math.log(step))) + 1
    kept, other = 1.0, chosen
    for place in range(1, tried + 1):
        moved = float(np.clip(step**place, 1 / FURTHEST, FURTHEST))
        found = choice(moved)
        if found == chosen:
            kept = moved
            continue
        other = found or ""
        while max(kept / moved, moved / kept) > NEAR:
            middle = math.sqrt(kept * moved)
            found = choice(middle)
            if found == chosen:
                kept = middle
            else:
                moved, other = middle, found or ""
        return moved, other or None
    return None


def _now(world: TippingWorld, moved: MovedInput) -> str:
    """Present value of an input as text; empty where it differs from type to type."""
    rate = world.run.failures_per_node_day
    match moved:
        case "deadline":
            return time_text(world.limits.deadline_s or 0.0)
        case "budget":
            return money_text(world.limits.budget_usd or 0.0)
        case "tokens":
            return show(sum(one.tokens for one in world.explored[0].portions), Dimension.COUNT)
        case "failures" if rate is not None:
            return f"{significant(rate)} per node and day"
        case _:
            return ""


def tipping_block(found: Sequence[Tipping], style: Style, *, plot: bool) -> str:
    """Table of the moves that change the choice, and the inputs that do not within the furthest.

    With `plot`, its chart below.
    """
    changing = [one for one in found if math.isfinite(one.distance)]
    still = [one.title for one in found if one not in changing]
    rows = [
        (
            f"{one.title}{f' ({one.now})' if one.now else ''}",
            *_told(one.down, one.down_to),
            *_told(one.up, one.up_to),
        )
        for one in changing
    ]
    headings = ("input", ">less", "then best", ">more", "then best")
    parts = [style.table(headings, rows)] if rows else []
    if not found:
        parts = ["no type keeps the limits, so no choice can change"]
    if still:
        why = f"from a fourth to {FURTHEST:g} times the choice stays with"
        parts.append(style.wrap(f"{why}: {', '.join(still)}"))
    told = style.titled("What would change the choice", "\n".join(parts))
    if not (plot and found):
        return told
    from trnbench.show.charts.text import chart_text  # few ask for drawings

    return f"{told}\n\n{chart_text(tipping_chart(found), style)}"


def _told(factor: float | None, to: str | None) -> tuple[str, str]:
    return ("", "") if factor is None else (change_text(factor), to or NONE)


def tipping_chart(found: Sequence[Tipping]) -> BarChart:
    """A tornado: from which change down to which change up the choice stays, nearest first."""
    most = 100 * (FURTHEST - 1)
    bars = []
    for one in found:
        if not math.isfinite(one.distance):
            continue
        low = -75.0 if one.down is None else 100 * (one.down - 1)
        high = most if one.up is None else 100 * (one.up - 1)
        parts = {"less": -low, "more": min(high, 100.0)}
        ends = [change_text(end) for end in (one.down, one.up) if end is not None]
        bars.append(Bar(label=one.title, parts=parts, start=low, text=", ".join(ends)))
    return BarChart(
        title=SENSITIVITY,
        caption="within its bar an input changes nothing; bars end at -75 % and +100 %",
        axis=ChartAxis(title="change, %"),
        bars=tuple(bars),
        parts=parts_of(("less", "more")),
        missing="" if bars else "no input changes the choice",
    )
