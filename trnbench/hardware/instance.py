"""An instance: chips of one type, a host, a fabric, and what may be run on it.

Its file names the chip; `Instance.chip` is the chip's name and `Platform` joins the two.
"""

from __future__ import annotations

from typing import Literal

import attrs

from trnbench.catalog.provenance import Provenance
from trnbench.catalog.quantity import Bytes, BytesPerS, FlopPerS
from trnbench.hardware.chip import Chip
from trnbench.hardware.compute_unit import keyed_by_format
from trnbench.hardware.fabric import Level, Network

PurchaseOption = Literal["on-demand", "spot", "reserved", "savings-plan", "capacity-block", "quote"]


@attrs.frozen(kw_only=True)
class Host:
    """The machine around the chips, as its vendor sells it; per instance."""

    vcpus: int | None = None
    memory_bytes: Bytes | None = None
    processor: str | None = None
    local_storage_bytes: Bytes | None = None
    local_drives: int | None = None
    block_storage_bandwidth_bytes_per_s: BytesPerS | None = None
    network_bandwidth_bytes_per_s: BytesPerS | None = None


@attrs.frozen(kw_only=True)
class Totals:
    """What the vendor states for the whole instance; tests hold them against chips x chip."""

    memory_bytes: Bytes | None = None
    memory_bandwidth_bytes_per_s: BytesPerS | None = None
    link_bandwidth_per_chip_both_ways_bytes_per_s: BytesPerS | None = None
    network_bandwidth_bytes_per_s: BytesPerS | None = None
    dense_flop_per_s: dict[str, FlopPerS] = attrs.field(factory=dict, validator=keyed_by_format)
    sparse_flop_per_s: dict[str, FlopPerS] = attrs.field(factory=dict, validator=keyed_by_format)


@attrs.frozen(kw_only=True)
class LegalDegrees:
    """Degrees a platform's software accepts for one size of logical core.

    `tensor_parallel_warned`: what the runtime may accept and a published library does not.
    """

    logical_size: int
    tensor_parallel: tuple[int, ...]
    tensor_parallel_warned: tuple[int, ...] = ()
    ranks_per_job: tuple[int, ...] = ()
    ranks_per_job_multiple: int | None = None
    note: str | None = None


@attrs.frozen(kw_only=True)
class Instance:
    """A machine one can rent or own: `chips` chips in one scale-up domain with a host.

    `published_as`: what measurements by others call it, where that is no name to type.
    """

    name: str
    title: str
    provider: str
    aliases: tuple[str, ...] = ()
    published_as: tuple[str, ...] = ()
    chip: str
    chips: int
    hosts: int = 1
    host_instance: str | None = None
    purchase: tuple[PurchaseOption, ...] = ()
    host: Host
    fabric: tuple[Level, ...]
    totals: Totals = attrs.field(factory=Totals)
    degrees: tuple[LegalDegrees, ...] = ()
    provenance: Provenance = attrs.field(
        factory=Provenance, repr=False, eq=False, metadata={"derived": True}
    )

    def __attrs_post_init__(self) -> None:
        """Refuse an instance without chips or with levels named twice."""
        if self.chips < 1:
            raise ValueError("`chips` must be at least 1")
        names = [level.name for level in self.fabric]
        if len(set(names)) != len(names):
            raise ValueError("two levels of `fabric` have the same name")

    @property
    def network(self) -> Network | None:
        """The level that joins instances, where there is one."""
        return next((level for level in self.fabric if isinstance(level, Network)), None)


@attrs.frozen(kw_only=True)
class Platform:
    """An instance with its chip: what the engines run on."""

    instance: Instance
    chip: Chip

    @property
    def memory_bytes(self) -> float:
        """Device memory of the whole instance."""
        return self.instance.chips * self.chip.memory.capacity_per_chip_bytes

    def legal_degrees(self, logical_size: int | None = None) -> LegalDegrees | None:
        """Return the degrees listed for a size of logical core, where any are listed."""
        size = self.chip.unit.cores_per_rank(logical_size)
        return next((d for d in self.instance.degrees if d.logical_size == size), None)

    def memory_per_rank_bytes(self, logical_size: int | None = None) -> float:
        """Device memory of one rank: its chip's, divided by the ranks on it."""
        return self.chip.memory.capacity_per_chip_bytes / self.chip.ranks(logical_size)
