"""Levels of an interconnect, from the chip outwards, in the order of an instance file.

Every bandwidth is one-way; "per link", "per chip" or "per adapter" is in the name. A level joins
units of the level below: chips for the inner levels, instances for the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar

from trnbench.facts.catalog.quantity import BytesPerS, Ratio, Seconds
from trnbench.facts.records import Record, fields, replace


class OnChip(Record, tag_field="topology", tag="on-chip"):
    """Cores of one chip that exchange data through its memory and DMA engines.

    A rank is a core of the chip's default logical size.
    """

    name: str
    bandwidth_per_rank_one_way_bytes_per_s: BytesPerS
    latency_per_hop_s: Seconds


class Torus(Record, tag_field="topology", tag="torus"):
    """Chips wired as a torus (a ring where `shape` has one axis), with links in both directions.

    The chip index within the level is row-major over `shape`; every axis wraps round.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    links_per_chip: int
    bandwidth_per_link_one_way_bytes_per_s: BytesPerS
    latency_per_hop_s: Seconds

    def __post_init__(self) -> None:
        if len(self.axes) != len(self.shape):
            raise ValueError(f"{len(self.axes)} axes but {len(self.shape)} lengths in `shape`")
        # On an axis of two both neighbours are the same chip, joined by a single link.
        degree = sum(0 if length < 2 else 1 if length == 2 else 2 for length in self.shape)
        if degree != self.links_per_chip:
            raise ValueError(
                f"a torus {self.shape} has {degree} links per chip, not {self.links_per_chip}"
            )


class Switch(Record, tag_field="topology", tag="switch"):
    """Chips joined by a switch."""

    name: str
    chips: int
    bandwidth_per_chip_one_way_bytes_per_s: BytesPerS
    latency_per_hop_s: Seconds
    reduces: bool = False
    """True when the switch can add (NVLink SHARP)."""
    reduces_from_chips: int | None = None
    """Smallest group, chips, for which the switch adds."""

    def __post_init__(self) -> None:
        _refuse_none(self, "chips")


class Direct(Record, tag_field="topology", tag="direct"):
    """Chips in the same position of paired groups, joined by direct links.

    Groups have `chips_per_group` chips; group g is wired to group g + `group_distance`.
    """

    name: str
    chips_per_group: int
    group_distance: int
    links_per_chip: int
    bandwidth_per_link_one_way_bytes_per_s: BytesPerS
    latency_per_hop_s: Seconds

    def __post_init__(self) -> None:
        _refuse_none(self, "chips_per_group", "group_distance", "links_per_chip")


class FullMesh(Record, tag_field="topology", tag="full-mesh"):
    """Chips each wired to every other chip of the level, with links in both directions."""

    name: str
    chips: int
    bandwidth_per_link_one_way_bytes_per_s: BytesPerS
    latency_per_hop_s: Seconds

    def __post_init__(self) -> None:
        _refuse_none(self, "chips")


class Network(Record, tag_field="topology", tag="network"):
    """Adapters between instances, over leaf switches and a spine.

    With `rails`, adapter i of every instance is on leaf switch i: only traffic between different
    adapters crosses the spine, each rail by its own share. Traffic is never first handed to a chip
    of the other rail, as NCCL can do. Without rails, all traffic that leaves an instance crosses
    the spine.
    """

    name: str
    transport: Literal["rdma", "efa"] = "rdma"
    """Protocol of the adapters: RDMA over InfiniBand or RoCE, or EFA."""
    adapters: int
    bandwidth_per_adapter_one_way_bytes_per_s: BytesPerS
    step_latency_s: Seconds
    """One message between device memories, through any number of switches."""
    oversubscription: Ratio | None = None
    """Adapter over spine bandwidth, one way: 2 is 2:1; 1 or None is non-blocking."""
    rails: bool = False
    max_chips_per_cluster: int | None = None

    def __post_init__(self) -> None:
        ratio = self.oversubscription
        if ratio is not None and ratio < 1:
            raise ValueError(f"`oversubscription` must be at least 1 (1:1), not {ratio:g}")
        if self.adapters < 1:
            raise ValueError("`adapters` must be at least 1")


def _refuse_none(level: object, *names: str) -> None:
    for name in names:
        if getattr(level, name) < 1:
            raise ValueError(f"`{name}` must be at least 1")


Level: TypeAlias = OnChip | Torus | Switch | Direct | FullMesh | Network

L = TypeVar("L", bound=Level)


def times(level: L, *, bandwidth: float = 1.0, latency: float = 1.0) -> L:
    """The level with its bandwidth and its latency multiplied."""
    factors = {"bandwidth": bandwidth, "step": latency, "latency": latency}
    named = {
        field.name: factors[field.name.partition("_")[0]]
        for field in fields(level)
        if field.name.partition("_")[0] in factors
    }
    changed: Callable[..., L] = replace  # whose stub wants one type for all names
    return changed(level, **{name: getattr(level, name) * by for name, by in named.items()})
