import numpy as np
import pytest

from tests.collectives import build_plan, place_collective, select
from trnbench.engines.emulate.collective.data import check_data
from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.calibration.collective_stack import stack_of
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.machine.fabric import LinkFault
from trnbench.machine.legality import cluster_verdict, even_groups, verdict
from trnbench.machine.message_plan.algorithm import ALGORITHMS, Algorithm, Refusal
from trnbench.machine.message_plan.folded import ring_lengths
from trnbench.machine.message_plan.placed import Placed
from trnbench.machine.message_plan.plan import MessagePlan, turns
from trnbench.machine.message_plan.select import algorithm_named
from trnbench.machine.placement import Placement, place
from trnbench.program.collective import Collective, bus_factor, op_named

OPS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "permute")
CHOICES = [Algorithm(name=name, pieces=4) for name in ALGORITHMS if name != "hierarchical"] + [
    Algorithm(name="hierarchical", inner=inner, outer=outer, pieces=4)
    for inner, outer in (
        ("ring", "ring"),
        ("kangaring", "halving"),
        ("in-switch", "tree"),
        ("mesh", "direct"),
        ("halving", "ring"),
        ("ring", "two-level-ring"),
        ("mesh", "folded-halving"),
    )
]


def cluster(name: str, nodes: int = 1, **options) -> Placement:
    return place(load_platform(open_catalog(), name), nodes=nodes, **options)


def plan(name: str, op: str, group, algorithm: str, nodes: int = 1) -> MessagePlan:
    found = build_plan(
        cluster(name, nodes), op_named(op), np.array(group), algorithm_named(algorithm)
    )
    assert isinstance(found, MessagePlan), found
    return found


GROUPS = {
    "trn1 node": ("trn1.32xlarge", 1, range(32)),
    "trn2 chip": ("trn2.48xlarge", 1, range(4)),
    "trn2 column, one rank a chip": ("trn2.48xlarge", 1, range(0, 64, 16)),
    "trn2 rows 0 and 3": ("trn2.48xlarge", 1, [*range(16), *range(48, 64)]),
    "trn2 one rank a chip": ("trn2.48xlarge", 1, range(0, 64, 4)),
    "trn2 three ranks": ("trn2.48xlarge", 1, (0, 5, 33)),
    "trn2 two nodes, two chips each": ("trn2.48xlarge", 2, [*range(8), *range(64, 72)]),
    "trn2 data parallel over three nodes": ("trn2.48xlarge", 3, (7, 71, 135)),
    "ultraserver, one rank a chip of a column": ("trn2-ultraserver", 1, range(0, 256, 16)),
    "trn3, eight chips": ("trn3-ultraserver-gen1", 1, range(0, 64, 8)),
    "p5 node": ("p5.48xlarge", 1, range(8)),
    "p5 three nodes": ("p5.48xlarge", 3, range(24)),
}


@pytest.mark.parametrize("name", GROUPS)
def test_every_collective_and_algorithm_leaves_every_rank_with_what_it_should_hold(name):
    instance, nodes, group = GROUPS[name]
    where, ranks = cluster(instance, nodes), np.array(list(group))
    checked = set()
    for op in OPS:
        for algorithm in CHOICES:
            found = build_plan(where, op_named(op), ranks, algorithm)
            if isinstance(found, Refusal):
                assert found.reason
                continue
            # One element a rank, and a prime number of elements: parts differ in size.
            for elements in (len(ranks), 211 if op != "all-to-all" else 37):
                result = check_data(found, elements, seed=7)
                assert result.passed, (op, algorithm.label, elements, result)
            checked.add((op, algorithm.name))
    assert {op for op, _ in checked} == set(OPS)
    assert {"ring", "direct", "mesh", "tree"} <= {found for _, found in checked}


def test_a_wrong_plan_is_caught():
    ring = plan("trn2.48xlarge", "all-reduce", range(0, 64, 4), "ring")
    (phase,) = ring.phases
    (a, n), (b, m) = phase.pattern.distinct_rounds
    # The ring with its last round left out.
    skips = replace(phase.pattern, distinct_rounds=((a, n), (b, m - 1)))
    broken = replace(ring, phases=(replace(phase, pattern=skips),))
    result = check_data(broken, 160)
    assert not result.passed
    # Each rank lacks one of its 16 blocks on each of the 4 rings: 10 of 160 elements.
    assert result.wrong_elements == 16 * 10


def test_a_check_repeats_by_its_seed():
    found = plan("p5.48xlarge", "all-reduce", range(8), "in-switch")
    assert check_data(found, 100).passed
    assert check_data(found, 100, seed=1) == check_data(found, 100, seed=1)
    with pytest.raises(InputError, match="at least 1 element"):
        check_data(found, 0)


@pytest.mark.parametrize(
    ("algorithm", "count"),
    [
        # 64 ranks on 16 chips: a ring has 2 x 63 rounds, KangaRing 2 x (15 + 1).
        ("ring", 126),
        ("kangaring", 32),
        # A local round and log2 16 between chips, there and back.
        ("halving", 10),
        # Local and between chips, there and back: the middle two are one phase.
        ("mesh", 4),
        ("single-step-mesh", 1),
        ("direct", 2),
    ],
)
def test_rounds_of_an_all_reduce_on_a_trn2_node(algorithm, count):
    found = plan("trn2.48xlarge", "all-reduce", range(64), algorithm)
    rounds = [times for phase in found.phases for _, times in phase.pattern.distinct_rounds]
    assert sum(rounds) == count


def test_halving_partners_are_one_link_away_on_the_torus():
    where = cluster("trn2.48xlarge")
    found = place_collective(where, "all-reduce", [range(0, 64, 4)], algorithm_named("halving"))
    assert isinstance(found, Placed)
    none = found.link_count
    assert {int((r.links != none).sum(axis=1).max()) for r in found.rounds} == {1}


def test_one_node_stands_for_all_with_the_same_load():
    where = cluster("trn2.48xlarge", 3)
    group = [range(where.ranks)]
    algorithm = algorithm_named("hierarchical:kangaring:ring")
    few = place_collective(where, "all-reduce", group, algorithm)
    every = place_collective(where, "all-reduce", group, algorithm, symmetric=False)
    assert isinstance(few, Placed)
    assert isinstance(every, Placed)
    assert few.of_one_node
    assert not every.of_one_node
    for a, b in zip(few.rounds, every.rounds, strict=True):
        one = np.bincount(a.links.ravel(), np.repeat(a.share, a.links.shape[1]), few.link_count + 1)
        all_ = np.bincount(
            b.links.ravel(), np.repeat(b.share, b.links.shape[1]), every.link_count + 1
        )
        nodes = all_[:-1].reshape(3, -1)
        assert nodes == pytest.approx(np.tile(one[:-1], (3, 1)))


def test_refusals_say_why():
    def reason(name, op, group, algorithm, nodes=1):
        found = build_plan(
            cluster(name, nodes), op_named(op), np.array(group), algorithm_named(algorithm)
        )
        assert isinstance(found, Refusal)
        return found.reason

    assert "power of two, not 3" in reason("p5.48xlarge", "all-reduce", range(3), "halving")
    assert "from 5 chips on" in reason("p5.48xlarge", "all-reduce", range(4), "in-switch")
    assert "no switch that reduces" in reason(
        "trn3-ultraserver-gen1", "all-reduce", range(0, 16, 4), "in-switch"
    )
    assert "all ranks of each" in reason("trn2.48xlarge", "all-reduce", range(3), "kangaring")
    assert "several nodes" in reason("p5.48xlarge", "all-reduce", range(8), "hierarchical")
    assert "all-reduce only" in reason("p5.48xlarge", "all-gather", range(8), "single-step-mesh")


def test_selection_follows_the_documented_table_of_trn2():
    where = cluster("trn2.48xlarge")
    chosen = select(stack_of(open_catalog(), "trn2.48xlarge"), where, "all-reduce", [range(64)])
    assert isinstance(chosen, tuple)
    assert [(c.algorithm.name, c.below_bytes) for c in chosen] == [
        ("mesh", 1e6),
        ("halving", 56e6),
        ("kangaring", float("inf")),
    ]


def test_selection_passes_over_what_the_group_cannot_do():
    where = cluster("trn2.48xlarge")
    chosen = select(
        stack_of(open_catalog(), "trn2.48xlarge"), where, "all-reduce", [range(0, 64, 4)]
    )
    assert isinstance(chosen, tuple)
    assert chosen[-1].algorithm.name == "ring"
    assert "all ranks of each" in chosen[-1].passed_over[0]
    forced = select(
        stack_of(open_catalog(), "trn2.48xlarge"),
        where,
        "all-reduce",
        [(0, 4, 8)],
        algorithm=algorithm_named("halving"),
    )
    assert isinstance(forced, Refusal)


def test_an_algorithm_asked_for_keeps_what_the_table_gives_it():
    """NCCL's table on p5: a ring with LL128 below 4 MiB, with Simple above."""
    where, stack = cluster("p5.48xlarge"), stack_of(open_catalog(), "p5.48xlarge")
    chosen = select(stack, where, "all-reduce", [range(8)], algorithm=algorithm_named("ring"))
    assert isinstance(chosen, tuple)
    assert [(c.tuning_name, c.below_bytes) for c in chosen] == [
        ("ll128", 4 * 2**20),
        ("ring", float("inf")),
    ]
    assert [c.algorithm.pieces for c in chosen] == [
        stack.tuning(n).pieces for n in ("ll128", "ring")
    ]
    fixed = select(
        stack, where, "all-reduce", [range(8)], algorithm=algorithm_named("ring"), tuning="nvls"
    )
    assert isinstance(fixed, tuple)
    assert [c.tuning_name for c in fixed] == ["nvls"]


@pytest.mark.parametrize("text", ["ring:tree", "hierarchical:ring:ring:ring"])
def test_only_hierarchical_has_parts(text):
    with pytest.raises(InputError, match="cannot read the algorithm"):
        algorithm_named(text)


def test_unknown_names_are_errors():
    with pytest.raises(UnknownNameError, match="did you mean 'kangaring'"):
        algorithm_named("kangring")
    with pytest.raises(UnknownNameError, match="collective operation"):
        op_named("all-sum")


def test_dead_rings_leave_a_correct_collective():
    where = cluster("trn2.48xlarge", faults=[LinkFault(source=5, target=6)])
    found = build_plan(where, "all-reduce", np.arange(64), algorithm_named("kangaring"))
    assert isinstance(found, MessagePlan)
    assert check_data(found, 211).passed


def test_groups_must_be_well_formed():
    where = cluster("trn2.48xlarge")
    algorithm = algorithm_named("ring")
    for groups, message in (
        ([[0, 1], [2]], "one length"),
        ([[0, 1], [1, 2]], "two replica groups"),
        ([[0, 64]], "ranks are 0 to 63"),
    ):
        with pytest.raises(InputError, match=message):
            place_collective(where, "all-reduce", groups, algorithm)


@pytest.mark.parametrize(
    ("name", "nodes", "op", "groups", "size", "reason"),
    [
        ("trn1.32xlarge", 1, "all-reduce", [range(12)], 1e6, "1, 2, 8, 16 or a multiple of 32"),
        ("trn2.48xlarge", 1, "all-reduce", [range(12)], 1e6, "no replica groups of 12 ranks"),
        ("trn2.48xlarge", 2, "all-reduce", [[0, 1, 64]], 1e6, "the same ranks on each"),
        ("trn2.48xlarge", 1, "all-gather", [range(64)], 32, "less than one element"),
        ("trn2.48xlarge", 1, "permute", [range(0, 64, 4)], 1e6, "no link between them"),
    ],
)
def test_what_the_platform_does_not_allow_is_an_answer(name, nodes, op, groups, size, reason):
    collective = Collective(op=op_named(op), ranks=len(groups[0]), size_bytes=size)
    found = verdict(cluster(name, nodes), collective, groups)
    assert not found.legal
    assert any(reason in one for one in found.reasons)
    assert found.alternatives


def test_what_is_allowed_and_what_only_warns():
    where = cluster("trn2.48xlarge")
    asked = Collective(op="all-reduce", ranks=16, size_bytes=8)
    assert verdict(where, asked, np.arange(64).reshape(4, 16)).legal
    eight = verdict(where, asked, np.arange(64).reshape(8, 8))
    assert eight.legal
    assert "groups of 8" in eight.warnings[0]
    ring = Collective(op="permute", ranks=4, size_bytes=8)
    assert verdict(where, ring, [[0, 4, 8, 12]]).legal


def test_cluster_limits_and_division():
    platform = load_platform(open_catalog(), "trn1.32xlarge")
    # 100,000 chips are 6,250 nodes of 16.
    assert cluster_verdict(platform, 6250).legal
    assert cluster_verdict(platform, 6251).alternatives == ("up to 6250 nodes",)
    found = even_groups(cluster("p5.48xlarge"), 8, 3)
    assert not isinstance(found, np.ndarray)
    assert found.alternatives == ("groups of 1", "groups of 2", "groups of 4")
    assert even_groups(cluster("p5.48xlarge"), 8, 4).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]  # type: ignore[union-attr]


def test_turns_interleave_chunks_oldest_first():
    # Phases 0 and 2 share a lane: 0, 0, then the first chunk's phase 2 before the third's 0.
    order = turns((0, 1, 0), 3)
    assert [turn for turn in order if turn[1] != 1] == [
        (0, 0),
        (1, 0),
        (0, 2),
        (2, 0),
        (1, 2),
        (2, 2),
    ]


def test_bus_factors_are_those_of_nccl_tests():
    assert bus_factor("all-reduce", 8) == 1.75
    assert bus_factor("all-gather", 16) == bus_factor("all-to-all", 16) == 15 / 16
    assert bus_factor("broadcast", 8) == bus_factor("send-receive", 8) == 1.0


@pytest.mark.parametrize("name", ["folded-halving", "two-level-ring"])
@pytest.mark.parametrize("nodes", [2, 3, 5, 7, 11, 12, 23, 37, 48])
def test_few_rounds_do_for_any_number_of_nodes(name, nodes):
    where = cluster("p5.48xlarge", nodes)
    for op in ("all-reduce", "all-gather", "reduce-scatter"):
        found = build_plan(where, op_named(op), np.arange(nodes) * 8 + 3, algorithm_named(name))
        assert isinstance(found, MessagePlan)
        for elements in (1, nodes, 211):
            assert check_data(found, elements, seed=3).passed, (op, elements)
        (phase,) = found.phases
        rounds = sum(times for _, times in phase.pattern.distinct_rounds)
        # Each way: log2 n, and two that hand the rest over; or two rings of about the root of n.
        most = int(np.log2(nodes)) + 2 if name == "folded-halving" else 4 * np.sqrt(nodes) - 1
        assert rounds <= most * (2 if op == "all-reduce" else 1)


@pytest.mark.parametrize(
    ("nodes", "lengths"), [(1875, (25, 75)), (1024, (32, 32)), (37, (6, 6)), (1874, (43, 43))]
)
def test_two_levels_of_rings_divide_the_nodes_or_leave_few_over(nodes, lengths):
    assert ring_lengths(nodes) == lengths
