"""The Trainium chips and instances: complete, sourced, and with the rates their clocks give."""

from __future__ import annotations

import pytest

from trnbench.facts.catalog.provenance import Provenance
from trnbench.facts.catalog.search import BUILT_IN, Catalog, Folder, built_in_folder
from trnbench.facts.hardware.library import load_chip, load_instance, load_platform, load_published

CATALOG = Catalog((Folder(built_in_folder(), BUILT_IN),))
CHIPS = ("trainium1", "trainium2", "trainium3")
INSTANCES = (
    "trn1.2xlarge",
    "trn1.32xlarge",
    "trn1n.32xlarge",
    "trn2-ultraserver",
    "trn2.3xlarge",
    "trn2.48xlarge",
    "trn2u.48xlarge",
    "trn3-ultraserver-gen1",
    "trn3-ultraserver-gen2",
)
TERA = 1e12


def test_every_trainium_platform_is_shipped():
    names = [entry.name for entry in CATALOG.entries("instances")]
    assert tuple(name for name in names if name.startswith("trn")) == INSTANCES


@pytest.mark.parametrize("name", INSTANCES)
def test_an_instance_loads_with_its_chip(name):
    platform = load_platform(CATALOG, name)
    assert platform.chip.family == "trainium"
    assert platform.instance.provenance.evidence


def _cited(provenance: Provenance) -> set[str]:
    return {
        *(evidence.source for evidence in provenance.evidence.values()),
        *(reading.source for conflict in provenance.conflicts for reading in conflict.values),
        *(claim.source for claim in provenance.claims),
        *(source for path, source in provenance.cited.items() if path.startswith("routing.")),
    }


@pytest.mark.parametrize("name", [*CHIPS, *INSTANCES])
def test_every_listed_source_is_cited(name):
    loaded = load_chip(CATALOG, name) if name in CHIPS else load_instance(CATALOG, name)
    assert set(loaded.provenance.sources) == _cited(loaded.provenance)


@pytest.mark.parametrize("name", [*CHIPS, *INSTANCES])
def test_a_conflict_has_readings_that_differ(name):
    loaded = load_chip(CATALOG, name) if name in CHIPS else load_instance(CATALOG, name)
    for conflict in loaded.provenance.conflicts:
        assert len({reading.value for reading in conflict.values}) > 1, conflict.field


# 2 FLOP x 128 x 128 x clock x cores: 2.8 GHz x 2 = 183.5 T, 2.4 GHz x 8 = 629.1 T.
@pytest.mark.parametrize(
    ("chip", "number_format", "tera_flop_per_s"),
    [
        ("trainium1", "bf16", 183.5008),
        ("trainium1", "fp16", 183.5008),
        ("trainium1", "tf32", 183.5008),
        ("trainium1", "fp8_e4m3", 183.5008),
        ("trainium1", "fp8_e5m2", 183.5008),
        ("trainium1", "fp8_e3m4", 183.5008),
        ("trainium1", "fp32", 45.8752),
        ("trainium2", "bf16", 629.1456),
        ("trainium2", "fp32", 157.2864),
        ("trainium2", "fp8_e4m3", 1258.2912),
        ("trainium2", "fp8_e5m2", 1258.2912),
        ("trainium2", "fp8_e3m4", 629.1456),
        ("trainium3", "bf16", 629.1456),
        ("trainium3", "fp8_e4m3", 1258.2912),
        ("trainium3", "fp8_e4m3fn", 1258.2912),
        ("trainium3", "mxfp8_e4m3", 2516.5824),
        ("trainium3", "mxfp8_e5m2", 2516.5824),
        ("trainium3", "mxfp4", 2516.5824),
    ],
)
def test_peak_follows_from_array_and_clock(chip, number_format, tera_flop_per_s):
    peak = load_chip(CATALOG, chip).peak_flop_per_s(number_format)
    assert peak == pytest.approx(tera_flop_per_s * TERA, rel=1e-12)


@pytest.mark.parametrize("name", CHIPS)
def test_no_tensor_peak_is_above_its_headline(name):
    chip = load_chip(CATALOG, name)
    for number_format in set(chip.formats) & set(chip.headline_per_chip_flop_per_s):
        headline = chip.headline_per_chip_flop_per_s[number_format]
        assert chip.peak_flop_per_s(number_format) <= headline


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("trainium1", {"mxfp8_e4m3", "mxfp4", "fp8_e4m3fn", "int8"}),
        ("trainium2", {"mxfp8_e4m3", "mxfp4", "fp8_e4m3fn", "int8"}),
        ("trainium3", {"fp8_e3m4", "int8"}),
    ],
)
def test_formats_the_hardware_lacks_are_absent(name, absent):
    assert not absent & set(load_chip(CATALOG, name).formats)


# (128 partitions x KiB of one) x cores: 48, 224 and 256 MiB a chip, as the chip pages state.
@pytest.mark.parametrize(
    ("name", "sbuf_mib"), [("trainium1", 48), ("trainium2", 224), ("trainium3", 256)]
)
def test_state_buffers_of_a_chip_add_up(name, sbuf_mib):
    cores = load_chip(CATALOG, name).cores
    assert cores is not None
    sbuf_bytes = cores.count * cores.sbuf.partitions * cores.sbuf.partition_bytes
    assert sbuf_bytes == sbuf_mib * 2**20
    psum = cores.psum
    assert psum.partitions * psum.banks * psum.bank_per_partition_bytes == 2 * 2**20


@pytest.mark.parametrize(
    ("name", "logical_size", "ranks", "memory_gib"),
    [
        ("trn1.32xlarge", 1, 2, 16),
        ("trn2.48xlarge", None, 4, 24),
        ("trn2.48xlarge", 1, 8, 12),
        ("trn3-ultraserver-gen2", None, 4, 36),
    ],
)
def test_ranks_and_their_memory(name, logical_size, ranks, memory_gib):
    platform = load_platform(CATALOG, name)
    assert platform.chip.ranks(logical_size) == ranks
    assert platform.memory_per_rank_bytes(logical_size) == memory_gib * 2**30


@pytest.mark.parametrize("name", ["trainium2", "trainium3"])
def test_a_pattern_gains_the_depth_it_skips(name):
    sparsity = load_chip(CATALOG, name).sparsity
    assert sparsity is not None
    assert set(sparsity.speedup) == set(sparsity.patterns)
    for pattern, gain in sparsity.speedup.items():
        keep, group = map(int, pattern.split(":"))
        assert gain == group / keep


def test_trainium1_has_no_sparsity():
    assert load_chip(CATALOG, "trainium1").sparsity is None


def test_fp32_on_trainium2_is_a_conflict_of_one_and_two_times_the_rate():
    chip = load_chip(CATALOG, "trainium2")
    assert chip.cores is not None
    rate = chip.cores.tensor.formats["fp32"]
    assert (rate.passes, rate.fast_passes) == (4, 2)
    fields = [conflict.field for conflict in chip.provenance.conflicts]
    assert "cores.tensor.formats.fp32.passes" in fields


@pytest.mark.parametrize("name", ["trainium1", "trainium2"])
def test_no_documented_dma_rate_hides_a_faster_measured_one(name):
    chip = load_chip(CATALOG, name)
    assert chip.cores is not None
    dma = chip.cores.dma
    measured = dma.largest_measured_per_core_bytes_per_s
    assert measured is not None
    engine = chip.provenance.evidence["cores.dma.bandwidth_per_engine"]
    assert engine.high is not None
    assert measured <= engine.high * dma.engines_per_core


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("u-trn2x64", "trn2-ultraserver"),
        ("trn2n.48xlarge", "trn2.48xlarge"),
        ("trn2-16.48xlarge", "trn2.48xlarge"),
        ("trn2p", "trn2u.48xlarge"),
        ("trn2eu", "trn2u.48xlarge"),
    ],
)
def test_names_aws_has_used_find_the_machine(alias, name):
    assert CATALOG.find("instances", alias).name == name


def test_an_ultraserver_is_four_instances():
    server = load_instance(CATALOG, "u-trn2x64")
    assert server.host_instance == "trn2u.48xlarge"
    part = load_instance(CATALOG, server.host_instance)
    assert server.chips == server.hosts * part.chips
    assert server.host.vcpus is not None
    assert part.host.vcpus is not None
    assert server.host.vcpus == server.hosts * part.host.vcpus
    assert server.network is not None
    assert part.network is not None
    assert server.network.adapters == server.hosts * part.network.adapters


@pytest.mark.parametrize("name", INSTANCES)
def test_legal_degrees_exist_for_every_core_size_and_never_twice(name):
    platform = load_platform(CATALOG, name)
    assert platform.chip.cores is not None
    sizes = [degrees.logical_size for degrees in platform.instance.degrees]
    assert sorted(sizes) == list(platform.chip.cores.logical_sizes)
    for degrees in platform.instance.degrees:
        ranks = platform.chip.ranks(degrees.logical_size) * platform.instance.chips
        legal = (*degrees.tensor_parallel, *degrees.tensor_parallel_warned)
        assert len(set(legal)) == len(legal)
        assert max(legal) <= ranks


@pytest.mark.parametrize(
    "system",
    ["trn1.32xlarge/trn1n.32xlarge", "trn1.32xlarge (assumed: page is Trn1)", "2 x trn1.32xlarge"],
)
def test_published_measurements_find_their_machine(system):
    found = load_published(CATALOG, system, "trainium1")
    assert found is not None
    assert found.name == "trn1.32xlarge"
