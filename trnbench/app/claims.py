"""The claims use case: what vendors claim, tried on the specs, the price lists and the model."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

from trnbench.app.claim_costs import PriceBook, cost_finding, price_finding
from trnbench.app.claim_runs import Machines, speed_finding
from trnbench.catalog.search import Catalog
from trnbench.errors import UnknownNameError
from trnbench.evidence.claim_figures import figure_finding, ratio_finding
from trnbench.evidence.claims import Claimed, Finding, Words
from trnbench.plan.price_terms import check_region
from trnbench.spec.claim import (
    ClaimedRun,
    ClaimList,
    CostCheck,
    FigureCheck,
    NoCheck,
    PriceCheck,
    RatioCheck,
    SpeedCheck,
    Statement,
    load_claims,
)
from trnbench.spec.instance import Platform


def examine_claims(
    catalog: Catalog,
    *,
    names: Sequence[str] = (),
    price_date: datetime.date | None = None,
    region: str | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> tuple[Claimed, ...]:
    """Return every claim, or those named, with what the specs or the model say of it.

    Without a `price_date` what depends on prices is tried on every day on which one changed;
    without a `region` at the cheapest of those where buyers look. `progress` hears of each claim.
    """
    if region is not None:
        check_region(catalog, region)
    lists = [load_claims(entry.path) for entry in catalog.entries("claims")]
    all_of_them = [(claims, statement) for claims in lists for statement in claims.statement]
    ids = [statement.id for _, statement in all_of_them]
    for name in names:
        if name not in ids:
            raise UnknownNameError("claim", name, ids)
    wanted = [pair for pair in all_of_them if not names or pair[1].id in names]
    book = PriceBook(machines=Machines(catalog=catalog), region=region, price_date=price_date)
    found = []
    for number, (claims, statement) in enumerate(wanted):
        progress(number, len(wanted), statement.id)
        found.append(_claimed(claims, statement, book))
    return tuple(found)


def _claimed(claims: ClaimList, statement: Statement, book: PriceBook) -> Claimed:
    sources = claims.provenance.sources
    return Claimed(
        id=statement.id,
        group=claims.title,
        said=tuple(
            Words(text=saying.text, by=saying.by, source=sources[saying.by])
            for saying in statement.said
        ),
        aspect=statement.aspect,
        note=statement.note,
        check=statement.kind,
        finding=_finding(claims, statement, book),
    )


def _finding(claims: ClaimList, statement: Statement, book: PriceBook) -> Finding:
    machines = book.machines

    def platforms(names: Sequence[str]) -> list[Platform]:
        return [machines.platform(name) for name in names]

    match statement.check:
        case FigureCheck() as check:
            return figure_finding(check, platforms(check.instances), claims.rounding)
        case RatioCheck() as check:
            of, to = platforms(check.of), platforms(check.to)
            return ratio_finding(check, of, to, claims.rounding)
        case PriceCheck() as check:
            return price_finding(check, claims.rounding, book)
        case SpeedCheck() as check:
            return speed_finding(check, _runs(claims, check.runs), machines)
        case CostCheck() as check:
            said = [claims.provenance.sources[saying.by].date for saying in statement.said]
            return cost_finding(check, _runs(claims, check.runs), min(said), book)
        case NoCheck() as check:
            return Finding(verdict="cannot be told", says="", reason=check.why)


def _runs(claims: ClaimList, names: Sequence[str]) -> tuple[ClaimedRun, ...]:
    return tuple(run for run in claims.run if run.name in names)
