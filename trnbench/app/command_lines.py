"""Requests -> questions of the command line that ask the same, on any day and to the last digit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from trnbench.app.run_parts import Part, part_text
from trnbench.app.run_request import MAX_NODES, RunRequest
from trnbench.catalog.search import BUILT_IN, USER, Catalog
from trnbench.records import Record
from trnbench.units import BINARY_PREFIXES, COUNT_SUFFIXES, DAY_S, Dimension, parse

if TYPE_CHECKING:
    from trnbench.app.plan_request import PlanRequest
    from trnbench.app.train_request import TrainRequest
    from trnbench.app.verbs.compare import CompareRequest
    from trnbench.app.verbs.matrix import MatrixRequest

Value = str | int | float | bool | None
ARGUMENTS: Mapping[str, str] = {
    "matrix": "shapes",
    "collective": "op",
    **dict.fromkeys(("train", "compare", "plan"), "model"),
}
"""The option of a verb that is written without its name."""


class CommandQuestion(Record):
    """A verb and its options by name; an option of None is not given."""

    verb: str
    options: Mapping[str, Value | Sequence[str]]

    @property
    def line(self) -> str:
        """The command line that asks it."""
        named = dict(self.options)
        first = named.pop(ARGUMENTS.get(self.verb, ""), None) or ()
        return command_line(self.verb, *_texts(first), **named)

    @property
    def given(self) -> dict[str, Any]:
        """The options that are given, as kept runs have them: texts, switches, lists of texts."""
        return {
            name: value if isinstance(value, str | bool) else _plain(value)
            for name, value in self.options.items()
            if value not in (None, (), [])
        }


def command_line(verb: str, *arguments: str, **options: Value | Sequence[str]) -> str:
    """Return a command line; an option of None is left out, one of several values repeated.

    True is the bare option, False its opposite.
    """
    words = ["trnbench", verb, *arguments]
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        elif isinstance(value, str | int | float):
            words += [option, value if isinstance(value, str) else number_text(value)]
        else:
            for one in value or ():
                words += [option, one]
    return shlex.join(words)


def matrix_question(request: MatrixRequest, suite: str | None) -> CommandQuestion:
    """Return the question of products, or of a suite of them, on chips."""
    shapes = [
        f"{p.m}x{p.k}x{p.n}" + (f"x{p.batch}" if p.batch > 1 else "") for p in request.products
    ]
    options: dict[str, Value | Sequence[str]] = {
        "shapes": () if suite else shapes,
        "suite": suite,
        "on": ",".join(request.chips),
        "dtype": ",".join(request.formats),
        "sparsity": request.pattern,
        "kernel": None if request.kernel == "blocked" else request.kernel,
        "cores": None if request.cores == 1 else request.cores,
    }
    return CommandQuestion(verb="matrix", options=options)


def collective_question(
    op: str,
    places: Sequence[tuple[str, int]],
    sizes: tuple[float, float, float],
    *,
    algorithm: str | None = None,
) -> CommandQuestion:
    """Return the question of a sweep; `sizes` are smallest, largest, in bytes, and factor."""
    smallest, largest, factor = sizes
    options: dict[str, Value] = {
        "op": op,
        "on": ",".join(place_text(*place) for place in places),
        "min_size": size_text(smallest),
        "max_size": size_text(largest),
        "factor": factor,
        "algorithm": algorithm,
    }
    return CommandQuestion(verb="collective", options=options)


def train_question(request: TrainRequest, *, plot: bool = False) -> CommandQuestion:
    """Return the question of a step of one model in one layout, on one place or several."""
    first = request.cases[0]
    options: dict[str, Value | Sequence[str]] = {
        "model": first.model,
        "on": ",".join(place_text(case.instance, case.nodes) for case in request.cases),
        **first.layout.said,
        **(_bought_run(request.runs[0]) if request.runs else {}),
        "stack": request.stack,
        "lnc": request.logical_size,
        "assume_supported": request.assume_supported or None,
        "engine": None if request.engines == ("analytic",) else engine_text(request.engines),
        "seed": request.seed,
        "straggler": [f"{one.stage}={number_text(one.factor)}" for one in request.stragglers],
        "memory": request.memory or None,
        "plot": plot or None,
    }
    return CommandQuestion(verb="train", options=options)


def compare_question(request: CompareRequest) -> CommandQuestion:
    """Return the question of a comparison."""
    nodes = request.baseline_nodes
    own = {} if nodes is None else {"nodes": str(nodes), "max_nodes": None}
    options = {
        "model": request.run.model,
        **_run_options(request.run),
        **own,
        "deadline": _time(request.deadline_s),
        "equal_cost": request.equal_cost or None,
        "baseline": request.baseline,
    }
    return CommandQuestion(verb="compare", options=options)


def plan_question(request: PlanRequest) -> CommandQuestion:
    """Return the question of a plan."""
    asked = request.asked
    options = {
        "model": request.run.model,
        **_run_options(request.run),
        "deadline": None if asked.assumed_deadline else _time(asked.deadline_s),
        "budget": asked.budget_usd,
        "objective": asked.objective,
        "confirm": request.confirm or None,
        "baseline": request.baseline,
    }
    return CommandQuestion(verb="plan", options=options)


def with_folders(line: str, catalog: Catalog) -> str:
    """Return a command line with the folders that its catalogue was asked to look in.

    Those of the environment and of defaults are among them: another shell has others.
    """
    asked = [one.path for one in catalog.folders if one.origin not in (USER, BUILT_IN)]
    return line + "".join(f" --spec-dir {shlex.quote(str(path.resolve()))}" for path in asked)


def number_text(number: float) -> str:
    """Return a number to the last digit."""
    return repr(number).removesuffix(".0")


def count_text(number: float) -> str:
    """Return a count as people write it, to the last digit: 2T, 1.5B, 123."""
    for suffix, factor in sorted(COUNT_SUFFIXES.items(), key=lambda one: -one[1]):
        text = number_text(number / factor) + suffix
        if number >= factor > 1 and parse(text, Dimension.COUNT) == number:
            return text
    return number_text(number)


def time_text(time_s: float) -> str:
    """Return a time in whole days, or in seconds to the last digit."""
    days = time_s / DAY_S
    return f"{int(days)}d" if days == int(days) else f"{number_text(time_s)}s"


def share_text(share: float) -> str:
    """Return a share in %, to the last digit."""
    return f"{(Decimal(repr(share)) * 100).normalize():f}%"


def size_text(size_bytes: float) -> str:
    """Return a size in the largest unit of which it is a whole number."""
    for prefix, factor in sorted(BINARY_PREFIXES.items(), key=lambda one: -one[1]):
        if size_bytes % factor == 0:
            return f"{size_bytes / factor:.0f}{prefix}B"
    return number_text(size_bytes)


def place_text(instance: str, nodes: int) -> str:
    """Return a cluster as INSTANCE or INSTANCE:NODES."""
    return instance if nodes == 1 else f"{instance}:{nodes}"


def engine_text(engines: Sequence[str]) -> str:
    """Return the name that stands for these engines."""
    return "both" if len(engines) > 1 else engines[0]


def _run_options(run: RunRequest) -> Mapping[str, Value | Sequence[str]]:
    bounded = not run.nodes and run.max_nodes != MAX_NODES
    return {
        **_length_options(run.parts),
        "on": ",".join(run.instances),
        "nodes": ",".join(map(str, run.nodes)) or None,
        "max_nodes": run.max_nodes if bounded else None,
        **run.layout.said,
        "headroom": None if run.headroom is None else share_text(run.headroom),
        "confidence": None if run.confidence is None else share_text(run.confidence),
        "stack": run.stack,
        "lnc": run.logical_size,
        "assume_supported": run.assume_supported or None,
        **_purchase_options(run),
        "term_years": run.term_years,
        "commitment": None if run.commitment == "whole" else run.commitment,
        "keep_checkpoints": run.keep_checkpoints,
        "max_price_age": _time(run.max_price_age_s),
        "failures_per_node_day": run.failures_per_node_day,
        "checkpoint_interval": _time(run.checkpoint_interval_s),
    }


def _purchase_options(run: RunRequest) -> Mapping[str, Value | Sequence[str]]:
    return {
        "purchase": ",".join(run.purchase) or None,
        "region": run.region,
        "price_date": run.price_date.isoformat(),
        "discount": share_text(run.discount) if run.discount else None,
        "price": run.prices,
        "assume_price": run.assumed_prices,
    }


def _bought_run(run: RunRequest) -> Mapping[str, Value | Sequence[str]]:
    """Return the length and the purchase of a run whose cluster is given."""
    return {**_length_options(run.parts), **_purchase_options(run)}


def _length_options(parts: Sequence[Part]) -> Mapping[str, Value | Sequence[str]]:
    first = parts[0]
    if len(parts) == 1 and first.sequence is None:
        if first.tokens is None:
            return {"samples": count_text(first.samples or 0.0)}
        return {"tokens": count_text(first.tokens)}
    return {"phase": [part_text(part, count_text(part.tokens or 0.0)) for part in parts]}


def _texts(value: Value | Sequence[str]) -> Sequence[str]:
    return value if isinstance(value, list | tuple) else (str(value),)


def _plain(value: Value | Sequence[str]) -> str | list[str]:
    return number_text(value) if isinstance(value, int | float) else [*_texts(value)]


def _time(time_s: float | None) -> str | None:
    return None if time_s is None else time_text(time_s)
