"""What carries over from a measured family of chips to one that was not measured: the stated rule.

A chip, or an instance on its stack of training or of communication, that no calibration names takes
the numbers of the nearest one that is named; each time numbers are handed on, the logarithm of
their ranges doubles. Chips are near to each other if they have the same kind of compute units and a
like ratio of their tensor units' peak to the bandwidth of their memory, which is what decides what
bounds a layer. Instances are near if they have the same chip, then if the links between their chips
are of a kind (switch, torus, ...), then if their networks are (RDMA, EFA, none). Where all three
are the same only the scatter of step times grows, as on any machine a stack was not fitted on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from trnbench.errors import InputError
from trnbench.facts.catalog.document import load_named
from trnbench.facts.catalog.provenance import Evidence, Kind, Provenance
from trnbench.facts.catalog.search import BUILT_IN, Catalog, Entry
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.records import Record, replace

FIT_SOURCE = "fit"
"""Under a name that begins so, a calibration cites the fit that told of its numbers."""
BY_KERNELS = "by kernels alone"
"""A note that ends so says how much of a number kernels that were timed alone tell."""
AS_IN = "as in "
"""A note that begins so names the calibration that a number was carried over from."""
HANDED_ON = 2.0
"""By how much the ranges of numbers grow that are taken over from another family."""
COMPARED_FORMAT = "bf16"
_KEY_OF = {"training-": "overlaps", "chip-": "tensor_share", "collective-": "tunings"}
"""How names of calibrations begin, by sort, and a key that only that sort has."""
_PARTS = ("_share", ".overlap", ".overlap_between_nodes")
"""Ends of the keys of numbers that are part of a whole."""


class Nearest(Record):
    """The named instance that comes nearest to one that is not, and in words what they share.

    `same`: the same chip, and links and network of the same kind.
    """

    instance: str
    alike: str
    same: bool


def nearest_chip(catalog: Catalog, chip: str, known: Iterable[str]) -> str:
    """Return the nearest of the known chips to a chip, by name."""
    own = load_named(catalog, "chips", chip, Chip)
    others = [load_named(catalog, "chips", name, Chip) for name in sorted(set(known))]
    alike = [one for one in others if type(one.unit) is type(own.unit)]
    if not alike:
        raise InputError(f"no calibrated chip has compute units of the kind of {chip}")
    return min(alike, key=lambda one: _distance(one, own)).name


def stack_file(
    catalog: Catalog, own: Instance | str, prefix: str, keys: Sequence[str]
) -> tuple[Entry, Nearest | None]:
    """Return the calibration that serves an instance or the instance of that name, not alias.

    With it comes whose it is, if not the instance's own.
    `prefix` says of which sort; it is the first that lists the instance under one of the keys, or
    that of the nearest instance under the first key.
    """
    name = own if isinstance(own, str) else own.name
    for key in keys:
        entry = listing(catalog, prefix, key, name)
        if entry is not None:
            return entry, None
    if isinstance(own, str):
        own = load_named(catalog, "instances", own, Instance)
    listed = (listed_in(catalog, entry, keys[0]) for entry in entries_of(catalog, prefix))
    nearest = nearest_instance(catalog, own, {name for names in listed for name in names})
    entry = listing(catalog, prefix, keys[0], nearest.instance)
    assert entry is not None
    return entry, nearest


def nearest_instance(catalog: Catalog, own: Instance, known: Iterable[str]) -> Nearest:
    """Return the nearest of the known instances (by name, not alias) to an instance."""
    chip = load_named(catalog, "chips", own.chip, Chip)
    names = sorted(set(known) & {entry.name for entry in catalog.entries("instances")})
    others = [load_named(catalog, "instances", name, Instance) for name in names]
    chips = {one.chip: load_named(catalog, "chips", one.chip, Chip) for one in others}
    alike = [one for one in others if type(chips[one.chip].unit) is type(chip.unit)]
    if not alike:
        chips_known = ", ".join(sorted(chips)) or "no chip"
        raise InputError(
            f"what is calibrated for {chips_known} says nothing of {own.chip}, the chip of "
            f"{own.name}: its compute units are of another kind",
            hint=f"leave --stack out for {own.name}'s own; `trnbench spec list` names all stacks",
        )

    def key(one: Instance) -> tuple[object, ...]:
        return (
            one.chip not in (own.chip, chip.like),
            one.scale_up_kind != own.scale_up_kind,
            _transport(one) != _transport(own),
            _distance(chips[one.chip], chip),
            one.name != own.like,
            one.name,
        )

    found = min(alike, key=key)
    other_chip, other_links, other_network, *_ = key(found)
    return Nearest(
        instance=found.name,
        same=not (other_chip or other_links or other_network),
        alike=", ".join(
            (
                f"another chip ({found.chip})" if other_chip else "the same chip",
                f"{'other' if other_links else 'the same kind of'} links between chips",
                f"another network ({_transport(found)})"
                if other_network
                else "the same kind of network",
            )
        ),
    )


def taken_over(
    catalog: Catalog, own: Instance, made_for: Mapping[str, Iterable[str]]
) -> tuple[str, ...]:
    """Return in words from where stacks serve an instance, of those that were not made for it.

    `made_for`: stack -> its instances.
    """
    found: dict[str, list[str]] = {}
    for stack, known in made_for.items():
        if own.name not in known:
            nearest = nearest_instance(catalog, own, known)
            found.setdefault(f"{nearest.instance} ({nearest.alike})", []).append(stack)
    return tuple(
        f"{' and '.join(stacks)} {'was' if len(stacks) == 1 else 'were'} not made for {own.name}: "
        f"carried over from {whom}, with wider ranges"
        for whom, stacks in found.items()
    )


def entries_of(catalog: Catalog, prefix: str) -> list[Entry]:
    """Return the calibrations of a sort, the user's before those that are shipped.

    Shipped ones are told by how their names begin, a user's also by a key that only these have.
    """
    found = [
        entry
        for entry in catalog.entries("calibration")
        if entry.name.startswith(prefix) or _told_by_key(catalog, entry, prefix)
    ]
    return sorted(found, key=lambda entry: entry.origin == BUILT_IN)


def _told_by_key(catalog: Catalog, entry: Entry, prefix: str) -> bool:
    if entry.origin == BUILT_IN or entry.name.startswith(tuple(_KEY_OF)) or prefix not in _KEY_OF:
        return False
    return _KEY_OF[prefix] in catalog.table(entry.path)


def listed_in(catalog: Catalog, entry: Entry, key: str) -> list[str]:
    """Return the names under a key, without building the record: only one of many is wanted."""
    names = catalog.table(entry.path).get(key)
    return [str(name) for name in names] if isinstance(names, list) else []


def listing(catalog: Catalog, prefix: str, key: str, name: str) -> Entry | None:
    """Return the first calibration that has this name under a key, the user's before our own."""
    entries = entries_of(catalog, prefix)
    return next((entry for entry in entries if name in listed_in(catalog, entry, key)), None)


def widened(known: Provenance, factor: float) -> Provenance:
    """Return the same evidence with wider ranges, estimated at best."""
    return replace(
        known, evidence={path: _wider(path, one, factor) for path, one in known.evidence.items()}
    )


def wider_ends(
    value: float, low: float, high: float, factor: float, *, most: float = math.inf
) -> tuple[float, float]:
    """Return the ends of a range `factor` times as wide; in logarithms where nothing is 0."""
    if low <= 0:
        return max(value - factor * (value - low), 0.0), min(value + factor * (high - value), most)
    return value * (low / value) ** factor, min(value * (high / value) ** factor, most)


def most_of(path: str) -> float:
    """Return the most that the number under a key can be: overlaps and shares are parts."""
    part = path.startswith("overlaps.") or path.endswith(_PARTS)
    return 1.0 if part else math.inf


def _wider(path: str, one: Evidence, factor: float) -> Evidence:
    if one.low is None or one.high is None:
        return one
    value = (one.low * one.high) ** 0.5 if one.low > 0 else (one.low + one.high) / 2
    low, high = wider_ends(value, one.low, one.high, factor, most=most_of(path))
    return replace(
        one,
        low=low,
        high=high,
        kind=max(one.kind, Kind.ESTIMATED),
        range_text=f"{low:.4g} to {high:.4g}",
    )


def _distance(one: Chip, other: Chip) -> float:
    return abs(math.log(_balance(one) / _balance(other)))


def _transport(instance: Instance) -> str:
    return instance.network.transport if instance.network else "none"


def _balance(chip: Chip) -> float:
    """Return a chip's FLOP for each byte of its memory's traffic."""
    return chip.peak_flop_per_s(COMPARED_FORMAT) / chip.memory.bandwidth_per_chip_bytes_per_s
