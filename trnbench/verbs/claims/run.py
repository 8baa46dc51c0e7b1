"""The claims use case: what vendors claim, tried on the specs, the price lists and the model."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from trnbench.errors import UnknownNameError, unhandled
from trnbench.evidence.claims.claim import (
    Claimed,
    ClaimedRun,
    ClaimList,
    CostCheck,
    FigureCheck,
    Finding,
    NoCheck,
    PriceCheck,
    RatioCheck,
    SpeedCheck,
    Statement,
    Words,
    load_claims,
)
from trnbench.evidence.claims.figures import figure_finding, ratio_finding
from trnbench.evidence.claims.gains import (
    Machines,
    Pace,
    PriceBook,
    cost_finding,
    price_finding,
    speed_finding,
)
from trnbench.facts.catalog.search import Catalog, UnchangingCatalog
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.setup import train_setup
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.claims.question import ClaimsQuestion
from trnbench.verbs.train.step_answers import step_answers


def run(
    catalog: Catalog, question: ClaimsQuestion, *, progress: Progress = quiet
) -> tuple[Claimed, ...]:
    """Return every claim, or those named, with what the specs or the model say of it.

    Claims about prices are tried on `price_date`, or on every day on which one changed; in
    `region`, or in the cheapest of the usual ones. `progress` hears of each claim.

    >>> from trnbench import claims
    >>> (claimed,) = claims("trn1-bf16")
    >>> claimed.finding.verdict
    'holds'
    """
    catalog = UnchangingCatalog(catalog.folders)
    lists = [load_claims(entry.path) for entry in catalog.entries("claims")]
    all_of_them = [(listed, statement) for listed in lists for statement in listed.statement]
    ids = [statement.id for _, statement in all_of_them]
    for name in question.claims:
        if name not in ids:
            raise UnknownNameError("claim", name, ids, lists="trnbench claims")
    wanted = [pair for pair in all_of_them if not question.claims or pair[1].id in question.claims]
    machines = Machines(catalog=catalog, timed=functools.partial(_timed, catalog))
    book = PriceBook(machines=machines, region=question.region, price_date=question.price_date)
    answers = []
    for number, (listed, statement) in enumerate(wanted):
        progress(number, len(wanted), statement.id)
        answers.append(_claimed(listed, statement, book))
    return tuple(answers)


claims = verb_of("claims", ClaimsQuestion, run)


def _claimed(listed: ClaimList, statement: Statement, book: PriceBook) -> Claimed:
    sources = listed.provenance.sources
    return Claimed(
        id=statement.id,
        group=listed.title,
        said=tuple(
            Words(text=saying.text, by=saying.by, source=sources[saying.by])
            for saying in statement.said
        ),
        aspect=statement.aspect,
        note=statement.note,
        check=statement.kind,
        finding=_finding(listed, statement, book),
    )


def _finding(listed: ClaimList, statement: Statement, book: PriceBook) -> Finding:
    machines = book.machines

    def platforms(names: Sequence[str]) -> list[Platform]:
        return [machines.platform(name) for name in names]

    match statement.check:
        case FigureCheck() as check:
            return figure_finding(check, platforms(check.instances), listed.rounding)
        case RatioCheck() as check:
            of, to = platforms(check.of), platforms(check.to)
            return ratio_finding(check, of, to, listed.rounding)
        case PriceCheck() as check:
            return price_finding(check, listed.rounding, book)
        case SpeedCheck() as check:
            return speed_finding(check, _runs(listed, check.runs), machines)
        case CostCheck() as check:
            said = [listed.provenance.sources[saying.by].date for saying in statement.said]
            return cost_finding(check, _runs(listed, check.runs), min(said), book)
        case NoCheck() as check:
            return Finding(verdict="undecided", says="", reason=check.why)
        case unknown:
            unhandled(unknown, "verdict")


def _runs(listed: ClaimList, names: Sequence[str]) -> tuple[ClaimedRun, ...]:
    return tuple(run for run in listed.run if run.name in names)


def _timed(catalog: Catalog, run: ClaimedRun, instance: str, precision: str) -> Pace:
    """Return the speed of a run in its fastest layout, or why it cannot run."""
    setup = train_setup(catalog, run.model, instance, run.nodes)
    asked = PartialLayout(global_batch=run.global_batch, sequence=run.sequence, precision=precision)
    (answer,) = step_answers(setup, asked)
    if answer.step is None:
        nothing = math.nan
        return Pace(
            tokens_per_s=nothing,
            low_tokens_per_s=nothing,
            high_tokens_per_s=nothing,
            reasons=answer.reasons,
        )
    return Pace(
        tokens_per_s=answer.per_s(answer.step.step_time_s, run.sequence),
        low_tokens_per_s=answer.per_s(answer.step.high_step_time_s, run.sequence),
        high_tokens_per_s=answer.per_s(answer.step.low_step_time_s, run.sequence),
    )
