"""The jobs of a fleet file: what each asks for, and every way to run and buy it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.arrays import FloatArray
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.parsing import moved_text
from trnbench.facts.records import State, field, replace
from trnbench.facts.units import DAY_S, HOUR_S
from trnbench.facts.workload.fleet import FleetFile, JobEntry, read_fleet
from trnbench.money.billing import term_years
from trnbench.money.cost import Priced
from trnbench.money.failures import Operations
from trnbench.money.fleet.problem import JobWay, PoolKey, TermOffer
from trnbench.money.goodput import goodput
from trnbench.money.market import Market, candidates, cost_of
from trnbench.money.price_terms import FOR_A_TERM, PriceTerms
from trnbench.money.purchase import Offers, Tariff, load_offers
from trnbench.verbs.asking.use_case import Watch
from trnbench.verbs.quotes.draws import with_confidence
from trnbench.verbs.quotes.markets import Explored, explore_all
from trnbench.verbs.quotes.question import RunRequest, price_terms, run_request
from trnbench.verbs.quotes.run import quote_of_none

WHOLE = 1.0
_LENGTHS = ("tokens", "samples", "phase")
_TAKEN_OVER = ("on", "nodes", "max_nodes", "purchase")


def fleet_named(catalog: Catalog, name: str) -> FleetFile:
    if name.endswith(".toml") or "/" in name:
        return read_fleet(Path(name))
    return read_fleet(catalog.find("fleets", name).path)


def job_options(fleet: FleetFile, job: JobEntry) -> dict[str, Any]:
    """Return a job's demands as options of `compare` and `plan`, without its place in time."""
    own = {name: getattr(job, name) or getattr(fleet, name) for name in _TAKEN_OVER}
    if job.nodes or job.max_nodes:
        own |= {"nodes": job.nodes, "max_nodes": job.max_nodes}
    if not own["on"]:
        raise InputError(f"on which instances may {job.name} run? give it or the fleet `on`")
    return {
        **{name: value for name, value in own.items() if value},
        **{name: getattr(job, name) for name in ("tokens", "samples", "stack")},
        "phase": job.phases,
        "price_date": fleet.price_date,
        "discount": fleet.discount,
        "price": _of_types(fleet.prices, own["on"]),
        "assume_price": _of_types(fleet.assumed_prices, own["on"]),
        "term_years": fleet.term_years,
        "confidence": fleet.confidence,
        **job.layout,
    }


def _of_types(prices: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text for text in prices if text.partition("=")[0].strip() in names)


def with_job(
    catalog: Catalog, model: str, options: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The model and the options of the job "FLEET:JOB", but for the options given.

    FLEET is the name of a shipped fleet or a path; JOB may be left out where there is only one.
    """
    given = {name: value for name, value in options.items() if value not in (None, (), "")}
    named, _, wanted = (model, "", "") if model.endswith(".toml") else model.rpartition(":")
    fleet = fleet_named(catalog, named)
    jobs = {job.name: job for job in fleet.job}
    if not wanted and len(jobs) != 1:
        raise InputError(f"which job of {named}? write {named}:{next(iter(jobs), 'JOB')}")
    if wanted and wanted not in jobs:
        raise UnknownNameError("job", wanted, jobs, where=named)
    job = jobs[wanted] if wanted else next(iter(jobs.values()))
    own = job_options(fleet, job)
    if given.keys() & {*_LENGTHS}:
        own = {name: value for name, value in own.items() if name not in _LENGTHS}
    if given.keys() & {"nodes", "max_nodes"}:
        own = {name: one for name, one in own.items() if name not in ("nodes", "max_nodes")}
    if job.deadline is not None:
        own["deadline"] = (fleet.day(job.deadline) + 1) * DAY_S
    elif job.within_s is not None:
        own["deadline"] = job.within_s
    if len(fleet.regions) == 1:
        own["region"] = fleet.regions[0]
    if "deadline" in given:
        given["deadline"] = moved_text(own.get("deadline"), given["deadline"])
    return job.model, {**own, **given}


class JobWays(State):
    """The ways of a job, the machines and offers of each, and why instance types have none."""

    job: JobEntry
    request: RunRequest
    ways: list[JobWay] = field(default_factory=list)
    choices: dict[tuple[str, str, str], Explored] = field(default_factory=dict)
    terms: dict[PoolKey, TermOffer] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def choice(self, way: JobWay) -> Explored:
        return self.choices[way.instance, way.region, way.option]


class WaysFinder(State):
    """Finds the ways of jobs; jobs that differ in their length alone are searched once."""

    catalog: Catalog
    fleet: FleetFile
    watch: Watch
    max_price_age_s: float | None = None
    searched: dict[RunRequest, tuple[RunRequest, tuple[Explored, ...]]] = field(
        default_factory=dict
    )

    def ways_of(self, job: JobEntry) -> JobWays:
        """Return every way to run and buy a job."""
        options = {**job_options(self.fleet, job), "max_price_age": self.max_price_age_s}
        request = run_request(job.model, catalog=self.catalog, **options)
        found = JobWays(job=job, request=request)
        for one in self._explored(request):
            if one.market is None:
                empty = quote_of_none(one, one.nearest_nodes, headroom=None)
                found.reasons.append(f"{one.name}: {'; '.join(empty.reasons)}")
                continue
            before = len(found.ways)
            for region in self.fleet.regions or (None,):
                self._add(found, one, one.market, region)
            if len(found.ways) == before:
                market = replace(one.market, offers=self._offers(one.market, request, None))
                found.reasons.append(f"{one.name}: {'; '.join(market.offers.reasons)}")
        return found

    def _explored(self, request: RunRequest) -> tuple[Explored, ...]:
        """Return the clusters of a run; those of a longer or shorter run serve as well."""
        parts = tuple(
            replace(part, tokens=part.tokens and 1.0, samples=part.samples and 1.0)
            for part in request.parts
        )
        key = request.but(parts=parts)
        if key not in self.searched:
            self.searched[key] = request, explore_all(self.catalog, request, watch=self.watch)
        first, explored = self.searched[key]
        factors = [
            (new.tokens or new.samples or 0.0) / (old.tokens or old.samples or 1.0)
            for new, old in zip(request.parts, first.parts, strict=True)
        ]
        shorter = [_of_length(one, factors) for one in explored]
        if any(
            portion.samples < max(portion.batches.values())
            for one in shorter
            for portion in one.portions
        ):
            return explore_all(self.catalog, request, watch=self.watch)  # which says what is wrong
        return tuple(shorter)

    def _offers(self, market: Market, request: RunRequest, region: str | None) -> Offers:
        return load_offers(self.catalog, market.instance, self._terms(market, request, region))

    def _terms(self, market: Market, request: RunRequest, region: str | None) -> PriceTerms:
        terms = replace(price_terms(self.catalog, request), region=region)
        given = terms.options or ()
        if "spot" in given and "on-demand" not in given:
            terms = replace(terms, options=(*given, "on-demand"))
        return terms

    def _add(self, found: JobWays, one: Explored, market: Market, region: str | None) -> None:
        """Add the ways on an instance type in a region, or where it is cheapest."""
        market = replace(market, offers=self._offers(market, found.request, region))
        asked = found.request.bought.purchase
        cost = cost_of(market)
        sure = {
            (way.nodes, way.option): way.sure_elapsed_s
            for way in with_confidence(one, candidates(market), found.request.confidence)
        }
        for priced in cost.priced:
            tariff = priced.tariff
            if asked and tariff.option not in asked:
                continue
            found.warnings += tariff.warnings
            for place, nodes in enumerate(market.nodes.tolist()):
                usd = float(priced.charges.cost_usd[place])
                days = float(priced.charges.elapsed_s[place]) / DAY_S
                if np.isfinite(usd) and np.isfinite(days):
                    later = sure.get((nodes, tariff.option))
                    self._way(found, one, market, priced, place, later)
        self._held(found, one, market, region)
        if "spot" in asked:
            self._mixed(found, one, market)

    def _way(
        self,
        found: JobWays,
        one: Explored,
        market: Market,
        priced: Priced,
        place: int,
        sure_s: float | None,
    ) -> None:
        """Add the way to buy a cluster at a tariff."""
        tariff, charges = priced.tariff, priced.charges
        shares = found.job.spot_shares or (WHOLE,)
        if tariff.option == "spot" and WHOLE not in shares:
            return
        nodes, region = int(market.nodes[place]), tariff.region or ""
        pool: PoolKey | None = None
        usd = float(charges.cost_usd[place])
        whole = market.offers.terms.commitment == "whole"
        if tariff.option in FOR_A_TERM and whole and market.offers.rules is not None:
            pool = (tariff.instance, region, tariff.option)
            usd -= float(charges.committed_usd[place])
            self._term(found, market, tariff, pool)
        elif tariff.option == "capacity-block" and self._offered(tariff.instance, region):
            return  # those on offer are bought whole, for whoever runs on them
        days = float(charges.elapsed_s[place]) / DAY_S
        found.ways.append(
            JobWay(
                instance=tariff.instance,
                region=region,
                nodes=nodes,
                option=tariff.option,
                purchase=tariff.option,
                days=days,
                usd=max(usd, 0.0),
                sure_days=days if sure_s is None else sure_s / DAY_S,
                upfront=tariff.option == "capacity-block",
                pool=pool,
                spot_share=WHOLE if tariff.option == "spot" else 0.0,
            )
        )
        found.choices[tariff.instance, region, tariff.option] = replace(one, market=market)

    def _term(self, found: JobWays, market: Market, tariff: Tariff, pool: PoolKey) -> None:
        rules = market.offers.rules
        assert rules is not None
        term_s = term_years(rules, market.offers, tariff) * rules.commitment.year_s
        usd = tariff.usd_per_hour * term_s / HOUR_S
        found.terms[pool] = TermOffer(pool=pool, days=int(term_s // DAY_S), usd=usd)

    def _offered(self, instance: str, region: str) -> bool:
        return any(
            self.catalog.find("instances", one.instance).name == instance and one.region == region
            for one in self.fleet.block
        )

    def _held(self, found: JobWays, one: Explored, market: Market, region: str | None) -> None:
        """Add ways on machines that are held already, or in blocks on offer, whatever they cost."""
        cost = cost_of(market)
        rules = market.offers.rules
        places: dict[PoolKey, int | None] = {}
        for held in self.fleet.commitment:
            if self.catalog.find("instances", held.instance).name == market.instance.name:
                places[market.instance.name, held.region, held.purchase] = None
        for block in self.fleet.block:
            if self.catalog.find("instances", block.instance).name == market.instance.name:
                key = (market.instance.name, block.region, "capacity-block")
                places[key] = max(block.days, places.get(key) or 0)
        known = {(way.pool, way.nodes) for way in found.ways}
        for pool, longest in places.items():
            if region not in (None, pool[1]):
                continue
            early_s = 0.0
            if longest is not None and rules is not None:
                early_s = rules.block_of(market.instance).ends_early_s
            for place, nodes in enumerate(market.nodes.tolist()):
                wall_s = float(cost.unpriced.wall_s[place])
                if longest is not None:
                    # Between two blocks there is a stop and a start; each ends early.
                    seam_s = float(cost.unpriced.seam_s[place])
                    use_s = longest * DAY_S - early_s
                    blocks = max(int(np.ceil(wall_s / max(use_s - seam_s, 1.0))), 1)
                    wall_s += blocks * early_s + (blocks - 1) * seam_s
                days = wall_s / DAY_S
                if not np.isfinite(days) or (pool, nodes) in known:
                    continue
                found.ways.append(
                    JobWay(
                        instance=pool[0],
                        region=pool[1],
                        nodes=nodes,
                        option=pool[2],
                        purchase=pool[2],
                        days=days,
                        usd=0.0,
                        sure_days=days,
                        pool=pool,
                    )
                )
            found.choices.setdefault(pool, replace(one, market=market))

    def _mixed(self, found: JobWays, one: Explored, market: Market) -> None:
        """Add ways with a base of on-demand machines and spot machines on top."""
        tariffs = {tariff.option: tariff for tariff in market.offers.tariffs}
        spot, base = tariffs.get("spot"), tariffs.get("on-demand")
        shares = [share for share in found.job.spot_shares if share < WHOLE]
        if spot is None or not shares:
            return
        if base is None or base.region != spot.region:
            terms = replace(market.offers.terms, region=spot.region, options=("on-demand",))
            base = next(iter(load_offers(self.catalog, market.instance, terms).tariffs), None)
        if base is None:
            return
        work_s = sum(tokens / per_s for tokens, per_s in market.speeds)
        for share in shares:
            of_spot = np.clip(np.rint(share * market.nodes), 1, market.nodes)
            mixed = mixed_operations(market, of_spot / market.nodes)
            for place, nodes in enumerate(market.nodes.tolist()):
                if of_spot[place] == nodes:
                    continue
                wall_s = float(
                    goodput(
                        mixed[place],
                        work_s=np.asarray(work_s)[place],
                        nodes=nodes,
                        checkpoint_bytes=market.checkpoint_bytes,
                        interval_s=market.interval_s,
                        ranges=False,
                    ).wall_s
                )
                elapsed_s = wall_s / mixed[place].available.value
                # The base is paid for while the spot machines are away, they are not.
                paid = (nodes - of_spot[place]) * base.usd_per_hour * elapsed_s
                paid += of_spot[place] * spot.usd_per_hour * wall_s
                if np.isfinite(wall_s):
                    found.ways.append(
                        JobWay(
                            instance=spot.instance,
                            region=spot.region or "",
                            nodes=nodes,
                            option="spot",
                            purchase=f"{100 * of_spot[place] / nodes:.0f}% spot, on-demand",
                            days=elapsed_s / DAY_S,
                            usd=float(paid / HOUR_S),
                            sure_days=elapsed_s / DAY_S,
                            spot_share=float(of_spot[place] / nodes),
                        )
                    )
        bought = replace(market, offers=replace(market.offers, tariffs=(spot, base)))
        key = (spot.instance, spot.region or "", "spot")
        found.choices[key] = replace(one, market=bought)


def mixed_operations(market: Market, shares: FloatArray) -> list[Operations]:
    """Return the rates of failures and reclaims of clusters with a share of spot machines."""
    found = []
    for nodes, share in zip(market.nodes.tolist(), shares.tolist(), strict=True):
        known = market.operations(nodes, market.offers.rules)
        taken = known.interruptions_per_node_day.scaled(share)
        found.append(replace(known, interruptions_per_node_day=taken))
    return found


def _of_length(one: Explored, factors: Sequence[float]) -> Explored:
    """Return an instance type as explored for a run whose parts are so many times as long."""
    portions = tuple(
        replace(portion, tokens=portion.tokens * factor, samples=portion.samples * factor)
        for portion, factor in zip(one.portions, factors, strict=True)
    )
    market = one.market and replace(
        one.market,
        speeds=tuple(
            (portion.tokens, per_s)
            for portion, (_, per_s) in zip(portions, one.market.speeds, strict=True)
        ),
    )
    return replace(one, portions=portions, market=market)
