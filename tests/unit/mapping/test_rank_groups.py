import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.machine.layout_rules import platform_refusals, platform_warnings
from trnbench.machine.rank_groups import (
    MEGATRON,
    NXD_TRN1,
    AxisOrder,
    RankGroups,
    groups_along,
)
from trnbench.program.grid import Grid, grid_of

CATALOG = open_catalog()
TRN1 = load_platform(CATALOG, "trn1.32xlarge")
TRN2 = load_platform(CATALOG, "trn2.48xlarge")
P5 = load_platform(CATALOG, "p5.48xlarge")
INNER_PIPELINE = AxisOrder(
    name="pipeline inside data", axes=("tp", "pp", "cp", "dp"), kv_copies="adjacent"
)
DEGREE = st.sampled_from((1, 2, 3, 4, 8))


def grid(**degrees) -> Grid:
    layout = Layout(global_batch=1024, sequence=4096, precision="bf16-master", **degrees)
    return grid_of(layout)


def sets(groups) -> set[frozenset[int]]:
    return {frozenset(map(int, group)) for group in groups}


def test_tensor_groups_stay_in_a_node_and_data_groups_take_every_eighth_rank():
    # 4 nodes of 32 ranks: tensor groups are 0-7, 8-15, ...; data ranks 0, 8, ..., 120.
    of = grid(tp=8, dp=16)
    tensor, data = groups_along("tp", of, MEGATRON), groups_along("data", of, MEGATRON)
    assert (int(tensor.ranks), int(tensor.stride)) == (8, 1)
    assert (int(tensor.ranks_in_node(32)), int(tensor.nodes(32))) == (8, 1)
    assert tensor.members(128)[5].tolist() == list(range(40, 48))
    assert (int(data.ranks), int(data.stride)) == (16, 8)
    assert (int(data.ranks_in_node(32)), int(data.nodes(32))) == (4, 4)
    assert data.members(128)[3].tolist() == list(range(3, 128, 8))


def test_the_next_stage_is_as_far_as_all_ranks_of_a_stage():
    # tp 8 x cp 2 x dp 2 = 32 ranks a stage: the next stage is the next node of 32.
    stages = groups_along("pp", grid(tp=8, cp=2, dp=2, pp=4), MEGATRON)
    assert (int(stages.ranks), int(stages.stride), int(stages.nodes(32))) == (4, 32, 4)
    inner = groups_along("pp", grid(tp=8, cp=2, dp=2, pp=4), INNER_PIPELINE)
    assert (int(inner.stride), int(inner.nodes(32))) == (8, 1)


def test_groups_of_a_grid_are_those_of_its_layouts():
    tp, dp = np.array([1, 2, 8]).reshape(-1, 1), np.array([2, 4])
    over = groups_along("data", grid(tp=tp, cp=2, dp=dp), MEGATRON)
    for i, j in itertools.product(range(3), range(2)):
        one = groups_along("data", grid(tp=int(tp[i, 0]), cp=2, dp=int(dp[j])), MEGATRON)
        for name in ("ranks", "stride", "width", "period"):
            values = np.broadcast_to(getattr(over, name), (3, 2))
            assert values[i, j] == int(getattr(one, name))


@settings(deadline=None, max_examples=60)
@given(
    tp=DEGREE, cp=DEGREE, dp=DEGREE, pp=DEGREE, order=st.sampled_from((MEGATRON, INNER_PIPELINE))
)
def test_groups_are_the_ranks_that_differ_along_their_axis_alone(tp, cp, dp, pp, order):
    of, size = grid(tp=tp, cp=cp, dp=dp, pp=pp), {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
    outwards = list(order.axes)
    world = np.arange(tp * cp * dp * pp).reshape([size[axis] for axis in reversed(outwards)])
    for axis in outwards:
        lines = np.moveaxis(world, 3 - outwards.index(axis), -1).reshape(-1, size[axis])
        found = groups_along(axis, of, order).members(world.size)
        assert sets(found) == sets(lines)
        assert len(found) == len(lines)
    data = np.moveaxis(
        world, [3 - outwards.index("dp"), 3 - outwards.index("cp")], [-2, -1]
    ).reshape(-1, dp * cp)
    assert sets(groups_along("data", of, order).members(world.size)) == sets(data)
    assert sets(groups_along("world", of, order).members(world.size)) == sets([world.ravel()])


@settings(deadline=None, max_examples=40)
@given(tp=DEGREE, cp=DEGREE, dp=DEGREE, pp=DEGREE, ep=DEGREE)
def test_expert_ranks_are_the_innermost_of_a_stages_data_ranks(tp, cp, dp, pp, ep):
    assume(cp * dp % ep == 0)
    of = grid(tp=tp, cp=cp, dp=dp, pp=pp, ep=ep)
    world = np.arange(tp * cp * dp * pp).reshape(pp, cp * dp // ep, ep, tp)
    experts = world.transpose(0, 1, 3, 2).reshape(-1, ep)
    copies = world.transpose(0, 2, 3, 1).reshape(-1, cp * dp // ep)
    assert sets(groups_along("ep", of, MEGATRON).members(world.size)) == sets(experts)
    assert sets(groups_along("expert_data", of, MEGATRON).members(world.size)) == sets(copies)


def test_expert_groups_that_do_not_divide_are_no_groups():
    assert int(groups_along("expert_data", grid(dp=6, ep=4), MEGATRON).ranks) == 0


def test_the_ends_of_a_pipeline():
    ends = groups_along("tied", grid(tp=2, dp=2, pp=4), MEGATRON)
    # 4 ranks a stage: 0-3 and 12-15.
    assert sets(ends.members(16)) == sets([(0, 12), (1, 13), (2, 14), (3, 15)])
    assert int(groups_along("tied", grid(tp=2), MEGATRON).ranks) == 1


def test_copies_of_key_value_heads_lie_beside_each_other_or_go_round():
    # 8 tensor ranks, 2 heads: 4 copies of each.
    of, copies = grid(tp=8, dp=2), np.array(4.0)
    adjacent = groups_along("kv_copies", of, MEGATRON, copies).members(16)
    assert adjacent.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    round_ = groups_along("kv_copies", of, NXD_TRN1, copies).members(16)
    assert round_.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
    with pytest.raises(InputError, match="need their ranks"):
        groups_along("kv_copies", of, MEGATRON)


def test_orders_and_axes_that_make_no_sense_are_refused():
    with pytest.raises(InputError, match="once each"):
        AxisOrder(name="x", axes=("tp", "cp", "dp"), kv_copies="adjacent")
    with pytest.raises(InputError, match="right after cp"):
        AxisOrder(name="x", axes=("tp", "cp", "pp", "dp"), kv_copies="adjacent")
    with pytest.raises(UnknownNameError, match="axis"):
        groups_along("tpp", grid(), MEGATRON)


# Groups without gaps, and the two ends of a pipeline.
GROUPS = st.builds(
    lambda ranks, stride: RankGroups(
        ranks=np.array(ranks),
        stride=np.array(stride),
        width=np.array(stride),
        period=np.array(stride * ranks),
    ),
    ranks=st.integers(1, 12),
    stride=st.integers(1, 20),
) | st.builds(
    lambda stages, stride: RankGroups(
        ranks=np.array(2),
        stride=np.array(stride * (stages - 1)),
        width=np.array(stride),
        period=np.array(stride * stages),
    ),
    stages=st.integers(2, 9),
    stride=st.integers(1, 20),
)


@settings(deadline=None, max_examples=150)
@given(groups=GROUPS, ranks_per_node=st.integers(1, 40))
def test_nodes_of_a_group_are_those_counted_one_by_one(groups, ranks_per_node):
    ranks = int(np.lcm(int(groups.period), ranks_per_node))
    members = groups.members(ranks)
    node = members // ranks_per_node
    assert int(groups.nodes(ranks_per_node)) == max(len(set(row)) for row in node.tolist())
    most = max(row.count(n) for row in node.tolist() for n in row)
    assert int(groups.ranks_in_node(ranks_per_node)) == most


@settings(deadline=None, max_examples=60)
@given(groups=GROUPS, ranks_per_node=st.integers(1, 16), times=st.integers(2, 5))
def test_more_ranks_in_a_node_never_make_more_nodes(groups, ranks_per_node, times):
    assert groups.nodes(ranks_per_node * times) <= groups.nodes(ranks_per_node)
    assert groups.ranks_in_node(ranks_per_node * times) >= groups.ranks_in_node(ranks_per_node)


def words(reasons, **at) -> list[str]:
    return [reason.words(at) for reason in reasons]


def test_a_layout_that_fills_the_cluster_is_taken():
    assert platform_refusals(TRN1, grid(tp=32, pp=8, dp=2), nodes=16) == ()
    assert platform_warnings(TRN1, grid(tp=32, pp=8, dp=2)) == ()


def test_refusals_of_a_grid_name_what_is_near():
    tp, dp = np.array([2, 8, 12, 32]).reshape(-1, 1), np.array([4, 16])
    found = platform_refusals(TRN1, grid(tp=tp, dp=dp), nodes=4)
    by_rule = {reason.rule: reason for reason in found}
    # 128 ranks: only 8 x 16 and 32 x 4 fill them.
    full = np.array([[False, False], [False, True], [False, False], [True, False]])
    assert (np.broadcast_to(by_rule["ranks"].broken, (4, 2)) == ~full).all()
    at = {"tp": 12, "cp": 1, "pp": 1, "dp": 16}
    assert by_rule["ranks"].words(at) == (
        "tp x cp x pp x dp = 192 ranks, 4 x trn1.32xlarge have 128; "
        "try tp x cp x pp = 8, 16, 4, or 6 nodes"
    )
    assert "try dp=16" in by_rule["ranks"].words(at | {"tp": 8, "dp": 4})
    assert by_rule["tensor parallel"].broken.ravel().tolist() == [False, False, True, False]
    assert by_rule["tensor parallel"].words(at).endswith("try tp=8, 1, 32")
    (warned,) = platform_warnings(TRN1, grid(tp=tp, dp=dp))
    assert warned.broken.ravel().tolist() == [True, False, False, False]
    assert "tp=1, 8, 32 is" in warned.words(at | {"tp": 2})


def test_a_job_on_a_part_of_a_node_has_a_listed_number_of_ranks():
    of = grid(tp=1, dp=np.array([2, 4, 8, 32, 64]))
    found = platform_refusals(TRN1, of, nodes=1, whole_nodes=False)
    by_rule = {reason.rule: reason.broken.tolist() for reason in found}
    assert by_rule["ranks"] == [False, False, False, False, True]
    assert by_rule["ranks of a job"] == [False, True, False, False, False]
    at = {"tp": 1, "cp": 1, "pp": 1, "dp": 4}
    assert words(found, **at)[1] == (
        "trn1.32xlarge runs 1, 2, 8, 16 or a multiple of 32 ranks in a job, not 4"
    )
    strict = platform_refusals(TRN1, of, nodes=1)
    assert strict[0].broken.tolist() == [True, True, True, False, True]


def test_degrees_belong_to_a_size_of_logical_core():
    two, one = TRN2.legal_degrees(), TRN2.legal_degrees(1)
    assert two is not None
    assert one is not None
    assert 16 in two.tensor_parallel
    assert 16 not in one.tensor_parallel
    assert P5.legal_degrees() is None
    of = grid(tp=128)
    assert platform_refusals(TRN2, of, nodes=1, logical_size=1) == ()
    refused = platform_refusals(TRN2, of, nodes=2)
    assert [reason.rule for reason in refused] == ["tensor parallel"]


def test_a_gpu_takes_any_tensor_parallelism_up_to_the_cluster():
    assert platform_refusals(P5, grid(tp=3, pp=8, dp=1), nodes=3) == ()


def test_a_cluster_beyond_its_limit_is_refused_everywhere():
    found = platform_refusals(P5, grid(tp=8, dp=np.array([4000, 8000])), nodes=4000)
    cluster = found[0]
    assert cluster.rule == "cluster"
    assert bool(cluster.broken)
    network = P5.instance.network
    assert network is not None
    assert network.max_chips_per_cluster is not None
    most = int(network.max_chips_per_cluster // 8)
    assert f"up to {most} nodes" in cluster.words({})
    alone = replace(P5, instance=replace(P5.instance, fabric=P5.instance.fabric[:-1]))
    assert "network" in platform_refusals(alone, grid(dp=16), nodes=2)[0].words({})
