"""An instance: chips of one type, a host, a fabric, and the supported parallel degrees.

The file names the chip; `Instance.chip` is the chip's name and `Platform` joins the two.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Bytes, BytesPerS, FlopPerS
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import check_formats
from trnbench.facts.hardware.fabric import Level, Network, OnChip, Switch
from trnbench.facts.records import Record, field, replace, tag_of

PurchaseOption = Literal["on-demand", "spot", "reserved", "savings-plan", "capacity-block", "quote"]


class Host(Record):
    """The machine around the chips, as its vendor sells it; per instance."""

    vcpus: int | None = None
    memory_bytes: Bytes | None = None
    processor: str | None = None
    local_storage_bytes: Bytes | None = None
    local_drives: int | None = None
    block_storage_bandwidth_bytes_per_s: BytesPerS | None = None
    network_bandwidth_bytes_per_s: BytesPerS | None = None
    link_per_chip_one_way_bytes_per_s: BytesPerS | None = None
    """Peak between the host's memory and a chip."""


class Totals(Record):
    """The vendor's figures for the whole instance, which tests check against chips x chip."""

    memory_bytes: Bytes | None = None
    memory_bandwidth_bytes_per_s: BytesPerS | None = None
    link_bandwidth_per_chip_both_ways_bytes_per_s: BytesPerS | None = None
    network_bandwidth_bytes_per_s: BytesPerS | None = None
    dense_flop_per_s: dict[str, FlopPerS] = field(default_factory=dict)
    sparse_flop_per_s: dict[str, FlopPerS] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_formats(self, "dense_flop_per_s", "sparse_flop_per_s")


class LegalDegrees(Record):
    """Parallel degrees that a platform's software accepts for one size of logical core."""

    logical_size: int
    tensor_parallel: tuple[int, ...]
    tensor_parallel_warned: tuple[int, ...] = ()
    """Degrees that the runtime may accept and a published library does not."""
    ranks_per_job: tuple[int, ...] = ()
    ranks_per_job_multiple: int | None = None
    note: str | None = None


class StridedGroups(Record):
    """Groups of `ranks` ranks, `stride` apart, for one size of logical core."""

    logical_size: int
    ranks: int
    stride: int
    note: str | None = None


class Routing(Record):
    """Groups of ranks inside an instance that its software can route."""

    groups: Literal["blocks"]
    """Rule:

    the chips form a block of the torus (one chip, two neighbours, a row, column or rectangle).
    """
    note: str | None = None
    also: tuple[StridedGroups, ...] = ()
    """Routable groups outside of the rule."""


class Instance(Sourced):
    """A machine to rent or own: `chips` chips in one scale-up domain with a host."""

    section: ClassVar[str] = "instances"
    own_keys: ClassVar[tuple[str, ...]] = (
        *("name", "title", "aliases", "published_as", "purchase", "totals"),
        "host.network_bandwidth",
    )

    name: str
    title: str
    provider: str
    aliases: tuple[str, ...] = ()
    published_as: tuple[str, ...] = ()
    """Names in published measurements that users do not type."""
    like: str | None = None
    """Instance that fills the keys missing from the file, except for `own_keys`."""
    chip: str
    chips: int
    hosts: int = 1
    domain_nodes: int = 1
    """Instances joined by one switch of `fabric`."""
    host_instance: str | None = None
    purchase: tuple[PurchaseOption, ...] = ()
    host: Host
    fabric: tuple[Level, ...]
    totals: Totals = field(default_factory=Totals)
    degrees: tuple[LegalDegrees, ...] = ()
    routing: Routing | None = None

    def __post_init__(self) -> None:
        if self.chips < 1:
            raise ValueError("`chips` must be at least 1")
        inside = (level for level in self.fabric if not isinstance(level, Network))
        if self.domain_nodes < 1 or (
            self.domain_nodes > 1 and not all(isinstance(level, Switch) for level in inside)
        ):
            raise ValueError("`domain_nodes` is at least 1; only a switch joins more than 1")
        joined = max((level.chips for level in self.fabric if isinstance(level, Switch)), default=0)
        if joined > self.chips * self.domain_nodes:
            raise ValueError(f"its fabric joins {joined} chips, not {self.chips}")
        names = [level.name for level in self.fabric]
        if len(set(names)) != len(names):
            raise ValueError("two levels of `fabric` have the same name")

    @property
    def network(self) -> Network | None:
        return next((level for level in self.fabric if isinstance(level, Network)), None)

    @property
    def scale_up_kind(self) -> tuple[str, ...]:
        """Topologies of the levels that join its chips, innermost first."""
        return tuple(
            tag_of(level) for level in self.fabric if not isinstance(level, OnChip | Network)
        )


class Platform(Record):
    """An instance with its chip: the hardware of the engines."""

    instance: Instance
    chip: Chip
    joined_nodes: int = 1
    """Number of instances that `joined` merged into this one."""

    def domain_of(self, nodes: int) -> int:
        """Instances to merge into one domain, for a job of `nodes` instances.

        All domains of a job have equally many of its nodes. A job within one domain may use a part
        of the merged instance, which several jobs of its size then fill.
        """
        most = self.instance.domain_nodes
        if nodes <= most:
            # A small job shares the domain with copies of itself.
            return most // nodes * nodes
        return max(size for size in range(1, most + 1) if nodes % size == 0)

    def joined(self, nodes: int) -> Platform:
        """The platform whose instance is `nodes` of these instances in one domain."""
        instance = self.instance
        if nodes == 1 and instance.domain_nodes == 1:
            return self

        def times(value: float | None) -> float | None:
            return None if value is None else nodes * value

        host = replace(
            instance.host,
            vcpus=instance.host.vcpus and nodes * instance.host.vcpus,
            memory_bytes=times(instance.host.memory_bytes),
            network_bandwidth_bytes_per_s=times(instance.host.network_bandwidth_bytes_per_s),
        )
        chips = nodes * instance.chips

        def of_all(level: Level) -> Level:
            if isinstance(level, Network):
                return replace(level, adapters=nodes * level.adapters)
            # What lies idle behind the switch is not part of what is looked at.
            return (
                replace(level, chips=min(level.chips, chips))
                if isinstance(level, Switch)
                else level
            )

        joined = replace(
            instance,
            chips=chips,
            hosts=nodes * instance.hosts,
            host=host,
            fabric=tuple(of_all(level) for level in instance.fabric),
            domain_nodes=1,
        )
        return replace(self, instance=joined, joined_nodes=nodes)

    @property
    def memory_bytes(self) -> float:
        return self.instance.chips * self.chip.memory.capacity_per_chip_bytes

    def legal_degrees(self, logical_size: int | None = None) -> LegalDegrees | None:
        """Degrees listed for a size of logical core; None without a list."""
        size = self.chip.unit.cores_per_rank(logical_size)
        return next((d for d in self.instance.degrees if d.logical_size == size), None)

    def ranks(self, logical_size: int | None = None) -> int:
        return self.instance.chips * self.chip.ranks(logical_size)

    def memory_per_rank_bytes(self, logical_size: int | None = None) -> float:
        """Device memory of one rank, bytes: its chip's, divided by the ranks on it."""
        return self.chip.memory.capacity_per_chip_bytes / self.chip.ranks(logical_size)
