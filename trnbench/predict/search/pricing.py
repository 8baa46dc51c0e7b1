"""Times of the layouts of a search that fit: of all, or of those that may be among the best.

The best are found without pricing all: bounds of their times order the layouts (`bounds`), and what
the first ones are found to take leaves out nearly all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import numpy as np

from trnbench.engines.analytic.step.compute import PhaseSeconds, Products
from trnbench.engines.analytic.step.engines import Engines, keep_forms
from trnbench.engines.analytic.step.exchanges import Exchanges, exchanges_of
from trnbench.engines.analytic.step.job_time import JobPrices, job_prices
from trnbench.engines.analytic.step.time import step_prices
from trnbench.facts.arrays import FloatArray, distinct
from trnbench.facts.calibration.coverage import DEGREES
from trnbench.facts.memo import Memo
from trnbench.facts.records import replace
from trnbench.predict.job_rates import job_rates
from trnbench.predict.search.answer import Best, SearchState
from trnbench.predict.search.bounds import Floors
from trnbench.predict.search.counts import COLLECTIVE, FORMAT
from trnbench.predict.search.legality import block_modes, group_modes
from trnbench.predict.search.parts import trimmed
from trnbench.predict.search.pieces import Batch, Bounded
from trnbench.predict.search.plain import usual
from trnbench.predict.search.rows import Rows
from trnbench.predict.search.runs import Programs, SearchHooks, Seen
from trnbench.predict.search.space import ALONG, Space, Variant
from trnbench.program.schedule import splits_backward

CHUNK = 32_768
"""Layouts at a time: their arrays fit a processor's cache."""

NEAR = 1.5
"""Layouts with bounds up to this multiple of the least ones are priced first."""
LARGE = 1 << 20
"""Points of a grid above which the best are priced on a smaller one, with its own programs."""
CHUNKS = ALONG["vpp"]
"""Axis of `vpp`. Prices of exchanges do not depend on the number of chunks of a stage."""


class Pricing(SearchState):
    """A search that prices layouts, and counts those that it need not price."""

    def __init__(self, space: Space, top: int, hooks: SearchHooks, best: Best | None) -> None:
        super().__init__(space, top, best)
        self.top, self.hooks = top, hooks
        # A layout must fit with the careful loss; its memory is told with the expected one.
        question = self.question
        careful, expected = question.fragmentation_ratio, question.stack.fragmentation
        self.lost = (careful,) if careful == expected else (careful, expected)
        self.expected = 0
        self._engines: Engines = {}

    def stopped(self) -> bool:
        self.has_stopped = self.has_stopped or self.hooks.cancel()
        return self.has_stopped

    def keep_forms(self) -> None:
        """Keep closed forms for later processes; the result of the search needs them no more."""
        keep_forms(self._engines)
        self._engines = {}

    def price_some(self, space: Space, fitting: list[Batch]) -> None:
        """Price all layouts that fit, or of the best those whose bounds do not leave them out."""
        products = Products()
        exchanges = self._exchanges(space, fitting)
        if self.best is None:
            self._price(fitting, products, exchanges, [])
            return
        floors = Floors(self.question, products, exchanges)
        waiting = [self._bounded(batch, floors) for batch in fitting]
        least = self._least(waiting, self.top, sure=False), self._least(waiting, 1, sure=True)
        near = [
            np.minimum(NEAR * one, known) for one, known in zip(least, self._worst, strict=True)
        ]
        # Most of the best are found among the layouts whose bounds are near the least ones; what
        # these found leaves out the others, but for a few.
        for last in (False, True):
            some, waiting = self._within(waiting, self._worst if last else near, floors)
            if some:
                self._price_best(some, products, exchanges)
        for one in waiting if not self.has_stopped else ():
            self.counts.outpace(one.clusters, one.held)
        self.tell()

    @property
    def _covered(self) -> bool:
        """True where the best layout within the stack's rows is looked for, too."""
        return self.question.stack.covers is not None and self.best != "of all"

    @property
    def _worst(self) -> tuple[FloatArray, FloatArray]:
        """Scores on each cluster up to which layouts count, and those within the rows."""
        worst = self.ranking.worst
        return worst if self.plain is None else self.plain.worst(worst), self.sure.worst

    def _bounded(self, batch: Batch, floors: Floors) -> Bounded:
        found = Bounded.of(batch, floors, self._covered)
        if self.plain is None:
            return found
        layouts = batch.layouts
        points = layouts.first if isinstance(layouts, Rows) else layouts
        return replace(found, asked=usual(batch.run, points))

    def _within(
        self, waiting: Sequence[Bounded], most: Sequence[FloatArray], floors: Floors
    ) -> tuple[list[Bounded], list[Bounded]]:
        """Layouts with bounds of at most some seconds one by one, and the others."""
        some: list[Bounded] = []
        others: list[Bounded] = []
        for one in waiting:
            mask = one.within(most)
            if not mask.any():
                others.append(one)
                continue
            others += [one.some(~mask)] if not mask.all() else []
            part = one.some(mask)
            if isinstance(part.batch.layouts, Rows):
                part = self._bounded(part.batch.listed, floors)
                mask = part.within(most)
                others += [part.some(~mask)] if not mask.all() else []
                part = part.some(mask)
            some += [part] if len(part) else []
        return some, others

    def _price_best(
        self,
        some: list[Bounded],
        products: Products,
        exchanges: Callable[[Variant], Exchanges],
    ) -> None:
        """Price layouts, the most promising ones first; of a large grid on the part they are in."""
        space = some[0].batch.run.space
        if prod(space.shape) > LARGE:
            small = trimmed(space, [one.batch.points for one in some])
            programs, whole, products = Programs(space=small.space), products, Products()
            some = [
                replace(one, batch=one.batch.onto(programs, points))
                for one, points in zip(some, small.layouts, strict=True)
            ]
            for one in some:
                _carry_over(one.batch, whole, products, small.cut)
            space = small.space
        exchanges = self._exchanges(space, [one.batch for one in some])
        # The most promising come first: they may leave out others without a price.
        least_s = self._least(some, self.top, sure=False)
        some.sort(key=lambda one: one.above(least_s))
        self._price([one.batch for one in some], products, exchanges, some)

    def _least(self, each: list[Bounded], count: int, *, sure: bool) -> FloatArray:
        """The `count`-th least bound of each cluster, or of all, infinite where there are fewer."""
        least = np.full(len(self.question.nodes), np.inf)
        floor_s = np.concatenate([one.floor_s[one.sure] if sure else one.floor_s for one in each])
        clusters = np.concatenate(
            [one.clusters[one.sure] if sure else one.clusters for one in each]
        )
        if self.best == "of all":
            clusters = np.zeros_like(clusters)
        if count == 1:
            np.minimum.at(least, clusters, floor_s)
            return np.full_like(least, least[0]) if self.best == "of all" else least
        for cluster in distinct(clusters):
            mine = floor_s[clusters == cluster]
            if len(mine) >= count:
                least[... if self.best == "of all" else cluster] = np.partition(mine, count - 1)[
                    count - 1
                ]
        return least

    def _price(
        self,
        fitting: list[Batch],
        products: Products,
        exchanges: Callable[[Variant], Exchanges],
        bounded: list[Bounded],
    ) -> None:
        # Prices are shared as far as modes agree: products by all, exchanges by equal groups of
        # ranks, steps by equal blocks.
        prices: dict[tuple[Variant, bool], JobPrices] = {}
        for number, batch in enumerate(fitting):
            if bounded:
                mask = bounded[number].within(self._worst)
                self.counts.outpace(bounded[number].clusters[~mask])
                if not mask.any():
                    continue
                batch = batch if mask.all() else batch.some(mask)
            variant = batch.run.variant
            # A schedule changes when things happen; what they cost, only if it splits slots.
            key = block_modes(variant), splits_backward(batch.run.schedule)
            program, _ = batch.priced
            if key not in prices:
                prices[key] = job_prices(
                    program,
                    partial(
                        step_prices,
                        platform=self.question.platform,
                        exchanges=exchanges(variant),
                        products=products,
                    ),
                    job_rates(self.question.rates, self.question.platform.instance, None),
                    logical_size=self.question.logical_size,
                )
                self._refuse(prices[key])
            self._time(batch, prices[key].played(program))

    def _exchanges(self, space: Space, fitting: list[Batch]) -> Callable[[Variant], Exchanges]:
        """Prices of exchanges by variant, shared by all programs with the same groups of ranks."""
        known: Memo[Variant, Exchanges] = Memo()

        def of(variant: Variant) -> Exchanges:
            groups = group_modes(variant)
            return known.of(groups, partial(self._exchanges_of, space, fitting, groups))

        return of

    def _exchanges_of(self, space: Space, fitting: list[Batch], groups: Variant) -> Exchanges:
        mine = [batch for batch in fitting if group_modes(batch.run.variant) == groups]
        # Only groups of layouts that fit are placed. One place along `vpp` stands for all chunks,
        # and one along the micro-batches for those of rows.
        shape = (*space.shape[:CHUNKS], 1, *space.shape[CHUNKS + 1 :])
        if any(isinstance(batch.layouts, Rows) for batch in mine):
            shape = (*shape[:-1], 1)
        wanted = np.zeros(shape, dtype=np.bool_)
        for batch in mine:
            wanted.reshape(-1)[batch.firsts.places(shape)] = True
        program, nodes = mine[0].priced[0], int(space.axes["nodes"][0])
        question = self.question
        domain = question.platform.domain_of(nodes)
        return exchanges_of(
            program,
            question.platform.joined(domain),
            question.efficiency,
            question.collectives,
            logical_size=question.logical_size,
            wanted=wanted,
            engines=self._engines,
        )

    def _refuse(self, prices: JobPrices) -> None:
        self.refused.update(dict.fromkeys(prices.reasons))
        self.refused.update(dict.fromkeys(reason.words({}) for reason in prices.refused))

    def _time(self, batch: Batch, prices: JobPrices) -> None:
        """Step times of the layouts that fit; the best are kept."""
        for part in batch.chunks(CHUNK):
            if self.stopped():
                return
            step_time_s = prices.time_s(part.priced[1])
            priced = np.isfinite(step_time_s)
            if not priced.all():
                rule = FORMAT if prices.reasons else COLLECTIVE
                self.counts.reject(rule, self.counts.by_cluster(part.clusters[~priced]))
                part, step_time_s = part.some(priced), step_time_s[priced]
            self.counts.price(part.clusters)
            if self.hooks.watch is not None:
                for _, run, points, mine in part.by_zero(part.points):
                    self.hooks.watch(Seen(run=run, points=points, step_time_s=step_time_s[mine]))
            self._keep(part, step_time_s)
            self.tell()

    def _keep(self, batch: Batch, step_time_s: FloatArray) -> None:
        """Rank layouts by their seconds and doubt."""
        arrays, points = batch.memory.program.grid.arrays, batch.points
        doubt = self.question.doubt({name: points.pick(arrays[name]) for name in DEGREES})
        score_s, clusters = step_time_s * doubt, batch.clusters
        within = np.broadcast_to(doubt == 1, len(points))
        if batch.memory_bytes is None:
            # Only layouts that may be kept need their bytes.
            best, sure = self._worst
            mine = score_s <= best[clusters]
            if self._covered:
                mine |= step_time_s <= sure[clusters]
            if self.plain is not None:
                mine |= usual(batch.run, points)
            if not mine.any():
                return
            batch, clusters, within = batch.some(mine), clusters[mine], within[mine]
            step_time_s, score_s = step_time_s[mine], score_s[mine]
            points = batch.points
        size = batch.bytes_at(self.lost[-1])
        for number, run, some, at in batch.by_zero(points):
            scored = clusters[at], score_s[at], size[at]
            self.ranking.add(number, some, *scored)
            if self.plain is not None:
                self.plain.add(number, run, some, scored)
            if self._covered:
                # The fastest layout within the rows is shown beside a faster one beyond them.
                inside = within[at]
                found = (column[at][inside] for column in (clusters, step_time_s, size))
                self.sure.add(number, some.some(inside), *found)

    def tell(self) -> None:
        self.hooks.progress(self.counts.done, self.expected, "layouts")


def _carry_over(
    batch: Batch, whole: Products, onto: Products, cut: Callable[[FloatArray], FloatArray]
) -> None:
    """Seconds of passes on a whole grid, as those of the same passes on the part that is priced."""
    onto.reasons.update(whole.reasons)
    known, (program, _) = batch.memory.program.blocks, batch.priced
    for kind, block in program.blocks.items():
        if kind in known and known[kind].passes in whole.passes:
            parts = whole.passes.of(known[kind].passes, dict)
            onto.passes.of(block.passes, partial(_each, cut, parts))


def _each(cut: Callable[[FloatArray], FloatArray], parts: PhaseSeconds) -> PhaseSeconds:
    return {key: cut(seconds) for key, seconds in parts.items()}
