"""Training speed of the runs in claims, each machine evaluated once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeAlias

from trnbench.errors import unhandled
from trnbench.evidence.claims.claim import ClaimedRun, Gain, SpeedCheck, threshold
from trnbench.evidence.claims.verdict import Case, Finding, listed, of_interval, together
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import Record, field
from trnbench.facts.units import significant
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.checkpoint import checkpoint_bytes
from trnbench.predict.ranges import Range


class Pace(Record):
    """Speed of a run in its fastest layout, with an interval; or reasons against one."""

    tokens_per_s: float
    low_tokens_per_s: float
    high_tokens_per_s: float
    reasons: tuple[str, ...] = ()


PaceOf: TypeAlias = Callable[[ClaimedRun, str, str], Pace]
"""Speed of a run on an instance in a precision."""


class Machines(Record, eq=False):
    """Instances by name, and the speeds of runs on them, each run timed once by `timed`."""

    catalog: Catalog
    timed: PaceOf
    paces: dict[tuple[ClaimedRun, str, str], Pace] = field(default_factory=dict)
    checkpoints: dict[ClaimedRun, float] = field(default_factory=dict)

    def platform(self, instance: str) -> Platform:
        """The instance with its chip."""
        return load_platform(self.catalog, instance)

    def pace(self, run: ClaimedRun, instance: str, precision: str | None = None) -> Pace:
        """Tokens/s of a run on its number of nodes, in its own precision unless given."""
        key = (run, instance, precision or run.precision)
        if key not in self.paces:
            self.paces[key] = self.timed(*key)
        return self.paces[key]

    def checkpoint_bytes(self, run: ClaimedRun) -> float:
        """Size of the run's checkpoint, bytes."""
        if run not in self.checkpoints:
            self.checkpoints[run] = checkpoint_bytes(
                load_model(self.catalog, run.model),
                PartialLayout(precision=run.precision, sequence=run.sequence),
            )
        return self.checkpoints[run]


def advantage(ours: Sequence[float], theirs: Sequence[float], *, same: bool = False) -> Range:
    """Ours over theirs, each (low, expected, high); log errors add in squares.

    On the `same` machine the common error cancels.
    """
    value = ours[1] / theirs[1]
    if same:
        return Range(value=value, low=value, high=value)
    down = math.hypot(math.log(ours[1] / ours[0]), math.log(theirs[2] / theirs[1]))
    up = math.hypot(math.log(ours[2] / ours[1]), math.log(theirs[1] / theirs[0]))
    return Range(value=value, low=value * math.exp(-down), high=value * math.exp(up))


def gain_of(gain: Gain, times: float) -> float:
    """An advantage in a claim's own terms: a share saved or gained, or a multiple."""
    match gain:
        case "saving":
            return 1 - 1 / times if times else -math.inf
        case "better":
            return times - 1
        case "times":
            return times
        case _:
            unhandled(gain, "terms")


def gain_text(gain: Gain, found: Range) -> str:
    """An advantage and its interval as text."""
    ends = [gain_of(gain, times) for times in (found.value, found.low, found.high)]
    shown = [significant(end, 3) if gain == "times" else f"{100 * end:.0f}" for end in ends]
    unit = "x" if gain == "times" else " %"
    if found.low == found.high:
        return f"{shown[0]}{unit}"
    return f"{shown[0]}{unit} ({shown[1]} to {shown[2]})"


def gain_case(gain: Gain, claimed: str, what: str, found: Range) -> Case:
    """Verdict of a case by its advantage."""
    return Case(
        what=what,
        verdict=of_interval(found.low, found.high, threshold(gain, claimed)),
        says=gain_text(gain, found),
        value=gain_of(gain, found.value),
        low=gain_of(gain, found.low),
        high=gain_of(gain, found.high),
    )


def unknown(what: str, reasons: Sequence[str]) -> Case:
    """A case without data."""
    return Case(what=what, verdict="cannot be told", says="; ".join(reasons))


def known(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Cases with a value."""
    return tuple(case for case in cases if case.value is not None)


def best(cases: Sequence[Case]) -> Case:
    """The case most in favour of a claim."""
    return max(cases, key=lambda case: (case.verdict == "holds", case.value or 0.0))


def speed_finding(check: SpeedCheck, runs: Sequence[ClaimedRun], machines: Machines) -> Finding:
    """Finding on a speed check."""
    cases = tuple(
        _speed_case(check, *which, machines) for which in product(runs, check.of, check.to)
    )
    told = known(cases)
    verdict = together(case.verdict for case in told)
    if not told:
        return Finding(verdict=verdict, says="", reason=listed([c.says for c in cases], 1))
    top, least = best(told), min(told, key=lambda case: case.value or 0.0)
    says = f"at best {top.says}: {top.what}"
    if len(told) > 1:
        says += f"; at worst {least.says}: {least.what}"
    held = [case.what for case in told if case.verdict == "holds"]
    reason = {
        "holds": "in every case looked at",
        "holds only if": f"only {listed(held)}",
        "cannot be told": f"the best case may be below {check.times} or above",
        "does not": f"even the best case stays below {check.times}",
    }[verdict]
    return Finding(verdict=verdict, says=says, reason=reason, cases=cases)


def _speed_case(
    check: SpeedCheck, run: ClaimedRun, ours: str, theirs: str, machines: Machines
) -> Case:
    what = f"{run.name} over {theirs}"
    if ours == theirs:
        what = f"{run.name}, {check.precision} over {check.than_precision or run.precision}"
    paces = (
        machines.pace(run, ours, check.precision),
        machines.pace(run, theirs, check.than_precision),
    )
    reasons = [reason for pace in paces for reason in pace.reasons]
    if reasons:
        return unknown(what, reasons)
    low_mid_high = [(p.low_tokens_per_s, p.tokens_per_s, p.high_tokens_per_s) for p in paces]
    found = advantage(*low_mid_high, same=ours == theirs)
    return gain_case("times", check.times, what, found)
