"""Options by what they are about, for `trnbench help options GROUP`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trnbench.cli.output import Printed
from trnbench.cli.printing import Beside, Keeping
from trnbench.facts.workload.choices import ADAPTED, REINFORCED
from trnbench.facts.workload.layout import KNOBS
from trnbench.show.text_table import GAP, wrap
from trnbench.verbs.asking.knobs import KNOB_OPTIONS
from trnbench.verbs.asking.option import Option
from trnbench.verbs.asking.run_parts import LENGTH
from trnbench.verbs.asking.shared_options import AgainstKept
from trnbench.verbs.quotes.buying import Buying
from trnbench.verbs.quotes.question import RunRequest
from trnbench.verbs.quotes.what_if import WhatIf

GROUPS: Mapping[str, str] = {
    "layout": "How a step is cut and run, with train, compare, plan and launch.",
    "jobs": "What a step is for, and how long the run is.",
    "adapters": "With --job lora, or another job with --adapter-rank.",
    "rl": "With --job grpo or ppo.",
    "purchase": "How machines are bought, and what changes the bill: compare and plan.",
    "output": "Where an answer goes, and in which form.",
}
"""Titles of the groups, by name."""
_ASKED = ("model", "on", "prefer", "stack", "release", "lnc", "assume_supported")


def options_of(group: str) -> tuple[Option, ...]:
    """The options of a group, in the order of the help."""
    knobs = KNOB_OPTIONS.options()
    jobs = {name: knob.of_jobs for name, knob in KNOBS.items()}
    match group:
        case "layout":
            return _of(knobs, [name for name in knobs if not jobs.get(name) and name != "job"])
        case "jobs":
            return (knobs["job"], *LENGTH.options().values())
        case "adapters":
            return _of(knobs, [name for name in jobs if jobs[name] == ADAPTED])
        case "rl":
            return _of(knobs, [name for name in jobs if jobs[name] == REINFORCED])
        case "purchase":
            known = {**RunRequest.options(), **Buying.options(), **WhatIf.options()}
            others = {*knobs, *LENGTH.options(), *_ASKED}
            return _of(known, [name for name in known if name not in others])
        case _:
            kinds = (Printed, Beside, Keeping, AgainstKept)
            return tuple(option for kind in kinds for option in kind.options().values())


def _of(options: Mapping[str, Option], names: Iterable[str]) -> tuple[Option, ...]:
    return tuple(options[name] for name in names)


def group_text(group: str, width: int) -> str:
    """Options of a group with what they say, as people read them."""
    first = 2 * len(GAP) + len("--generation-tokens-per-s N")
    lines = [GROUPS[group], ""]
    for option in options_of(group):
        named = f"{option.flag} {option.metavar or ''}".rstrip()
        text = wrap(option.help, width, " " * first).lstrip()
        beside = len(named) + 2 * len(GAP) <= first
        lines += (
            [f"{GAP}{named}".ljust(first) + text] if beside else [GAP + named, " " * first + text]
        )
    return "\n".join(lines)
