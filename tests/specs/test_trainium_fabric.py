"""The wiring of the Trainium platforms, as far as shapes and groups determine it."""

from __future__ import annotations

import math

import pytest

from trnbench.facts.catalog.search import BUILT_IN, Catalog, Folder, built_in_folder
from trnbench.facts.hardware.fabric import Direct, Level, OnChip, Switch, Torus
from trnbench.facts.hardware.library import load_instance

CATALOG = Catalog((Folder(built_in_folder(), BUILT_IN),))
INSTANCES = [e.name for e in CATALOG.entries("instances") if e.name.startswith("trn")]

# Neighbours of each chip in trn1.32xlarge and trn2.48xlarge, as neuron-ls and the driver give them.
NEIGHBOURS = {
    0: {12, 4, 3, 1},
    1: {13, 5, 0, 2},
    2: {14, 6, 1, 3},
    3: {15, 7, 2, 0},
    4: {0, 8, 7, 5},
    5: {1, 9, 4, 6},
    6: {2, 10, 5, 7},
    7: {3, 11, 6, 4},
    8: {4, 12, 11, 9},
    9: {5, 13, 8, 10},
    10: {6, 14, 9, 11},
    11: {7, 15, 10, 8},
    12: {8, 0, 15, 13},
    13: {9, 1, 12, 14},
    14: {10, 2, 13, 15},
    15: {11, 3, 14, 12},
}


def _level(name: str, level: str) -> Level:
    return next(found for found in load_instance(CATALOG, name).fabric if found.name == level)


def _torus(name: str, level: str) -> Torus:
    found = _level(name, level)
    assert isinstance(found, Torus)
    return found


def _neighbours(shape: tuple[int, ...]) -> dict[int, set[int]]:
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    wired: dict[int, set[int]] = {}
    for chip in range(math.prod(shape)):
        places = [chip // stride % length for stride, length in zip(strides, shape, strict=True)]
        wired[chip] = {
            chip + ((place + step) % length - place) * stride
            for place, length, stride in zip(places, shape, strides, strict=True)
            for step in (1, -1)
        }
    return wired


@pytest.mark.parametrize(
    "name",
    ["trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge", "trn2u.48xlarge", "trn2-ultraserver"],
)
def test_sixteen_chips_are_wired_as_the_driver_says(name):
    torus = _torus(name, "neuronlink-xy")
    wired = _neighbours(torus.shape)
    assert wired == NEIGHBOURS
    assert {len(near) for near in wired.values()} == {torus.links_per_chip} == {4}
    assert sum(len(near) for near in wired.values()) // 2 == 32


def test_wiring_is_symmetric():
    assert all(chip in NEIGHBOURS[near] for chip, nears in NEIGHBOURS.items() for near in nears)


def test_an_ultraserver_has_192_links_and_six_a_chip():
    xy, z = _torus("trn2-ultraserver", "neuronlink-xy"), _torus("trn2-ultraserver", "neuronlink-z")
    chips = load_instance(CATALOG, "trn2-ultraserver").chips
    assert math.prod(xy.shape) * math.prod(z.shape) == chips == 64
    assert xy.links_per_chip + z.links_per_chip == 6
    # 64 x 4 / 2 in the planes, 64 x 2 / 2 between them
    assert (chips * xy.links_per_chip // 2, chips * z.links_per_chip // 2) == (128, 64)
    wired = _neighbours((*z.shape, *xy.shape))
    assert sum(len(near) for near in wired.values()) // 2 == 192


def test_links_between_instances_are_half_as_fast_as_inside():
    xy, z = _torus("trn2-ultraserver", "neuronlink-xy"), _torus("trn2-ultraserver", "neuronlink-z")
    ratio = xy.bandwidth_per_link_one_way_bytes_per_s / z.bandwidth_per_link_one_way_bytes_per_s
    assert ratio == 2


@pytest.mark.parametrize("name", ["trn1.2xlarge", "trn2.3xlarge"])
def test_one_chip_has_no_links(name):
    assert not [level for level in load_instance(CATALOG, name).fabric if isinstance(level, Torus)]


def test_the_smallest_trn1_reaches_others_through_its_host_only():
    instance = load_instance(CATALOG, "trn1.2xlarge")
    assert instance.network is None
    assert instance.host.network_bandwidth_bytes_per_s is not None


@pytest.mark.parametrize(
    ("name", "gbit_per_s", "gbit_per_s_a_chip"),
    [
        ("trn1.32xlarge", 800, 50),
        ("trn1n.32xlarge", 1600, 100),
        ("trn2.3xlarge", 200, 200),
        ("trn2.48xlarge", 3200, 200),
        ("trn2u.48xlarge", 3200, 200),
        ("trn2-ultraserver", 12800, 200),
        ("trn3-ultraserver-gen1", 12800, 200),
        ("trn3-ultraserver-gen2", 28800, 200),
    ],
)
def test_network_of_an_instance_and_of_a_chip(name, gbit_per_s, gbit_per_s_a_chip):
    instance = load_instance(CATALOG, name)
    assert instance.network is not None
    network = instance.network
    total = network.adapters * network.bandwidth_per_adapter_one_way_bytes_per_s * 8 / 1e9
    assert total == gbit_per_s
    assert total / instance.chips == gbit_per_s_a_chip


@pytest.mark.parametrize(
    ("name", "rack_chips"), [("trn3-ultraserver-gen1", 32), ("trn3-ultraserver-gen2", 72)]
)
def test_switched_levels_nest_and_pair_the_racks(name, rack_chips):
    chips = load_instance(CATALOG, name).chips
    sled, rack = _level(name, "sled-switch"), _level(name, "rack-switch")
    across = _level(name, "cross-rack")
    assert isinstance(sled, Switch)
    assert isinstance(rack, Switch)
    assert isinstance(across, Direct)
    assert rack.chips == rack_chips
    assert rack.chips % sled.chips == 0
    assert 2 * rack.chips == chips
    # Wired groups are a rack apart, so that each chip of one rack meets its like in the other.
    assert across.chips_per_group * across.group_distance == rack.chips


@pytest.mark.parametrize("name", ["trn3-ultraserver-gen1", "trn3-ultraserver-gen2"])
def test_a_trainium3_chip_has_eleven_links_of_eight_lanes(name):
    sled, rack = _level(name, "sled-switch"), _level(name, "rack-switch")
    across = _level(name, "cross-rack")
    assert isinstance(sled, Switch)
    assert isinstance(rack, Switch)
    assert isinstance(across, Direct)
    lane_group_bytes_per_s = across.bandwidth_per_link_one_way_bytes_per_s
    switched = (
        sled.bandwidth_per_chip_one_way_bytes_per_s + rack.bandwidth_per_chip_one_way_bytes_per_s
    )
    assert switched / lane_group_bytes_per_s + across.links_per_chip == 4 + 5 + 2


@pytest.mark.parametrize("name", INSTANCES)
def test_levels_go_outwards_from_the_chip_and_latencies_have_ranges(name):
    instance = load_instance(CATALOG, name)
    assert isinstance(instance.fabric[0], OnChip)
    assert instance.network in (None, instance.fabric[-1])
    for path, evidence in instance.provenance.evidence.items():
        if path.endswith("latency_per_hop"):
            assert evidence.low is not None, path
            assert evidence.high is not None, path
