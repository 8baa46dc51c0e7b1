"""What is asked of a plan, and the command line that asks the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from trnbench.answers.plan import Asked
from trnbench.answers.quote import DAY_S
from trnbench.app.run_request import DEADLINE_S, MAX_NODES, Part, RunRequest
from trnbench.app.run_request import inputs_of as run_inputs
from trnbench.errors import InputError
from trnbench.plan.objective import Limits, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A run to be planned.

    Without an objective the cheapest plan is wanted, or the fastest within a budget. The cheapest
    is wanted within a usual deadline if none is given: it would take years otherwise. `confirm`
    plays so many of the best configurations in the emulator. `baseline` is what the others are
    held against at break-even: the plan itself, unless named.
    """

    run: RunRequest
    deadline_s: float | None = None
    budget_usd: float | None = None
    objective: Objective | None = None
    confirm: int = 0
    baseline: str | None = None

    def __post_init__(self) -> None:
        """Refuse limits that nothing can keep."""
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise InputError("the deadline must be above 0")
        if self.budget_usd is not None and not self.budget_usd > 0:
            raise InputError("the budget must be above 0")
        if self.confirm < 0:
            raise InputError("the number of configurations to play must not be negative")

    @property
    def asked(self) -> Asked:
        """What the plan has to keep and what decides."""
        budget_alone = self.budget_usd is not None and self.deadline_s is None
        objective = self.objective or ("time" if budget_alone else "cost")
        assumed = objective == "cost" and self.deadline_s is None
        return Asked(
            objective=objective,
            deadline_s=DEADLINE_S if assumed else self.deadline_s,
            budget_usd=self.budget_usd,
            assumed_deadline=assumed,
        )

    @property
    def limits(self) -> Limits:
        """The limits of a plan; it needs a price."""
        asked = self.asked
        return Limits(deadline_s=asked.deadline_s, budget_usd=asked.budget_usd)


def inputs_of(request: PlanRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    asked = request.asked
    return run_inputs(request.run) | {
        "objective": asked.objective,
        "deadline_s": asked.deadline_s,
        "deadline_assumed": asked.assumed_deadline,
        "budget_usd": asked.budget_usd,
        "confirm": request.confirm,
        "baseline": request.baseline,
    }


def command_of(request: PlanRequest) -> str:
    """Return the command line that gives the same plan on any day."""
    asked = request.asked
    words = ["trnbench", "plan", *_run_words(request.run)]
    if asked.deadline_s is not None and not asked.assumed_deadline:
        words += ["--deadline", _time(asked.deadline_s)]
    if asked.budget_usd is not None:
        words += ["--budget", _plain(asked.budget_usd)]
    words += ["--objective", asked.objective]
    if request.confirm:
        words += ["--confirm", str(request.confirm)]
    if request.baseline is not None:
        words += ["--baseline", request.baseline]
    return shlex.join(words)


def _run_words(run: RunRequest) -> Iterator[str]:
    yield run.model
    yield from _length_words(run.parts)
    yield from ("--on", ",".join(run.instances))
    if run.nodes:
        yield from ("--nodes", ",".join(map(str, run.nodes)))
    elif run.max_nodes != MAX_NODES:
        yield from ("--max-nodes", str(run.max_nodes))
    for name, value in run.setting.plain.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            yield option if value else option.replace("--", "--no-")
        elif value is not None:
            yield from (option, str(value))
    settled: dict[str, object] = {
        "--headroom": run.headroom or None,
        "--stack": run.stack,
        "--lnc": run.logical_size,
        "--purchase": ",".join(run.purchase) or None,
        "--region": run.region,
        "--price-date": run.price_date.isoformat(),
        "--discount": run.discount or None,
        "--term-years": run.term_years,
        "--commitment": None if run.commitment == "whole" else run.commitment,
        "--keep-checkpoints": run.keep_checkpoints,
        "--failures-per-node-day": run.failures_per_node_day,
        "--checkpoint-interval": (
            None if run.checkpoint_interval_s is None else _time(run.checkpoint_interval_s)
        ),
    }
    for option, given in settled.items():
        if given is not None:
            yield from (option, str(given))
    for text in run.prices:
        yield from ("--price", text)
    for text in run.assumed_prices:
        yield from ("--assume-price", text)


def _length_words(parts: tuple[Part, ...]) -> Iterator[str]:
    if len(parts) == 1 and parts[0].sequence is None:
        (part,) = parts
        tokens, samples = part.tokens, part.samples
        yield from ("--tokens", _count(tokens)) if tokens else ("--samples", _count(samples or 0.0))
        return
    for part in parts:
        yield from ("--phase", f"{_count(part.tokens or 0.0)}@{part.sequence}")


def _count(number: float) -> str:
    """Return a number of tokens as people write it, to the last digit."""
    for suffix, factor in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        shown = _plain(number / factor)
        if number >= factor and float(shown) * factor == number:
            return shown + suffix
    return _plain(number)


def _time(seconds: float) -> str:
    days = seconds / DAY_S
    return f"{_plain(days)}d" if days == int(days) else f"{_plain(seconds)}s"


def _plain(number: float) -> str:
    return repr(number).removesuffix(".0")
