"""What a vendor states for an instance equals chips x chip within the digits it states.

Where it does not, the file must say so in a conflict on that field.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trnbench.facts.catalog.provenance import Provenance
from trnbench.facts.catalog.search import BUILT_IN, Catalog, Folder, built_in_folder
from trnbench.facts.hardware.fabric import Direct, Switch, Torus
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import Record, replace
from trnbench.facts.units import Dimension, parse

CATALOG = Catalog((Folder(built_in_folder(), BUILT_IN),))
INSTANCES = [e.name for e in CATALOG.entries("instances") if e.name.startswith("trn")]


class Sum(Record):
    """A stated total beside what its parts add up to; `slack` is the rounding of both texts."""

    field: str
    stated: float
    expected: float
    slack: float

    @property
    def agrees(self) -> bool:
        return abs(self.stated - self.expected) <= self.slack * (1 + 1e-9)


def half_digit(text: str, dimension: Dimension) -> float:
    """Half a unit of the last digit that the text states, in base units."""
    number, unit = text.split(maxsplit=1)
    decimals = len(number.partition(".")[2])
    return parse(f"{0.5 * 10**-decimals:.{decimals + 1}f} {unit}", dimension)


def test_half_digit():
    assert half_digit("10.7 PFLOP/s", Dimension.FLOP_PER_S) == 0.05e15
    assert half_digit("3,040 TFLOP/s", Dimension.FLOP_PER_S) == 0.5e12
    assert half_digit("2.90 TB/s", Dimension.BYTES_PER_S) == 0.005e12


def sums(platform: Platform) -> Iterator[Sum]:
    """Every total of the instance that its chips or its levels account for."""
    chips, totals = platform.instance.chips, platform.instance.totals
    stated_texts = platform.instance.provenance.evidence
    chip_texts = platform.chip.provenance.evidence

    def times_chips(
        field: str, stated: float, chip_field: str, per_chip: float, dimension: Dimension
    ) -> Sum:
        slack = half_digit(stated_texts[field].text, dimension)
        slack += chips * half_digit(chip_texts[chip_field].text, dimension)
        return Sum(field=field, stated=stated, expected=chips * per_chip, slack=slack)

    memory = platform.chip.memory
    if totals.memory_bytes is not None:
        yield times_chips(
            "totals.memory",
            totals.memory_bytes,
            "memory.capacity_per_chip",
            memory.capacity_per_chip_bytes,
            Dimension.BYTES,
        )
    if totals.memory_bandwidth_bytes_per_s is not None:
        yield times_chips(
            "totals.memory_bandwidth",
            totals.memory_bandwidth_bytes_per_s,
            "memory.bandwidth_per_chip",
            memory.bandwidth_per_chip_bytes_per_s,
            Dimension.BYTES_PER_S,
        )
    for number_format, stated in totals.dense_flop_per_s.items():
        yield times_chips(
            f"totals.dense.{number_format}",
            stated,
            f"headline_per_chip.{number_format}",
            platform.chip.headline_per_chip_flop_per_s[number_format],
            Dimension.FLOP_PER_S,
        )
    for number_format, stated in totals.sparse_flop_per_s.items():
        assert platform.chip.sparsity is not None
        yield times_chips(
            f"totals.sparse.{number_format}",
            stated,
            f"sparsity.peak_per_chip.{number_format}",
            platform.chip.sparsity.peak_per_chip_flop_per_s[number_format],
            Dimension.FLOP_PER_S,
        )
    if totals.link_bandwidth_per_chip_both_ways_bytes_per_s is not None:
        field = "totals.link_bandwidth_per_chip_both_ways"
        yield Sum(
            field=field,
            stated=totals.link_bandwidth_per_chip_both_ways_bytes_per_s,
            expected=2 * one_way_per_chip_bytes_per_s(platform),
            slack=half_digit(stated_texts[field].text, Dimension.BYTES_PER_S),
        )
    network = platform.instance.network
    if totals.network_bandwidth_bytes_per_s is not None:
        assert network is not None
        field = "totals.network_bandwidth"
        yield Sum(
            field=field,
            stated=totals.network_bandwidth_bytes_per_s,
            expected=network.adapters * network.bandwidth_per_adapter_one_way_bytes_per_s,
            slack=half_digit(stated_texts[field].text, Dimension.BYTES_PER_S),
        )


def one_way_per_chip_bytes_per_s(platform: Platform) -> float:
    """What all chip-to-chip links of a chip carry one way."""
    total = 0.0
    for level in platform.instance.fabric:
        if isinstance(level, Torus | Direct):
            total += level.links_per_chip * level.bandwidth_per_link_one_way_bytes_per_s
        elif isinstance(level, Switch):
            total += level.bandwidth_per_chip_one_way_bytes_per_s
    return total


def unexplained(platform: Platform) -> list[str]:
    """The fields whose total is off and about which the instance's file says nothing.

    A vendor's one figure for several formats is explained once, for any of them.
    """
    provenance = platform.instance.provenance
    explained = {conflict.field for conflict in provenance.conflicts}
    explained_texts = {
        provenance.evidence[field].text for field in explained if field in provenance.evidence
    }
    return [
        total.field
        for total in sums(platform)
        if not total.agrees
        and total.field not in explained
        and provenance.evidence[total.field].text not in explained_texts
    ]


@pytest.mark.parametrize("name", INSTANCES)
def test_totals_are_chips_times_chip_or_a_recorded_conflict(name):
    assert unexplained(load_platform(CATALOG, name)) == []


def _without_conflicts(platform: Platform) -> Platform:
    silent: Provenance = replace(platform.instance.provenance, conflicts=())
    return replace(platform, instance=replace(platform.instance, provenance=silent))


def test_the_known_mismatches_need_their_conflicts():
    # 4 x the rounded 10.7 is 42.8, but 64 x 0.667 is 42.69; the listed Trn3 links give 1,408 GB/s.
    found = {
        name: unexplained(_without_conflicts(load_platform(CATALOG, name))) for name in INSTANCES
    }
    links = "totals.link_bandwidth_per_chip_both_ways"
    ultraserver = [f"totals.dense.{number_format}" for number_format in ("tf32", "bf16", "fp16")]
    assert {name: fields for name, fields in found.items() if fields} == {
        "trn2-ultraserver": ultraserver,
        "trn3-ultraserver-gen1": [links],
        "trn3-ultraserver-gen2": [links],
    }


@pytest.mark.parametrize("name", INSTANCES)
def test_a_chip_that_is_ten_percent_slower_would_be_noticed(name):
    platform = _without_conflicts(load_platform(CATALOG, name))
    memory = platform.chip.memory
    slower = replace(
        memory, bandwidth_per_chip_bytes_per_s=0.9 * memory.bandwidth_per_chip_bytes_per_s
    )
    changed = replace(platform, chip=replace(platform.chip, memory=slower))
    assert "totals.memory_bandwidth" in unexplained(changed)
