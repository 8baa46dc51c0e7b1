"""The levels of an interconnect, from the chip outwards, as an instance file lists them.

Every bandwidth is one-way; "per link", "per chip" or "per adapter" is in the name. A level joins
units of the level below it: chips for the inner ones, instances for the network.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from trnbench.catalog.quantity import BytesPerS, Seconds


@attrs.frozen(kw_only=True)
class OnChip:
    """Cores of one chip exchanging data through its memory and DMA engines.

    A rank is a core of the chip's default logical size.
    """

    topology: ClassVar[str] = "on-chip"

    name: str
    bandwidth_per_rank_one_way_bytes_per_s: BytesPerS
    latency_per_hop_s: Seconds


@attrs.frozen(kw_only=True)
class Torus:
    """Chips wired as a torus (a ring where `shape` has one axis), links both ways.

    Chip index within the level is row-major over `shape`; every axis wraps round.
    """

    topology: ClassVar[str] = "torus"

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    links_per_chip: int
    bandwidth_per_link_one_way_bytes_per_s: BytesPerS
    latency_per_hop_s: Seconds

    def __attrs_post_init__(self) -> None:
        """Refuse a shape that does not fit the axes or the links."""
        if len(self.axes) != len(self.shape):
            raise ValueError(f"{len(self.axes)} axes but {len(self.shape)} lengths in `shape`")
        degree = sum(0 if length < 2 else 1 if length == 2 else 2 for length in self.shape)
        if degree != self.links_per_chip:
            raise ValueError(
                f"a torus {self.shape} has {degree} links per chip, not {self.links_per_chip}"
            )


@attrs.frozen(kw_only=True)
class Switch:
    """Chips joined by a switch; `reduces` when the switch can add (NVLink SHARP)."""

    topology: ClassVar[str] = "switch"

    name: str
    chips: int
    bandwidth_per_chip_one_way_bytes_per_s: BytesPerS
    latency_per_hop_s: Seconds
    reduces: bool = False
    reduces_from_chips: int | None = None


@attrs.frozen(kw_only=True)
class Direct:
    """Chips of the same position in paired groups, joined by direct links.

    `chips_per_group`: size of a group; group g is wired to group g + `group_distance`.
    """

    topology: ClassVar[str] = "direct"

    name: str
    chips_per_group: int
    group_distance: int
    links_per_chip: int
    bandwidth_per_link_one_way_bytes_per_s: BytesPerS
    latency_per_hop_s: Seconds


@attrs.frozen(kw_only=True)
class FullMesh:
    """Chips each wired to every other chip of the level, links both ways."""

    topology: ClassVar[str] = "full-mesh"

    name: str
    chips: int
    bandwidth_per_link_one_way_bytes_per_s: BytesPerS
    latency_per_hop_s: Seconds


@attrs.frozen(kw_only=True)
class Network:
    """Adapters between instances over a non-blocking core.

    `step_latency`: one message from device memory to device memory.
    """

    topology: ClassVar[str] = "network"

    name: str
    adapters: int
    bandwidth_per_adapter_one_way_bytes_per_s: BytesPerS
    step_latency_s: Seconds
    max_chips_per_cluster: int | None = None


Level = OnChip | Torus | Switch | Direct | FullMesh | Network
