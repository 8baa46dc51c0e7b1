"""The GPU instance files: totals, fabric, and the names under which measurements know them."""

from __future__ import annotations

import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.fabric import Switch
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_platform, load_published

CATALOG = open_catalog(environment={})
GBIT_PER_S = 1e9 / 8

# instance: chip, chips, adapters, Gbit/s of an adapter
NETWORKS = {
    "p4d.24xlarge": ("a100-40gb", 8, 4, 100),
    "p4de.24xlarge": ("a100-80gb", 8, 4, 100),
    "p5.4xlarge": ("h100", 1, 1, 100),
    "p5.48xlarge": ("h100", 8, 32, 100),
    "p5e.48xlarge": ("h200", 8, 32, 100),
    "p5en.48xlarge": ("h200", 8, 16, 200),
    "p6-b200.48xlarge": ("b200", 8, 8, 400),
    "p6-b300.48xlarge": ("b300", 8, 16, 400),
    "dgx-a100": ("a100-80gb", 8, 8, 200),
    "dgx-h100": ("h100", 8, 8, 400),
    "dgx-b200": ("b200", 8, 8, 400),
    "dgx-b300": ("b300", 8, 8, 800),
    "gb200-nvl72": ("gb200", 4, 4, 400),
    "gb300-nvl72": ("gb300", 4, 4, 800),
    "gh200-nvl32": ("gh200", 32, 32, 400),
    "u-p6e-gb200x36": ("gb200", 36, 36, 400),
    "u-p6e-gb200x72": ("gb200", 72, 72, 400),
    "hgx-a100-80gb": ("a100-80gb", 8, 8, 200),
    "hgx-h100": ("h100", 8, 8, 400),
    "hgx-h200": ("h200", 8, 8, 400),
    "hgx-h800": ("h100", 8, 8, 400),
    "hgx-a800-80gb": ("a100-80gb", 8, 8, 200),
    "grand-teton-h100": ("h100-96gb-500w", 8, 8, 400),
    "mosaicml-a100-40gb": ("a100-40gb", 8, 8, 200),
    "mosaicml-a100-80gb": ("a100-80gb", 8, 8, 200),
    "mosaicml-h100": ("h100", 8, 8, 400),
    "vtrain-a100": ("a100-80gb", 8, 8, 200),
}
NVLINK_ONE_WAY_BYTES_PER_S = {"a100": 300e9, "h100": 450e9, "b200": 900e9}
NVLS_FROM = {"a100": None, "h100": 5, "b200": 6}

# Published measurements name a system and a GPU. Its instance is the one called like the system
# without remarks in parentheses or, where a system has several GPUs, "system, GPU".
MEASURED_ON = [
    ("DGX A100 (Selene)", "A100-80GB", "dgx-a100"),
    ("MosaicML platform", "H100", "mosaicml-h100"),
    ("MosaicML platform", "A100-80GB", "mosaicml-a100-80gb"),
    ("MosaicML platform", "A100-40GB", "mosaicml-a100-40gb"),
    ("H100 cluster (not named)", "H100", "hgx-h100"),
    ("DGX H100", "H100", "dgx-h100"),
    ("DGX H100 (EOS reference)", "H100", "dgx-h100"),
    ("DGX-H100", "H100", "dgx-h100"),
    ("Grand Teton, H100 96GB HBM2e 2.4TB/s, 500 W limit", "H100-96GB-500W", "grand-teton-h100"),
    ("H100 95GB HBM2e lower TDP", "H100-96GB", "grand-teton-h100"),
    ("WhiteFiber H200", "H200", "hgx-h200"),
    ("A100 cluster (not named)", "A100-80GB", "hgx-a100-80gb"),
    ("8-GPU node (instance not stated)", "H200", "hgx-h200"),
    ("8-GPU node (instance not stated)", "B200", "dgx-b200"),
    ("DGX-B300", "B300", "dgx-b300"),
    ("DGX-B200", "B200", "dgx-b200"),
    ("8x B200 single node", "B200", "dgx-b200"),
    ("p4de.24xlarge", "A100-80GB", "p4de.24xlarge"),
    ("p5.48xlarge", "H100", "p5.48xlarge"),
    ("p5.48xlarge (AWS Batch p5 stack)", "H100", "p5.48xlarge"),
    ("p5.48xlarge (SageMaker HyperPod)", "H100", "p5.48xlarge"),
    ("p5e.48xlarge", "H200", "p5e.48xlarge"),
    ("p5en.48xlarge", "H200", "p5en.48xlarge"),
    ("p6-b200.48xlarge", "B200", "p6-b200.48xlarge"),
    ("p4d", "A100", "p4d.24xlarge"),
    ("p4d.24xlarge", "A100", "p4d.24xlarge"),
    ("DGX-class H100 node", "H100", "dgx-h100"),
    ("8x H200 node", "H200", "hgx-h200"),
    ("8x A100 node (vTrain)", "A100", "vtrain-a100"),
    ("HGX H100", "H100", "hgx-h100"),
]


@pytest.fixture(params=NETWORKS)
def platform(request: pytest.FixtureRequest) -> Platform:
    return load_platform(CATALOG, request.param)


def test_chips_and_adapters(platform: Platform) -> None:
    chip, chips, adapters, gbit_per_s = NETWORKS[platform.instance.name]
    network = platform.instance.network
    assert network is not None
    assert (platform.chip.name, platform.instance.chips) == (chip, chips)
    assert network.adapters == adapters
    assert network.bandwidth_per_adapter_one_way_bytes_per_s == gbit_per_s * GBIT_PER_S


def test_no_other_gpu_instance_is_untested() -> None:
    platforms = [load_platform(CATALOG, entry.name) for entry in CATALOG.entries("instances")]
    gpu_platforms = {p.instance.name for p in platforms if p.chip.multiprocessors}
    assert gpu_platforms == set(NETWORKS)


def test_nvlink(platform: Platform) -> None:
    switches = [level for level in platform.instance.fabric if isinstance(level, Switch)]
    if platform.instance.chips == 1:
        assert not switches
        return
    (switch,) = switches
    family = platform.chip.family
    assert switch.chips == platform.instance.chips * platform.instance.domain_nodes
    nvlink = NVLINK_ONE_WAY_BYTES_PER_S[family]
    if "800" in platform.instance.name:  # cut to 400 GB/s both ways
        nvlink = 200e9
    assert switch.bandwidth_per_chip_one_way_bytes_per_s == nvlink
    assert switch.reduces is (family != "a100")
    assert switch.reduces_from_chips == NVLS_FROM[family]


def test_totals_are_the_chips_together(platform: Platform) -> None:
    instance, chip, totals = platform.instance, platform.chip, platform.instance.totals
    network = instance.network
    assert network is not None
    sums = [
        (totals.memory_bytes, platform.memory_bytes),
        (
            totals.memory_bandwidth_bytes_per_s,
            instance.chips * chip.memory.bandwidth_per_chip_bytes_per_s,
        ),
        (
            totals.network_bandwidth_bytes_per_s,
            network.adapters * network.bandwidth_per_adapter_one_way_bytes_per_s,
        ),
        (instance.host.network_bandwidth_bytes_per_s, totals.network_bandwidth_bytes_per_s),
    ]
    sums += [
        (total, instance.chips * chip.peak_flop_per_s(name))
        for name, total in totals.dense_flop_per_s.items()
    ]
    for switch in instance.fabric:
        if isinstance(switch, Switch):
            both_ways = 2 * switch.bandwidth_per_chip_one_way_bytes_per_s
            sums.append((totals.link_bandwidth_per_chip_both_ways_bytes_per_s, both_ways))
    for stated, total in sums:
        if stated is not None and total is not None:
            assert stated == pytest.approx(total, rel=0.011)


def test_sparse_totals_are_the_chips_together(platform: Platform) -> None:
    sparsity = platform.chip.sparsity
    assert sparsity is not None
    for name, total in platform.instance.totals.sparse_flop_per_s.items():
        per_chip = sparsity.peak_per_chip_flop_per_s[name]
        assert total == pytest.approx(platform.instance.chips * per_chip, rel=0.011)


def test_a_network_message_costs_more_than_an_nvlink_hop(platform: Platform) -> None:
    network = platform.instance.network
    assert network is not None
    for level in platform.instance.fabric:
        if isinstance(level, Switch):
            assert level.latency_per_hop_s < network.step_latency_s


def test_only_what_can_be_rented_has_a_purchase_option(platform: Platform) -> None:
    assert bool(platform.instance.purchase) is (platform.instance.provider == "AWS")


@pytest.mark.parametrize(("system", "gpu", "instance"), MEASURED_ON)
def test_measured_systems_have_an_instance(system: str, gpu: str, instance: str) -> None:
    found = load_published(CATALOG, system, gpu)
    assert found is not None
    assert found.name == instance
    assert found.chip.startswith(gpu[:4].lower())
