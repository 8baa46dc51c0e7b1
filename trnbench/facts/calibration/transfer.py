"""Transfer of calibrations from a measured family of chips to an unmeasured one.

A chip or instance without a calibration takes the numbers of the nearest calibrated one; each
transfer doubles the logarithm of their ranges. Chips are near with the same kind of compute units
and a similar ratio of tensor peak to memory bandwidth, which decides the bound of a layer.
Instances are near with the same chip, then a chip of the same family, then the same kind of chip
links (switch, torus, ...), then the same kind of network (RDMA, EFA, none). With chip, links and
network equal only the scatter of step times grows, as on any machine outside of the fit. Names of
stacks, which decide who serves an instance, are read here as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from trnbench.errors import InputError, UnknownNameError, listed, nearest_names
from trnbench.facts.catalog.document import load_named
from trnbench.facts.catalog.provenance import Evidence, Kind, Provenance
from trnbench.facts.catalog.search import BUILT_IN, Catalog, Entry
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.records import Record, replace

FIT_SOURCE = "fit"
"""Prefix of the source names of fits in calibrations."""
BY_KERNELS = "by kernels alone"
"""Ending of a note on the part of a number known from kernels timed alone."""
AS_IN = "as in "
"""Beginning of a note that names the calibration a number was carried over from."""
HANDED_ON = 2.0
"""Factor on the (logarithmic) ranges of numbers transferred from another family."""
COMPARED_FORMAT = "bf16"
_KEY_OF = {"training-": "overlaps", "chip-": "tensor_share", "collective-": "tunings"}
"""A key unique to each sort of calibration, by the prefix of its names."""
_PARTS = ("_share", ".overlap", ".overlap_between_nodes")
"""Endings of the keys of fractions."""


class Nearest(Record):
    """The nearest calibrated instance to an uncalibrated one."""

    instance: str
    alike: str
    """What the two share, in words."""
    same: bool
    """True with the same chip, and links and network of the same kind."""


def nearest_chip(catalog: Catalog, chip: str, known: Iterable[str]) -> str:
    """Name of the known chip nearest to a chip."""
    own = load_named(catalog, "chips", chip, Chip)
    others = [load_named(catalog, "chips", name, Chip) for name in sorted(set(known))]
    # Shares of a systolic array say nothing of other compute units, however near the peaks are.
    alike = [other for other in others if type(other.unit) is type(own.unit)]
    if not alike:
        raise InputError(f"no calibrated chip has compute units of the kind of {chip}")
    return min(alike, key=lambda other: _distance(other, own)).name


def stack_file(
    catalog: Catalog, own: Instance | str, prefix: str, keys: Sequence[str]
) -> tuple[Entry, Nearest | None]:
    """Calibration of an instance (a record, or a name, not an alias), and the owner if another.

    `prefix` gives the sort. The first file that lists the instance under one of the keys wins, or
    else the nearest instance's under the first key.
    """
    name = own if isinstance(own, str) else own.name
    for key in keys:
        entry = listing(catalog, prefix, key, name)
        if entry is not None:
            return entry, None
    if isinstance(own, str):
        own = load_named(catalog, "instances", own, Instance)
    listed = (listed_in(catalog, entry, keys[0]) for entry in entries_of(catalog, prefix))
    # Only the first key: weaker claims of a stack do not transfer.
    nearest = nearest_instance(catalog, own, {name for names in listed for name in names})
    entry = listing(catalog, prefix, keys[0], nearest.instance)
    assert entry is not None
    return entry, nearest


def nearest_instance(catalog: Catalog, own: Instance, known: Iterable[str]) -> Nearest:
    """The known instance (by name, not alias) nearest to an instance."""
    chip = load_named(catalog, "chips", own.chip, Chip)
    names = sorted(set(known) & {entry.name for entry in catalog.entries("instances")})
    others = [load_named(catalog, "instances", name, Instance) for name in names]
    chips = {other.chip: load_named(catalog, "chips", other.chip, Chip) for other in others}
    alike = [other for other in others if type(chips[other.chip].unit) is type(chip.unit)]
    if not alike:
        chips_known = ", ".join(sorted(chips)) or "no chip"
        raise InputError(
            f"what is calibrated for {chips_known} says nothing of {own.chip}, the chip of "
            f"{own.name}: its compute units are of another kind",
            hint=f"leave --stack out for {own.name}'s own; `trnbench spec list` names all stacks",
        )

    # Compared in this order; the name at the end makes the choice repeatable.
    def key(other: Instance) -> tuple[object, ...]:
        return (
            other.chip not in (own.chip, chip.like),
            chips[other.chip].family != chip.family,
            other.scale_up_kind != own.scale_up_kind,
            _transport(other) != _transport(own),
            _distance(chips[other.chip], chip),
            other.name != own.like,
            other.name,
        )

    nearest = min(alike, key=key)
    other_chip, _, other_links, other_network, *_ = key(nearest)
    return Nearest(
        instance=nearest.name,
        same=not (other_chip or other_links or other_network),
        alike=", ".join(
            (
                f"another chip ({nearest.chip})" if other_chip else "the same chip",
                f"{'other' if other_links else 'the same kind of'} links between chips",
                f"another network ({_transport(nearest)})"
                if other_network
                else "the same kind of network",
            )
        ),
    )


def taken_over(
    catalog: Catalog, own: Instance, made_for: Mapping[str, Iterable[str]]
) -> tuple[str, ...]:
    """Remarks on stacks (with the instances they were `made_for`) that another one hands on."""
    strangers: dict[str, list[str]] = {}
    for stack, known in made_for.items():
        if own.name not in known:
            nearest = nearest_instance(catalog, own, known)
            strangers.setdefault(f"{nearest.instance} ({nearest.alike})", []).append(stack)
    return tuple(
        f"{' and '.join(stacks)} {'was' if len(stacks) == 1 else 'were'} not made for {own.name}: "
        f"carried over from {whom}, with wider ranges"
        for whom, stacks in strangers.items()
    )


def entries_of(catalog: Catalog, prefix: str) -> list[Entry]:
    """Calibrations of a sort, the user's before the shipped ones.

    Shipped files are recognised by their prefix, a user's also by a key unique to the sort.
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
    """Names under a key, read without building the record, because most files do not match."""
    names = catalog.table(entry.path).get(key)
    return [str(name) for name in names] if isinstance(names, list) else []


def listing(catalog: Catalog, prefix: str, key: str, name: str) -> Entry | None:
    """The first calibration with this name under a key, the user's before the shipped ones."""
    entries = entries_of(catalog, prefix)
    return next((entry for entry in entries if name in listed_in(catalog, entry, key)), None)


def widened(evidenced: Provenance, factor: float) -> Provenance:
    """The same evidence with wider ranges, at best estimated."""
    return replace(
        evidenced,
        evidence={
            path: _wider(path, evidence, factor) for path, evidence in evidenced.evidence.items()
        },
    )


def wider_ends(
    value: float, low: float, high: float, factor: float, *, most: float = math.inf
) -> tuple[float, float]:
    """Ends of a range `factor` times as wide: in logarithms, or linearly around 0."""
    # A range that touches 0 has no logarithm: its distances from the value are stretched.
    if low <= 0:
        return max(value - factor * (value - low), 0.0), min(value + factor * (high - value), most)
    return value * (low / value) ** factor, min(value * (high / value) ** factor, most)


def most_of(path: str) -> float:
    """Upper bound of the number under a key: 1 for overlaps and shares, else infinity."""
    part = path.startswith("overlaps.") or path.endswith(_PARTS)
    return 1.0 if part else math.inf


def _wider(path: str, evidence: Evidence, factor: float) -> Evidence:
    if evidence.low is None or evidence.high is None:
        return evidence
    # Evidence holds the value as a text of the file; the middle of its range stands for it here.
    value = (
        (evidence.low * evidence.high) ** 0.5
        if evidence.low > 0
        else (evidence.low + evidence.high) / 2
    )
    low, high = wider_ends(value, evidence.low, evidence.high, factor, most=most_of(path))
    return replace(
        evidence,
        low=low,
        high=high,
        kind=max(evidence.kind, Kind.ESTIMATED),
        range_text=f"{low:.4g} to {high:.4g}",
    )


def of_one_generation(one: Chip, other: Chip) -> bool:
    """True for chips of one family, whose software is alike; each Trainium is one by itself."""
    if isinstance(one.unit, NeuronCores):
        return one.name == other.name
    return one.family == other.family


def _distance(chip: Chip, other: Chip) -> float:
    return abs(math.log(_balance(chip) / _balance(other)))


def _transport(instance: Instance) -> str:
    return instance.network.transport if instance.network else "none"


def _balance(chip: Chip) -> float:
    compared = COMPARED_FORMAT if COMPARED_FORMAT in chip.formats else chip.formats[0]
    return chip.peak_flop_per_s(compared) / chip.memory.bandwidth_per_chip_bytes_per_s


STACK_PREFIX = "training-"
"""Prefix of training stacks; calibrations of all sorts share one folder."""
STACK_KEYS = ("default_for", "instances")
"""Keys under which a stack lists instances that use it by default, strongest first."""


def unknown_stack(catalog: Catalog, name: str, instance: str | None) -> UnknownNameError:
    """Error for an unknown stack name; suggestions start with the instance's stacks."""
    every = [*known_stacks(catalog, None), *catalog.names("software")]
    near = nearest_names(name, known_stacks(catalog, instance)) or nearest_names(name, every)
    return UnknownNameError(
        "training stack",
        name,
        every,
        lists="trnbench spec list calibration",
        remedy=f"; did you mean {listed([*map(repr, near)], 'or')}?" if near else "",
    )


def known_stacks(catalog: Catalog, instance: str | None) -> list[str]:
    """Short names of all training stacks, or of those that list an instance."""
    return [
        entry.name.removeprefix(STACK_PREFIX)
        for entry in entries_of(catalog, STACK_PREFIX)
        if instance is None or instance in listed_in(catalog, entry, "instances")
    ]


def serving_by_name(catalog: Catalog, instance: str) -> tuple[str, ...]:
    """The user's stacks that serve an instance by default with equal priority, if several."""
    for key in STACK_KEYS:
        own = [
            entry.name.removeprefix(STACK_PREFIX)
            for entry in entries_of(catalog, STACK_PREFIX)
            if entry.origin != BUILT_IN and instance in listed_in(catalog, entry, key)
        ]
        if own:
            return tuple(own) if len(own) > 1 else ()
    return ()
