"""The links of instances, their cycles and routes, and which groups may use them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from trnbench.errors import InputError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_instance, load_platform
from trnbench.machine.fabric import LinkFault, LinkKind, build_fabric
from trnbench.machine.fabric_routes import build_routes, unreachable_pairs
from trnbench.machine.legality import verdict
from trnbench.machine.message_plan.ring_orders import (
    disjoint_cycles,
    neighbour_pairs,
    ring_orders,
    torus_cycles,
)
from trnbench.machine.placement import CORES, NODES, grid_of, place
from trnbench.program.collective import Collective


def fabric(name: str, **options):
    return build_fabric(load_instance(open_catalog(), name), **options)


def ends(fabric_, links) -> list[str]:
    return [fabric_.links[link].name for link in links if link != fabric_.links_per_node]


def test_a_4x4_torus_has_64_directed_links_to_the_documented_neighbours():
    found = fabric("trn2.48xlarge")
    torus = [link for link in found.links if link.level == "neuronlink-xy"]
    assert len(torus) == 64
    # Chip d = 4 row + column: chip 0 is wired to 12, 4 (rows) and 3, 1 (columns).
    assert {link.target for link in torus if link.source == "c0"} == {"c12", "c4", "c3", "c1"}
    assert {link.target for link in torus if link.source == "c10"} == {"c6", "c14", "c9", "c11"}


def test_an_ultraserver_adds_a_slower_ring_of_four_through_each_place():
    found = fabric("trn2-ultraserver")
    ring = [link for link in found.links if link.level == "neuronlink-z"]
    assert len(ring) == 2 * 64
    assert {link.target for link in ring if link.source == "c5"} == {"c21", "c53"}
    assert {link.bandwidth_bytes_per_s for link in ring} == {64e9}


def test_trn3_has_switches_in_sled_and_rack_and_wires_across():
    found = fabric("trn3-ultraserver-gen1")
    # Server 0 is wired to server 2: chip 3 to chip 35.
    assert {link.target for link in found.links if link.source == "c3"} == {
        "sled-switch0",
        "rack-switch0",
        "c35",
        "core",
    }
    routes = build_routes(found)
    table = routes.tables[0]
    assert ends(found, table[3 * 64 + 1]) == ["c3>sled-switch0", "sled-switch0>c1"]
    assert ends(found, table[3 * 64 + 17]) == ["c3>rack-switch0", "rack-switch0>c17"]
    # To another place of the other rack: across first, then through that rack's switch.
    assert ends(found, table[3 * 64 + 50]) == ["c3>c35", "c35>rack-switch1", "rack-switch1>c50"]


def test_fewer_adapters_than_chips_are_shared_by_neighbours():
    found = fabric("trn1.32xlarge", nodes=2)
    # 8 adapters of 100 Gbit/s for 16 chips: two chips share 12.5 GB/s.
    assert found.to_network[0] == found.to_network[1] != found.to_network[2]
    assert found.bandwidth[found.to_network[0]] == pytest.approx(12.5e9)
    # p5 has 32 of 100 Gbit/s for 8 GPUs: each has 50 GB/s of its own.
    p5 = fabric("p5.48xlarge", nodes=2)
    assert len(set(p5.to_network.tolist())) == 8
    assert p5.bandwidth[p5.to_network[0]] == pytest.approx(50e9)


def test_routes_are_shortest_and_go_axis_by_axis():
    found = fabric("trn2.48xlarge")
    table = build_routes(found).tables[0]
    hops = (table != found.links_per_node).sum(axis=1).reshape(16, 16)
    assert hops.max() == 4
    # Mean distance of the 4x4 torus: 32/15.
    assert hops.sum() / (16 * 15) == pytest.approx(32 / 15)
    assert ends(found, table[0 * 16 + 5]) == ["c0>c4", "c4>c5"]


def test_half_way_round_a_ring_both_directions_are_used_alike():
    found = fabric("trn2.48xlarge")
    table = build_routes(found).tables[0]
    row = [table[a * 16 + (a + 2) % 4 + a // 4 * 4] for a in range(4)]
    used = [link for path in row for link in path if link != found.links_per_node]
    assert len(used) == len(set(used)) == 8


def test_latency_is_that_of_the_hops():
    platform = load_platform(open_catalog(), "trn2.48xlarge")
    placed = place(platform, nodes=2)
    source = np.array([0, 0, 0])
    # Same chip, two links away (chip 5), other node.
    target = np.array([1, 20, 64])
    _, latency = placed.routes.between_ranks(source, target)
    assert latency == pytest.approx([1.5e-6, 3e-6, 15e-6])


@pytest.mark.parametrize("shape", [(4,), (4, 4), (3, 5), (4, 4, 4), (3, 3, 3), (8, 8)])
def test_a_torus_splits_into_as_many_hamiltonian_cycles_as_axes(shape):
    cycles = torus_cycles(shape)
    assert len(cycles) == len(shape)
    edges = [frozenset(edge) for cycle in cycles for edge in pairwise((*cycle, cycle[0]))]
    assert len(edges) == len(set(edges)) == len(shape) * np.prod(shape)
    for edge in edges:
        a, b = (np.array(np.unravel_index(place_, shape)) for place_ in edge)
        step = np.minimum((a - b) % shape, (b - a) % shape)
        assert sorted(step) == [0] * (len(shape) - 1) + [1]


def test_the_documented_cycles_are_a_decomposition_that_the_search_also_counts():
    a = [0, 1, 2, 3, 7, 4, 5, 6, 10, 11, 8, 9, 13, 14, 15, 12]
    b = [0, 3, 15, 11, 7, 6, 2, 14, 10, 9, 5, 1, 13, 12, 8, 4]
    both = [frozenset(e) for c in (a, b) for e in pairwise((*c, c[0]))]
    assert len(set(both)) == 32
    assert len(disjoint_cycles([(min(e), max(e)) for e in both])) >= 1


def test_ring_orders_use_every_link_of_a_torus_once():
    found = fabric("trn2.48xlarge")
    rings = ring_orders(found, 0, tuple(range(16)))
    assert rings.shape == (4, 16)
    steps = [(a, b) for ring in rings.tolist() for a, b in pairwise((*ring, ring[0]))]
    assert len(set(steps)) == 64


def test_a_dead_link_costs_the_rings_that_use_it():
    fault = LinkFault(source=0, target=1)
    found = fabric("trn2.48xlarge", faults=[fault])
    rings = ring_orders(found, 0, tuple(range(16)))
    # Chips 0 and 1 have three links left, so only one cycle (both ways round) can pass them.
    assert len(rings) == 2
    assert all({0, 1} != {a, b} for ring in rings.tolist() for a, b in pairwise((*ring, ring[0])))
    # One way dead: three of the four directed rings go on.
    one_way = fabric("trn2.48xlarge", faults=[LinkFault(source=0, target=1, one_way=True)])
    assert len(ring_orders(one_way, 0, tuple(range(16)))) == 3


def test_a_slow_link_keeps_all_rings_while_that_is_faster():
    mild = fabric("trn2.48xlarge", faults=[LinkFault(source=0, target=1, factor=0.9)])
    assert len(ring_orders(mild, 0, tuple(range(16)))) == 4
    bad = fabric("trn2.48xlarge", faults=[LinkFault(source=0, target=1, factor=0.1)])
    assert len(ring_orders(bad, 0, tuple(range(16)))) == 2


def test_messages_go_round_a_dead_link():
    found = fabric("trn2.48xlarge", faults=[LinkFault(source=0, target=1)])
    routes = build_routes(found)
    path = ends(found, routes.between_chips(np.array([0]), np.array([0]), np.array([1]))[0])
    assert len(path) == 3
    assert "c0>c1" not in path
    assert unreachable_pairs(routes) == []


def test_faults_name_real_links():
    with pytest.raises(InputError, match="have no link of their own") as error:
        fabric("trn2.48xlarge", faults=[LinkFault(source=0, target=5)])
    assert error.value.hint == "neighbours of chip 0: 1, 3, 4, 12"
    with pytest.raises(InputError, match="no chip 99"):
        fabric("trn2.48xlarge", faults=[LinkFault(source=0, target=99)])
    with pytest.raises(InputError, match="0 to 1"):
        LinkFault(source=0, target=1, factor=1.5)


def test_a_grid_finds_nodes_levels_and_cores():
    placed = place(load_platform(open_catalog(), "trn2-ultraserver"), nodes=2)
    grid = grid_of(placed, np.arange(placed.ranks))
    assert grid.levels == (NODES, 1, 0, CORES)
    assert grid.ranks.shape == (2, 4, 16, 4)
    one_core_each = grid_of(placed, np.arange(0, 64, 4))
    assert one_core_each.levels == (0,)


def test_logical_cores_and_capacity():
    platform = load_platform(open_catalog(), "trn2.48xlarge")
    assert place(platform).ranks == 64
    assert place(platform, logical_size=1).ranks == 128
    with pytest.raises(InputError, match="known: 1, 2"):
        place(platform, logical_size=3)
    found = place(platform).fabric
    xy = found.kind == int(LinkKind.SCALE_UP)
    assert found.capacity(np.flatnonzero(xy)) == pytest.approx([128e9] * 64)


@pytest.mark.parametrize(
    "name",
    [
        *("trn1.32xlarge", "trn2.48xlarge", "trn2-ultraserver", "p5.48xlarge", "trn1.2xlarge"),
        *("trn3-ultraserver-gen1", "trn3-ultraserver-gen2"),
    ],
)
def test_neighbour_pairs_follow_the_wires_round_a_whole_instance(name):
    where = place(load_platform(open_catalog(), name))
    pairs = neighbour_pairs(where.fabric, np.arange(where.ranks))
    assert sorted(pairs[:, 0]) == sorted(pairs[:, 1]) == list(range(where.ranks))
    rest = {int(a): int(b) for a, b in pairs}
    at, seen = 0, set()
    while at not in seen:
        seen.add(at)
        at = rest[at]
    assert len(seen) == where.ranks
    exchange = Collective(op="permute", ranks=where.ranks, size_bytes=2.0**20)
    assert verdict(where, exchange, [range(where.ranks)], pairs=pairs).legal


def test_all_ranks_of_an_ultraserver_are_a_legal_group():
    where = place(load_platform(open_catalog(), "trn2-ultraserver"))
    exchange = Collective(op="all-reduce", ranks=where.ranks, size_bytes=2.0**20)
    assert verdict(where, exchange, [range(256)]).legal
    assert not verdict(where, exchange, [range(24)]).legal
    one_of_each_host = [range(first, 256, 64) for first in range(64)]
    assert verdict(where, exchange, one_of_each_host).legal
