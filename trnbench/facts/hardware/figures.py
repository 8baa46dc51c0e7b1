"""Figures for comparing platforms, derived from the specs, with their evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trnbench.errors import unhandled
from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.fabric import Direct, FullMesh, Level, Network, OnChip, Switch, Torus
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import Record
from trnbench.facts.units import Dimension


class SheetFigure(Record):
    """One figure of a platform."""

    key: str
    label: str
    value: float
    dimension: Dimension | None
    kind: Kind
    """Weakest evidence among the numbers behind the figure."""


def figures(platform: Platform) -> tuple[SheetFigure, ...]:
    """Figures of a platform, in reading order."""
    instance = platform.instance
    count = instance.provenance.weakest("chips")
    return (
        SheetFigure(key="chips", label="chips", value=instance.chips, dimension=None, kind=count),
        *_compute(platform.chip, instance.chips, count),
        *_links(platform),
        *_host(platform),
    )


def chip_figures(chip: Chip) -> tuple[SheetFigure, ...]:
    return tuple(_compute(chip, 1, Kind.MEASURED))


def _compute(chip: Chip, chips: int, count_kind: Kind) -> Iterator[SheetFigure]:
    def total(
        key: str, label: str, per_chip: float, dimension: Dimension | None, *paths: str
    ) -> SheetFigure:
        kind = max(count_kind, chip.provenance.weakest(*paths))
        return SheetFigure(
            key=key, label=label, value=per_chip * chips, dimension=dimension, kind=kind
        )

    memory = chip.memory
    yield total("ranks", "ranks (default)", chip.ranks(), None, "cores.logical_default")
    yield total(
        "memory_bytes",
        "device memory",
        memory.capacity_per_chip_bytes,
        Dimension.BYTES,
        "memory.capacity_per_chip",
    )
    yield total(
        "memory_bandwidth_bytes_per_s",
        "memory bandwidth",
        memory.bandwidth_per_chip_bytes_per_s,
        Dimension.BYTES_PER_S,
        "memory.bandwidth_per_chip",
    )
    for number_format in chip.formats:
        yield total(
            f"peak_{number_format}_flop_per_s",
            f"peak {number_format}",
            chip.peak_flop_per_s(number_format),
            Dimension.FLOP_PER_S,
            *chip.unit.rate_keys(number_format),
        )
    for number_format, rate in chip.headline_per_chip_flop_per_s.items():
        yield total(
            f"headline_{number_format}_flop_per_s",
            f"headline {number_format}",
            rate,
            Dimension.FLOP_PER_S,
            f"headline_per_chip.{number_format}",
        )


def _links(platform: Platform) -> Iterator[SheetFigure]:
    provenance = platform.instance.provenance
    for i, level in enumerate(platform.instance.fabric):
        match level:
            case OnChip():
                continue
            case FullMesh():
                value = (level.chips - 1) * level.bandwidth_per_link_one_way_bytes_per_s
                label = f"{level.name}, a chip, one way"
            case Torus() | Direct():
                value = level.links_per_chip * level.bandwidth_per_link_one_way_bytes_per_s
                label = f"{level.name}, a chip, one way"
            case Switch():
                value = level.bandwidth_per_chip_one_way_bytes_per_s
                label = f"{level.name}, a chip, one way"
            case Network():
                value = level.adapters * level.bandwidth_per_adapter_one_way_bytes_per_s
                label = "network, an instance, one way"
            case _:
                unhandled(level, "bandwidth to show")
        yield SheetFigure(
            key=f"fabric_{_scope(level)}_one_way_bytes_per_s",
            label=label,
            value=value,
            dimension=Dimension.BYTES_PER_S,
            kind=provenance.weakest(f"fabric[{i}].bandwidth"),
        )


def _scope(level: Level) -> str:
    return "network" if isinstance(level, Network) else level.name.replace("-", "_")


def _host(platform: Platform) -> Iterator[SheetFigure]:
    host, provenance = platform.instance.host, platform.instance.provenance
    for key, label, value, dimension in (
        ("vcpus", "host vCPUs", host.vcpus, None),
        ("memory", "host memory", host.memory_bytes, Dimension.BYTES),
        ("local_storage", "local storage", host.local_storage_bytes, Dimension.BYTES),
    ):
        if value is not None:
            suffix = f"_{dimension.value}" if dimension else ""
            yield SheetFigure(
                key=f"host_{key}{suffix}",
                label=label,
                value=value,
                dimension=dimension,
                kind=provenance.weakest(f"host.{key}"),
            )


class Compared(Record):
    """One figure of several specs side by side; None for a spec without it."""

    key: str
    label: str
    dimension: Dimension | None
    values: tuple[float | None, ...]

    @property
    def ratios(self) -> tuple[float | None, ...]:
        first = self.values[0]
        return tuple(None if value is None or not first else value / first for value in self.values)


def compare(columns: Sequence[Sequence[SheetFigure]]) -> tuple[Compared, ...]:
    """Figures of several specs aligned by key, in the order of the first spec.

    A figure missing from earlier specs follows its predecessor in its own spec.
    """
    order: Sequence[SheetFigure] = ()
    for column in columns:
        order = _merged(order, column)
    by_key = [{figure.key: figure.value for figure in column} for column in columns]
    return tuple(
        Compared(
            key=figure.key,
            label=figure.label,
            dimension=figure.dimension,
            values=tuple(column.get(figure.key) for column in by_key),
        )
        for figure in order
    )


def _merged(order: Sequence[SheetFigure], column: Sequence[SheetFigure]) -> Sequence[SheetFigure]:
    merged = list(order)
    place = 0
    for figure in column:
        known = [i for i, other in enumerate(merged) if other.key == figure.key]
        if not known:
            merged.insert(place, figure)
        place = (known[0] if known else place) + 1
    return merged
