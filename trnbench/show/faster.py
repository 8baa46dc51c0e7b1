"""Sentence on the faster machine: p5en is 2.4x faster at 256 MiB, 1.3x at 1 MiB."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trnbench.facts.units import significant

AS_FAST = 1.05
"""Times within this ratio are as good as equal."""


def faster_text(timed: Iterable[tuple[str, str, float]], *, named: bool = False) -> str:
    """Sentence of who is the fastest at what, from (who, at what, seconds); empty without a rival.

    A time that comes again counts once, the first. `named`: a single rival is named too.
    """
    by_what: dict[str, dict[str, float]] = {}
    for who, what, time_s in timed:
        by_what.setdefault(what, {}).setdefault(who, time_s)
    told: dict[str, list[str]] = {}
    for what, times in by_what.items():
        if len(times) > 1:
            subject, much = _lead(times, named)
            told.setdefault(subject, []).append(f"{much} at {what}")
    clauses = []
    for subject, leads in told.items():
        first, *others = leads
        more = [lead.replace(" faster", "", 1) for lead in others]
        clauses.append(f"{subject} {', '.join([first, *more])}")
    return f"{'; '.join(clauses)}." if clauses else ""


def _lead(times: Mapping[str, float], named: bool) -> tuple[str, str]:
    """The fastest with its verb, and the factor by which it beats the next."""
    best, second, *more = sorted(times, key=lambda who: times[who])
    ratio = times[second] / times[best]
    if ratio < AS_FAST:
        return f"{best} and {second} are", "about as fast"
    than = f" than {second}" if more or named else ""
    return f"{best} is", f"{significant(ratio, 2)}x faster{than}"
