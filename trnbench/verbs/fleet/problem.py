"""A fleet file and the ways of its jobs, as a question in days and nodes."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

from trnbench.errors import InputError
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.units import DAY_S, HOUR_S
from trnbench.facts.workload.fleet import FleetFile
from trnbench.money.fleet.problem import BlockOffer, Fleet, FleetTask, HeldNodes, NodeLimit, PoolKey
from trnbench.money.price_terms import check_region, parse_option
from trnbench.verbs.fleet.jobs import JobWays


def refuse_unknown(catalog: Catalog, file: FleetFile) -> None:
    """Raise for a region or purchase option that is none."""
    regions = [
        *file.regions,
        *(quota.region for quota in file.quota if quota.region is not None),
        *(held.region for held in file.commitment),
        *(block.region for block in file.block),
    ]
    for region in dict.fromkeys(regions):
        check_region(catalog, region)
    for quota in file.quota:
        for option in quota.purchase:
            parse_option(option)


def fleet_problem(catalog: Catalog, file: FleetFile, jobs: Sequence[JobWays]) -> Fleet:
    """Return a fleet in days and nodes."""

    def name(instance: str) -> str:
        return catalog.find("instances", instance).name

    tasks = []
    for one in jobs:
        job = one.job
        deadline = None if job.within_s is None else job.within_s / DAY_S
        if job.deadline is not None:
            deadline = float(file.day(job.deadline) + 1)
        tasks.append(
            FleetTask(
                name=job.name,
                ways=tuple(one.ways),
                earliest=max(file.day(job.earliest), 0) if job.earliest else 0,
                deadline=deadline,
                priority=float(job.priority),
            )
        )
    days = [file.starts_on + datetime.timedelta(days=n) for n in range(file.horizon_days)]
    terms = {term.pool: term for one in jobs for term in one.terms.values()}
    return Fleet(
        tasks=tuple(tasks),
        horizon=file.horizon_days,
        limits=tuple(
            NodeLimit(
                instance=name(quota.instance),
                region=quota.region or "",
                nodes=quota.nodes,
                options=quota.purchase,
            )
            for quota in file.quota
        ),
        held=tuple(
            HeldNodes(
                pool=(name(held.instance), held.region, held.purchase),
                nodes=held.nodes,
                first=file.day(held.starts_on),
                end=file.day(held.ends_on),
            )
            for held in file.commitment
        ),
        terms=tuple(terms[pool] for pool in sorted(terms)),
        blocks=tuple(_blocks(file, jobs, name)),
        months=tuple(f"{day:%Y-%m}" for day in days),
        budgets={one.month: one.usd for one in file.month},
        budget=file.budget,
    )


def _blocks(
    file: FleetFile, jobs: Sequence[JobWays], name: Callable[[str], str]
) -> list[BlockOffer]:
    """Return the blocks on offer, at their own price or that of the price list."""
    found = []
    for one in file.block:
        pool: PoolKey = (name(one.instance), one.region, "capacity-block")
        usd = one.usd
        if usd is None:
            choice = next(
                (c for job in jobs for key, c in job.choices.items() if key == pool), None
            )
            tariffs = choice.market.offers.tariffs if choice and choice.market else ()
            rates = [t.usd_per_hour for t in tariffs if t.option == "capacity-block"]
            if not rates:
                raise InputError(
                    f"no price is known of the block of {one.size} x {pool[0]} in {one.region}",
                    hint="give it as `usd`",
                )
            usd = rates[0] * one.size * one.days * DAY_S / HOUR_S
        found.append(
            BlockOffer(
                pool=pool,
                size=one.size,
                days=one.days,
                usd=usd,
                starts=tuple(sorted(file.day(day) for day in one.starts_on)),
                count=one.count,
            )
        )
    return found
