"""Figures for comparing platforms, derived from the specs, with their evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trnbench.errors import unhandled
from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.fabric import Direct, FullMesh, Network, OnChip, Switch, Torus
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import Record
from trnbench.facts.units import Dimension


class SheetFigure(Record, kw_only=False):
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
        SheetFigure("chips", "chips", instance.chips, None, count),
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
        return SheetFigure(key, label, per_chip * chips, dimension, kind)

    size, rate = chip.memory.capacity_per_chip_bytes, chip.memory.bandwidth_per_chip_bytes_per_s
    yield total("ranks", "ranks (default)", chip.ranks(), None, "cores.logical_default")
    key = "memory.capacity_per_chip"
    yield total("memory_bytes", "device memory", size, Dimension.BYTES, key)
    name, key = "memory_bandwidth_bytes_per_s", "memory.bandwidth_per_chip"
    yield total(name, "memory bandwidth", rate, Dimension.BYTES_PER_S, key)
    for each in chip.formats:
        name, peak, keys = f"peak_{each}_flop_per_s", f"peak {each}", chip.unit.rate_keys(each)
        yield total(name, peak, chip.peak_flop_per_s(each), Dimension.FLOP_PER_S, *keys)
    for each, rate in chip.headline_per_chip_flop_per_s.items():
        name, key = f"headline_{each}_flop_per_s", f"headline_per_chip.{each}"
        yield total(name, f"headline {each}", rate, Dimension.FLOP_PER_S, key)


def _links(platform: Platform) -> Iterator[SheetFigure]:
    provenance = platform.instance.provenance
    for i, level in enumerate(platform.instance.fabric):
        scope, label = level.name.replace("-", "_"), f"{level.name}, a chip, one way"
        match level:
            case OnChip():
                continue
            case FullMesh():
                value = (level.chips - 1) * level.bandwidth_per_link_one_way_bytes_per_s
            case Torus() | Direct():
                value = level.links_per_chip * level.bandwidth_per_link_one_way_bytes_per_s
            case Switch():
                value = level.bandwidth_per_chip_one_way_bytes_per_s
            case Network():
                value = level.adapters * level.bandwidth_per_adapter_one_way_bytes_per_s
                scope, label = "network", "network, an instance, one way"
            case _:
                unhandled(level, "bandwidth to show")
        key = f"fabric_{scope}_one_way_bytes_per_s"
        kind = provenance.weakest(f"fabric[{i}].bandwidth")
        yield SheetFigure(key, label, value, Dimension.BYTES_PER_S, kind)


def _host(platform: Platform) -> Iterator[SheetFigure]:
    host, provenance = platform.instance.host, platform.instance.provenance
    for key, label, value, dimension in (
        ("vcpus", "host vCPUs", host.vcpus, None),
        ("memory", "host memory", host.memory_bytes, Dimension.BYTES),
        ("local_storage", "local storage", host.local_storage_bytes, Dimension.BYTES),
    ):
        if value is not None:
            suffix = f"_{dimension.value}" if dimension else ""
            kind = provenance.weakest(f"host.{key}")
            yield SheetFigure(f"host_{key}{suffix}", label, value, dimension, kind)


class Compared(Record, kw_only=False):
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
        Compared(one.key, one.label, one.dimension, tuple(each.get(one.key) for each in by_key))
        for one in order
    )


def _merged(order: Sequence[SheetFigure], column: Sequence[SheetFigure]) -> Sequence[SheetFigure]:
    merged = list(order)
    place = 0
    for figure in column:
        places = [i for i, other in enumerate(merged) if other.key == figure.key]
        if not places:
            merged.insert(place, figure)
        place = (places[0] if places else place) + 1
    return merged
