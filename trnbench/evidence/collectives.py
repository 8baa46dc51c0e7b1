"""Measured collectives against the closed form: one group over the nodes of a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import groupby

import numpy as np

from trnbench.engines.analytic.collective.choice import chosen_for
from trnbench.engines.analytic.collective.sweep import swept_times_s
from trnbench.errors import InputError
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.rows import EvidenceFile, EvidenceRow, RowFault
from trnbench.facts.calibration.collective_stack import CollectiveStack, load_stack, stack_of
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.hardware.library import load_platform, load_published
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, State, field, replace
from trnbench.facts.workload.choices import Op
from trnbench.machine.message_plan.algorithm import Algorithm, Refusal
from trnbench.machine.message_plan.members import members_of
from trnbench.machine.message_plan.select import Selected, algorithm_named
from trnbench.machine.placement import Placement, place
from trnbench.program.collective import bus_factor, op_named

_GIGABYTE = 1e9
_HOST = "host"
_ALGORITHMS: tuple[tuple[str, str], ...] = (
    ("ring", "ring"),
    ("nvlstree", ""),
    ("nvls", "in-switch"),
)
"""Words of the algorithm column, in search order."""
_VERSION = re.compile(r"(\d+\.\d+)")
_PLAIN_ID = re.compile(r"[^*?\[]*")
"""An id without wildcards."""


class Exchange(Record):
    """A timed collective: instance, stack, nodes, ranks and size."""

    row: EvidenceRow
    instance: str
    stack: str
    op: Op
    nodes: int
    ranks: int
    algorithm: str | None
    size_bytes: float
    time_s: float

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def group(self) -> tuple[str, str, str, int, int, str]:
        """Key shared by all sizes of a sweep."""
        wanted = self.algorithm or ""
        return self.instance, self.stack, self.op, self.nodes, self.ranks, wanted


class Systems(State, kw_only=False):
    """Instances and stacks named in rows of collectives, each looked up once."""

    catalog: Catalog
    _instances: Memo[tuple[str, str], Instance | None] = field(default_factory=Memo)
    _stacks: Memo[tuple[str, str], str] = field(default_factory=Memo)

    def instance(self, system: str, chip: str) -> Instance | None:
        key = system, chip
        return self._instances.of(key, lambda: load_published(self.catalog, system, chip))

    def stack(self, instance: str, library: str) -> str:
        """The name of the stack of a library's version, or else of the instance's own."""
        return self._stacks.of((instance, library), lambda: _stack(self.catalog, instance, library))


def compare_collectives(catalog: Catalog, file: EvidenceFile) -> tuple[Comparison, ...]:
    systems = Systems(catalog)
    read = {row.id: read_exchange(systems, file, row) for row in file.rows if row.fault is None}
    exchanges = [found for found in read.values() if isinstance(found, Exchange)]
    times = predict_exchanges(catalog, exchanges)
    stacks = {name: load_stack(catalog, name) for name in {e.stack for e in exchanges}}
    return tuple(
        _compared(file, row, row.fault or read[row.id], times, stacks) for row in file.rows
    )


def read_exchange(systems: Systems, file: EvidenceFile, row: EvidenceRow) -> Exchange | str:
    """The operation that a row timed, or the reason why it cannot be predicted."""
    try:
        return row.fault or _exchange(systems, file, row)
    except (RowFault, InputError) as fault:
        return str(fault)


def _exchange(systems: Systems, file: EvidenceFile, row: EvidenceRow) -> Exchange:
    if _HOST in row.text("time_stat").lower():
        raise RowFault("timed on the host, where dispatch takes longer than the exchange")
    op = _op(row)
    gpu = file.set == "gpu_collectives"
    ranks, nodes = row.whole("gpus" if gpu else "ranks"), row.whole("nodes")
    size_bytes = row.positive("size_bytes")
    system = row.needed("platform" if gpu else "instance")
    instance = systems.instance(system, row.text("gpu"))
    if instance is None:
        raise RowFault(f"unknown system {system!r}")
    if ranks % nodes:
        raise RowFault(f"{ranks} ranks do not spread evenly over {nodes} nodes")
    return Exchange(
        row=row,
        instance=instance.name,
        stack=systems.stack(instance.name, row.text("nccl")),
        op=op,
        nodes=nodes,
        ranks=ranks,
        algorithm=_algorithm(row),
        size_bytes=size_bytes,
        time_s=_time_s(row, op, ranks, size_bytes),
    )


def predict_exchanges(
    catalog: Catalog, exchanges: Iterable[Exchange]
) -> Mapping[str, float | Refusal]:
    """Predicted time of each collective, s, or its refusal, by row id."""
    found: dict[str, float | Refusal] = {}
    for rows, selected in selected_exchanges(catalog, exchanges):
        ids = [row.id for row in rows]
        if isinstance(selected, Refusal):
            found |= dict.fromkeys(ids, selected)
        else:
            times_s = swept_times_s(selected, np.array([row.size_bytes for row in rows]))
            found |= zip(ids, times_s.tolist(), strict=True)
    return found


def selected_exchanges(
    catalog: Catalog, exchanges: Iterable[Exchange], stack: CollectiveStack | None = None
) -> Iterator[tuple[list[Exchange], tuple[Selected, ...] | Refusal]]:
    """Yield the collectives of each group, with the stack's choice by size, or a refusal.

    A given `stack` serves all groups, else their own.
    """
    placements: dict[tuple[str, int], Placement] = {}
    # One selection and placement per group: sweeps have many sizes each.
    for _, alike in groupby(sorted(exchanges, key=lambda e: e.group), key=lambda e: e.group):
        rows = list(alike)
        first = rows[0]
        where = first.instance, first.nodes
        selected: tuple[Selected, ...] | Refusal
        try:
            if where not in placements:
                placements[where] = place(load_platform(catalog, where[0]), nodes=where[1])
            of = stack or load_stack(catalog, first.stack)
            selected = _selected(of, placements[where], first)
        except InputError as error:
            selected = Refusal(reason=error.message)
        yield rows, selected


def fitted(stack_rows: Sequence[str], row: str) -> bool:
    """True when a calibration was fitted to the row.

    The calibration's entries begin with row ids, or patterns of ids, up to a colon.
    """
    ids, patterns = _named_rows(tuple(stack_rows))
    return row in ids or any(fnmatchcase(row, pattern) for pattern in patterns)


@cache
def _named_rows(stack_rows: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    named = [one for entry in stack_rows for one in entry.partition(":")[0].split()]
    patterns = tuple(one for one in named if not _PLAIN_ID.fullmatch(one))
    return frozenset(named) - {*patterns}, patterns


def _selected(
    stack: CollectiveStack, where: Placement, first: Exchange
) -> tuple[Selected, ...] | Refusal:
    per_node = first.ranks // first.nodes
    if per_node > where.fabric.ranks_per_node:
        return Refusal(reason=f"{first.instance} has {where.fabric.ranks_per_node} ranks per node")
    group = [
        node * where.fabric.ranks_per_node + rank
        for node in range(first.nodes)
        for rank in range(per_node)
    ]
    wanted: Algorithm | None = algorithm_named(first.algorithm) if first.algorithm else None
    return chosen_for(stack, members_of(where, [group], symmetric=True), first.op, algorithm=wanted)


def _compared(
    file: EvidenceFile,
    row: EvidenceRow,
    found: Exchange | str,
    times: Mapping[str, float | Refusal],
    stacks: Mapping[str, CollectiveStack],
) -> Comparison:
    system = "platform" if row.text("platform") else "instance"
    blank = Comparison.of_row(file, row, model="collective", system=system)
    if isinstance(found, str):
        return replace(blank, reason=found)
    time = times[row.id]
    stack = stacks[found.stack]
    return replace(
        blank,
        model=found.op,
        platform=found.instance,
        nodes=found.nodes,
        ranks=found.ranks,
        size_bytes=found.size_bytes,
        configuration=" ".join(map(str, found.group)),
        measured_s=found.time_s,
        predicted_s=None if isinstance(time, Refusal) else time,
        fitted=fitted(stack.fitted_rows, row.id),
        stack=stack.name,
        basis="transferred" if stack.inherits_from else "measured",
        own_stack=True,
        reason=time.reason if isinstance(time, Refusal) else None,
    )


def _op(row: EvidenceRow) -> Op:
    text = row.needed("collective")
    bare = text.removesuffix(" ring").strip()
    try:
        return op_named(bare)
    except InputError:
        raise RowFault(f"{text!r} is not a collective that is modelled") from None


def _time_s(row: EvidenceRow, op: Op, ranks: int, size_bytes: float) -> float:
    if row.said("time_us"):
        return row.positive("time_us") * 1e-6
    if row.said("busbw_GBps"):
        return size_bytes * bus_factor(op, ranks) / (row.positive("busbw_GBps") * _GIGABYTE)
    return size_bytes / (row.positive("algbw_GBps") * _GIGABYTE)


def _algorithm(row: EvidenceRow) -> str | None:
    said = f"{row.text('algo')} {row.text('collective')}".lower()
    for word, name in _ALGORITHMS:
        if word in said:
            if not name:
                raise RowFault(f"algorithm {row.text('algo')!r} is not modelled")
            return name
    return None


def _stack(catalog: Catalog, instance: str, library: str) -> str:
    """The name of the stack of a library's version, or else of the instance's own.

    A version's stack has the same name as the instance's, with the version behind the library's.
    """
    usual = stack_of(catalog, instance).name
    version = _VERSION.match(library)
    own = usual.replace("-nccl-", f"-nccl-{version[1]}-") if version else usual
    return own if own in catalog.names("calibration") else usual
