"""The two timed engines: hand-computed times, agreement, bounds, contention, faults."""

import tracemalloc
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import force_setattr

from tests.collectives import place_collective, select
from trnbench.engines.analytic.collective.profile import profile
from trnbench.engines.analytic.collective.sweep import sweep
from trnbench.engines.analytic.collective.time import collective_time
from trnbench.engines.emulate.collective.play import play
from trnbench.engines.emulate.collective.streams import (
    ChunkStream,
    play_chunked,
    play_selected,
    play_together,
)
from trnbench.errors import InputError
from trnbench.facts.calibration.collective_stack import Tuning, stack_of
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.machine.fabric import LinkFault
from trnbench.machine.fabric_bounds import lower_bound
from trnbench.machine.message_plan.algorithm import ALGORITHMS, Algorithm, Refusal
from trnbench.machine.message_plan.placed import Placed
from trnbench.machine.message_plan.select import algorithm_named
from trnbench.machine.placement import Placement, place
from trnbench.program.collective import op_named

MIB = 2.0**20
FREE = Tuning(
    launch_s=0.0,
    step_s=0.0,
    network_step_s=0.0,
    message_s=0.0,
    on_chip=1.0,
    link=1.0,
    network=1.0,
    chunk_bytes=16 * MIB,
    chunks=8,
    reduce_touches=0.0,
    slices=2,
    pieces=8,
)


@cache
def cluster(name: str, nodes: int = 1) -> Placement:
    return place(load_platform(open_catalog(), name), nodes=nodes)


def placed(where: Placement, op: str, groups, algorithm: str, **options) -> Placed:
    found = place_collective(where, op_named(op), groups, algorithm_named(algorithm), **options)
    assert isinstance(found, Placed), found
    return found


def analytic_s(found: Placed, tuning: Tuning, size: float) -> float:
    return float(collective_time(profile(found), tuning, np.array([size])).time_s[0])


def test_ring_all_reduce_of_a_gpu_node_by_hand():
    found = placed(cluster("p5.48xlarge"), "all-reduce", [range(8)], "ring")
    # 14 steps of one eighth of 8 MB at 450 GB/s, 1.2 us each: 14 (1.2 + 2.2222) us.
    expected = 14 * (1.2e-6 + 1e6 / 450e9)
    assert analytic_s(found, FREE, 8e6) == pytest.approx(expected)
    assert play(found, FREE, 8e6).time_s == pytest.approx(expected)


def test_ring_over_all_cycles_of_a_torus_by_hand():
    found = placed(cluster("trn2.48xlarge"), "all-gather", [range(0, 64, 4)], "ring")
    # 15 steps; each chip sends a quarter of a sixteenth on each of its four links of 128 GB/s.
    expected = 15 * (1.5e-6 + 64e6 / 16 / 4 / 128e9)
    assert analytic_s(found, FREE, 64e6) == pytest.approx(expected)
    carried = play(found, FREE, 64e6).link_bytes
    torus = [
        i
        for i, link in enumerate(cluster("trn2.48xlarge").fabric.links)
        if link.level == "neuronlink-xy"
    ]
    assert carried[torus] == pytest.approx([15 * 1e6] * 64)


def test_in_switch_all_reduce_sends_each_buffer_once_and_an_eighth_more():
    found = placed(cluster("p5.48xlarge"), "all-reduce", [range(8)], "in-switch")
    # 16 pieces: the first goes up, 15 times one goes up beside an eighth of the one before, the
    # last comes down.
    large = 8e10
    expected = large / 450e9 * (1 / 16 + 15 / 16 * 9 / 8 + 1 / 16)
    assert analytic_s(found, FREE, large) == pytest.approx(expected, rel=1e-3)


def test_two_nodes_exchange_through_their_adapters():
    found = placed(cluster("p5.48xlarge", 2), "send-receive", [(0, 8)], "direct")
    # 26 us and 1 GB at the 50 GB/s of one GPU's adapters.
    assert analytic_s(found, FREE, 1e9) == pytest.approx(26e-6 + 1e9 / 50e9)


def test_summing_costs_what_slices_do_not_hide():
    found = placed(cluster("p5.48xlarge"), "reduce-scatter", [range(8)], "direct")
    tuning = replace(FREE, reduce_touches=3.0)
    # Each rank adds 7 parts of 1 MB, 3 passes at 3.35 TB/s, half of it behind the transfer.
    memory = load_platform(open_catalog(), "p5.48xlarge").chip.memory.bandwidth_per_chip_bytes_per_s
    extra = 7e6 * 3 / 2 / memory
    assert analytic_s(found, tuning, 8e6) - analytic_s(found, FREE, 8e6) == pytest.approx(extra)
    assert play(found, tuning, 8e6).time_s == pytest.approx(analytic_s(found, tuning, 8e6))


def test_a_relaying_ring_pays_the_slow_hop_once_a_lap():
    found = placed(cluster("p5.48xlarge", 2), "all-gather", [range(16)], "ring")
    # 15 hops round two nodes of 8: at most 2 through the network (26 us), 13 at 1.2 us.
    expected = 2 * 26e-6 + 13 * 1.2e-6
    assert play(found, FREE, 16.0).time_s == pytest.approx(expected, rel=1e-3)
    assert analytic_s(found, FREE, 16.0) == pytest.approx(expected, rel=1e-3)


def test_chunks_overlap_levels():
    found = placed(cluster("trn2.48xlarge", 2), "all-reduce", [range(128)], "hierarchical")
    one = play_chunked(found, FREE, 1024 * MIB, 1).time_s
    several = play_chunked(found, FREE, 1024 * MIB, 8).time_s
    assert several < 0.85 * one
    assert several >= lower_bound(found).s_per_byte * 1024 * MIB


PLATFORMS = (
    ("trn1.32xlarge", 1),
    ("trn1.32xlarge", 2),
    ("trn2.3xlarge", 1),
    ("trn2.48xlarge", 1),
    ("trn2.48xlarge", 4),
    ("trn2-ultraserver", 1),
    ("trn3-ultraserver-gen1", 1),
    ("trn3-ultraserver-gen2", 1),
    ("p4de.24xlarge", 2),
    ("p5.48xlarge", 1),
    ("p5.48xlarge", 2),
    ("p5.48xlarge", 16),
    ("p5en.48xlarge", 4),
    ("p6-b200.48xlarge", 1),
    ("vtrain-a100", 1),
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "nodes"), PLATFORMS)
def test_engines_agree_within_5_percent_on_every_platform(name, nodes):
    """As the platform's own stack selects, from 64 KiB to 1 GiB."""
    where = cluster(name, nodes)
    stack = stack_of(open_catalog(), name)
    sizes = [2.0**power for power in (16, 19, 22, 25, 28, 30)]
    for op in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "permute"):
        if op == "all-to-all" and where.ranks > 256:
            continue
        selected = select(stack, where, op_named(op), [range(where.ranks)])
        assert not isinstance(selected, Refusal), selected
        predicted = sweep(selected, np.array(sizes))
        for size, time, bound in zip(sizes, predicted.time_s, predicted.bound_s, strict=True):
            choice, played = play_selected(selected, size)
            assert played.time_s == pytest.approx(time, rel=0.05), (
                op,
                size,
                choice.algorithm.label,
            )
            assert bound <= min(time, played.time_s)


CHOICES = [Algorithm(name=name, pieces=4) for name in ALGORITHMS if name != "hierarchical"] + [
    Algorithm(name="hierarchical", inner=inner, outer=outer, pieces=4)
    for inner in ("ring", "kangaring", "mesh", "in-switch")
    for outer in ("ring", "tree", "direct")
]


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_no_time_is_below_the_injection_or_narrowest_cut_bound(data):
    name, nodes = data.draw(
        st.sampled_from(
            [
                ("trn1.32xlarge", 2),
                ("trn2.48xlarge", 2),
                ("trn2-ultraserver", 1),
                ("trn3-ultraserver-gen1", 1),
                ("p4de.24xlarge", 2),
                ("p5.48xlarge", 3),
            ]
        )
    )
    faults = [LinkFault(source=0, target=1, factor=0.3)] if name == "trn2.48xlarge" else []
    where = place(
        load_platform(open_catalog(), name),
        nodes=nodes,
        faults=faults if data.draw(st.booleans()) else [],
    )
    ranks = data.draw(st.permutations(range(where.ranks)))[: data.draw(st.integers(2, 24))]
    regular = data.draw(st.booleans())
    group = range(0, where.ranks, data.draw(st.sampled_from([4, 8, 16]))) if regular else ranks
    op = data.draw(st.sampled_from(["all-reduce", "all-gather", "reduce-scatter", "all-to-all"]))
    found = place_collective(
        where, op_named(op), [sorted(group)], data.draw(st.sampled_from(CHOICES))
    )
    if isinstance(found, Refusal):
        return
    bound = lower_bound(found).s_per_byte
    size = 2.0 ** data.draw(st.integers(8, 33))
    chunks = data.draw(st.integers(1, 8))
    assert play_chunked(found, FREE, size, chunks).time_s >= bound * size * (1 - 1e-9)
    assert analytic_s(found, replace(FREE, chunks=chunks), size) >= bound * size * (1 - 1e-9)


def test_the_bound_is_met_where_every_link_is_full():
    ring = placed(cluster("p5.48xlarge"), "all-reduce", [range(8)], "ring")
    # 2 (8 - 1) buffers from 8 chips of 450 GB/s each.
    assert lower_bound(ring).s_per_byte == pytest.approx(14 / 8 / 450e9)
    assert analytic_s(ring, FREE, 1e13) == pytest.approx(1e13 * 14 / 8 / 450e9, rel=1e-3)
    exchange = placed(cluster("trn2.48xlarge"), "all-to-all", [range(0, 64, 4)], "direct")
    # Half the torus sends 8 x 8 / 16 buffers over 8 links of 128 GB/s.
    assert lower_bound(exchange).s_per_byte == pytest.approx(4 / (8 * 128e9))


def test_a_fault_never_loosens_the_bound():
    groups = [range(32)]
    sound = placed(cluster("trn1.32xlarge"), "all-reduce", groups, "ring")
    for fault in (LinkFault(source=0, target=1), LinkFault(source=0, target=None)):
        where = place(load_platform(open_catalog(), "trn1.32xlarge"), faults=(fault,))
        found = placed(where, "all-reduce", groups, "ring")
        assert lower_bound(found).s_per_byte >= lower_bound(sound).s_per_byte


def test_two_collectives_on_the_same_links_take_turns_and_on_others_do_not():
    where = cluster("trn2.48xlarge")
    rows = [
        placed(where, "all-reduce", [range(16 * row, 16 * row + 16)], "kangaring") for row in (0, 1)
    ]
    alone = play(rows[0], FREE, 256 * MIB).time_s

    def ends(first, second, **options):
        return play_together(
            [
                ChunkStream(placed=first, tuning=FREE, size_bytes=256 * MIB),
                ChunkStream(placed=second, tuning=FREE, size_bytes=256 * MIB, **options),
            ]
        ).end_s

    assert ends(*rows) == pytest.approx((alone, alone))
    assert ends(rows[0], rows[0]) == pytest.approx((2 * alone, 2 * alone), rel=0.05)
    later = ends(rows[0], rows[0], start_s=2 * alone)
    assert later == pytest.approx((alone, 3 * alone), rel=1e-6)


def test_a_tensor_and_a_data_parallel_group_contend_for_the_adapters_only():
    where = cluster("p5.48xlarge", 2)
    inside = placed(where, "all-reduce", [range(8), range(8, 16)], "ring", symmetric=False)
    across = placed(where, "all-reduce", [[i, i + 8] for i in range(8)], "ring", symmetric=False)
    together = play_together(
        [
            ChunkStream(placed=inside, tuning=FREE, size_bytes=64 * MIB),
            ChunkStream(placed=across, tuning=FREE, size_bytes=64 * MIB),
        ]
    )
    assert together.end_s[0] == pytest.approx(play(inside, FREE, 64 * MIB).time_s)
    assert together.end_s[1] == pytest.approx(play(across, FREE, 64 * MIB).time_s)


def test_collectives_of_different_placements_are_not_mixed():
    a = placed(cluster("p5.48xlarge"), "all-reduce", [range(8)], "ring")
    b = placed(cluster("trn2.48xlarge"), "all-reduce", [range(64)], "ring")
    with pytest.raises(InputError, match="one cluster"):
        play_together([ChunkStream(placed=p, tuning=FREE, size_bytes=1e6) for p in (a, b)])


@pytest.mark.parametrize(
    ("fault", "slower"),
    [
        # One of two cycles is left: half the bandwidth.
        (LinkFault(source=0, target=1), 2.0),
        # Three of four directed rings are left.
        (LinkFault(source=0, target=1, one_way=True), 4 / 3),
        # All four rings go on at half speed, or two at full speed: the same.
        (LinkFault(source=0, target=1, factor=0.5), 2.0),
        (LinkFault(source=0, target=1, factor=0.8), 1.25),
    ],
)
def test_a_faulty_link_slows_the_ring_down(fault, slower):
    platform = load_platform(open_catalog(), "trn2.48xlarge")
    group = [range(0, 64, 4)]
    sound = placed(place(platform), "all-reduce", group, "ring")
    faulty = placed(place(platform, faults=[fault]), "all-reduce", group, "ring")
    large = 1e12
    ratio = play(faulty, FREE, large).time_s / play(sound, FREE, large).time_s
    assert ratio == pytest.approx(slower, rel=1e-3)
    assert analytic_s(faulty, FREE, large) == pytest.approx(play(faulty, FREE, large).time_s)


def test_events_cover_every_message_in_order():
    found = placed(cluster("p5.48xlarge"), "all-reduce", [range(8)], "ring")
    played = play(found, FREE, 8e6, with_events=True)
    assert len(played.events) == 14 * 8
    assert max(event.end_s for event in played.events) == pytest.approx(played.time_s)
    assert [event.round_ for event in played.events] == [r for r in range(14) for _ in range(8)]
    assert sum(event.size_bytes for event in played.events) == pytest.approx(14 * 8e6)


def test_a_group_of_one_rank_is_free():
    found = placed(cluster("p5.48xlarge"), "all-reduce", [range(1)], "ring")
    assert analytic_s(found, FREE, 1e9) == 0
    assert play(found, FREE, 1e9).time_s == 0


def test_a_hundred_thousand_chips_are_one_nodes_work():
    where = cluster("trn2.48xlarge", 6250)
    found = placed(where, "all-reduce", [np.arange(where.ranks)], "hierarchical:kangaring:ring")
    assert found.of_one_node
    assert found.link_count == where.fabric.links_per_node
    # Between nodes 2 x 6249 steps of 15 us at least.
    assert play_chunked(found, FREE, 64 * MIB, 4).time_s > 2 * 6249 * 15e-6


def test_the_bound_of_an_all_to_all_of_thousands_lists_no_messages():
    where = cluster("p5.48xlarge", 250)
    found = placed(where, "all-to-all", np.arange(2000)[None], "direct")
    tracemalloc.start()
    try:
        lower_bound(found)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One index of each of its 4 million messages would take 32 MB.
    assert peak_bytes < 16e6


def test_samples_of_a_parameter_broadcast_against_sizes():
    found = profile(placed(cluster("p5.48xlarge"), "all-reduce", [range(8)], "ring"))
    link = np.array([0.5, 1.0])
    tuning = replace(FREE)
    force_setattr(tuning, "link", link)
    times = collective_time(found, tuning, np.array([[1e9], [2e9]])).time_s
    assert times.shape == (2, 2)
    assert times[0] == pytest.approx(14 * (1.2e-6 + 1e9 / 8 / 450e9 / link))


def test_a_sweep_reports_bandwidths_and_algorithms():
    where = cluster("p5.48xlarge")
    selected = select(stack_of(open_catalog(), "p5.48xlarge"), where, "all-reduce", [range(8)])
    assert isinstance(selected, tuple)
    found = sweep(selected, np.array([MIB, 1024 * MIB]))
    assert found.algorithm == ("ring", "in-switch")
    assert found.algbw_bytes_per_s == pytest.approx(found.size_bytes / found.time_s)
    assert found.busbw_bytes_per_s == pytest.approx(found.algbw_bytes_per_s * 1.75)
    with pytest.raises(InputError, match="positive"):
        sweep(selected, np.array([0.0]))
