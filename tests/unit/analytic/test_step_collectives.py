import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.engines.analytic.collective.choice import chosen_for
from trnbench.engines.analytic.collective.sweep import sweep
from trnbench.engines.analytic.step import kept_forms
from trnbench.engines.analytic.step.collectives import CollectivePrices
from trnbench.engines.analytic.step.engines import ExchangeSite
from trnbench.facts.calibration.collective_stack import stack_of
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.workload.choices import Op
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import Place, load_model
from trnbench.machine.message_plan.algorithm import Refusal
from trnbench.machine.message_plan.members import members_of
from trnbench.machine.placement import place
from trnbench.machine.rank_groups import MEGATRON, groups_along
from trnbench.program.grid import grid_of
from trnbench.program.step import training_step
from trnbench.verbs.collective.question import CollectiveQuestion
from trnbench.verbs.collective.run import run

CATALOG = open_catalog()
SIZES = (1e3, 1e6, 3e7, 1e9)
RUNS = np.array(True)


def prices(instance: str, wanted=None, logical_size=None, **degrees) -> CollectivePrices:
    platform = load_platform(CATALOG, instance)
    layout = Layout(global_batch=1024, sequence=4096, precision="bf16-master", **degrees)
    return CollectivePrices(
        platform=platform,
        stack=stack_of(CATALOG, platform.instance.name),
        grid=grid_of(layout),
        order=MEGATRON,
        logical_size=logical_size,
        wanted=np.array(True) if wanted is None else wanted,
    )


def along(of: CollectivePrices, axis: str, op: Op, sizes=SIZES, runs=RUNS):
    return of.price(op, groups_along(axis, of.grid, of.order), np.array(sizes), runs=runs)


def asked(instance: str, nodes: int, groups: str, op: Op) -> list[float]:
    """Return what the collective use case answers for the same groups."""
    question = CollectiveQuestion(
        ops=(op,),
        places=(Place(instance=instance, nodes=nodes),),
        sizes_bytes=SIZES,
        groups=groups,
    )
    answers = run(CATALOG, question)
    assert all(answer.time_s is not None for answer in answers), answers[0].reasons
    return [answer.time_s for answer in answers if answer.time_s is not None]


@pytest.mark.parametrize(
    ("instance", "nodes", "degrees", "axis", "op", "groups"),
    [
        ("trn1.32xlarge", 1, {"tp": 8, "dp": 4}, "tp", "all-reduce", "8"),
        ("trn1.32xlarge", 4, {"tp": 8, "dp": 16}, "tp", "all-gather", "8"),
        ("trn1.32xlarge", 4, {"tp": 8, "dp": 16}, "data", "reduce-scatter", "16@8"),
        ("trn1.32xlarge", 4, {"tp": 32, "dp": 4}, "data", "all-reduce", "4@32"),
        ("trn1.32xlarge", 8, {"tp": 32, "dp": 2, "pp": 4}, "pp", "all-reduce", "4@64"),
        ("trn1.32xlarge", 4, {"tp": 32, "cp": 4}, "cp", "permute", "4@32"),
        ("trn1.32xlarge", 2, {"cp": 32, "dp": 2}, "cp", "permute", "32"),
        ("trn1.32xlarge", 2, {"tp": 8, "dp": 8, "ep": 4}, "ep", "all-to-all", "4@8"),
        ("trn2.48xlarge", 4, {"tp": 16, "dp": 16}, "data", "all-reduce", "16@16"),
        ("trn2.48xlarge", 4, {"tp": 16, "dp": 16, "ep": 4}, "expert_data", "all-gather", "4@64"),
        ("trn2.48xlarge", 2, {"tp": 16, "dp": 8}, "world", "all-reduce", "128"),
        ("p5.48xlarge", 4, {"tp": 4, "dp": 8}, "data", "all-reduce", "8@4"),
        ("p5.48xlarge", 4, {"tp": 8, "pp": 4}, "pp", "send-receive", "4@8"),
    ],
)
def test_a_groups_price_is_what_the_collective_command_says(
    instance, nodes, degrees, axis, op, groups
):
    found = along(prices(instance, **degrees), axis, op)
    assert found.refused == ()
    assert found.time_s.tolist() == pytest.approx(asked(instance, nodes, groups, op), rel=1e-9)


@pytest.mark.parametrize("instance", ["trn1.32xlarge", "p5.48xlarge"])
def test_a_grid_has_the_prices_of_its_layouts(instance):
    tp, dp = np.array([1, 2, 8]).reshape(-1, 1, 1), np.array([2, 4, 64]).reshape(-1, 1)
    over = prices(instance, tp=tp, dp=dp)
    exchanges: list[tuple[str, Op]] = [
        ("tp", "all-gather"),
        ("data", "reduce-scatter"),
        ("world", "all-reduce"),
    ]
    for axis, op in exchanges:
        found = np.broadcast_to(along(over, axis, op).time_s, (3, 3, len(SIZES)))
        for i, j in np.ndindex(3, 3):
            one = along(prices(instance, tp=int(tp[i, 0, 0]), dp=int(dp[j, 0])), axis, op)
            # A world below a node leaves its other ranks idle, here as there.
            assert found[i, j].tolist() == pytest.approx(
                np.broadcast_to(one.time_s, len(SIZES)).tolist(), rel=1e-12
            )


def test_the_next_stage_on_another_node_is_across_the_network():
    model = load_model(CATALOG, "llama2-7b")

    def message_s(**degrees) -> np.ndarray:
        layout = Layout(global_batch=64, sequence=4096, precision="bf16-master", **degrees)
        program = training_step(model, layout)
        send = program.stages[0].messages[0]
        return prices("trn1.32xlarge", **degrees).message(send).time_s

    inside = message_s(tp=8, pp=4)
    across = message_s(tp=8, pp=4, dp=4)
    assert 0 < inside < across
    # Stages of one node or of two: the like rank of another node is one way over the network.
    assert message_s(tp=8, pp=4, dp=8) == across
    assert message_s(tp=8, pp=8, dp=4) == across


def test_every_exchange_of_a_step_has_a_price():
    model = load_model(CATALOG, "mixtral-8x7b")
    layout = Layout(
        tp=np.array([1, 4, 8]).reshape(-1, 1),
        pp=2,
        dp=np.array([2, 8]),
        ep=2,
        zero=1,
        sequence_parallel=True,
        global_batch=64,
        sequence=4096,
        precision="bf16-master",
    )
    program = training_step(model, layout)
    platform = load_platform(CATALOG, "trn1.32xlarge")
    of = CollectivePrices(
        platform=platform,
        stack=stack_of(CATALOG, "trn1.32xlarge"),
        grid=program.grid,
        order=MEGATRON,
    )
    ops = [op for block in program.blocks.values() for op in block.collectives]
    assert {op.axis for op in ops} >= {"tp", "ep", "data", "expert_data"}
    for op in (*ops, *program.closing):
        found = of.collectives([op])[0]
        assert found.refused == ()
        runs = np.broadcast_to(op.count > 0, found.time_s.shape)
        assert (found.time_s[runs] > 0).all()
        assert (found.time_s[~runs] == 0).all()
    sends = [send for stage in program.stages for send in stage.messages]
    assert sends
    assert all((of.message(send).time_s > 0).all() for send in sends)
    placed = len(of.site.kept.engines)
    for op in ops:
        of.collectives([op])[0]
    assert len(of.site.kept.engines) == placed


def test_one_rank_exchanges_nothing_and_what_is_left_out_has_no_price(monkeypatch):
    monkeypatch.setattr(kept_forms, "_kept", {})
    dp = np.array([1, 2, 4]).reshape(-1, 1)
    of = prices("trn1.32xlarge", wanted=np.array([True, True, False]).reshape(-1, 1), dp=dp)
    found = along(of, "data", "all-reduce").time_s
    assert (found[0] == 0).all()
    assert (found[1] > 0).all()
    assert np.isnan(found[2]).all()
    assert len(of.site.kept.engines) == 1
    never = along(of, "data", "all-reduce", runs=np.array(False))
    assert (never.time_s == 0).all()


def test_a_choice_along_an_axis_that_a_group_lacks_does_not_matter():
    # The data ranks are the same for every tp here; one wanted tp is enough to need the price.
    tp = np.array([1, 2]).reshape(-1, 1)
    wanted = np.array([[False, True], [False, False]])
    of = prices("trn1.32xlarge", wanted=wanted, tp=tp, dp=np.array([2, 32]))
    found = along(of, "world", "all-reduce", sizes=1e6).time_s
    assert np.isfinite(found).tolist() == wanted.tolist()
    assert np.isfinite(along(of, "tp", "all-reduce", sizes=1e6).time_s).tolist() == [
        [True],
        [False],
    ]


def test_groups_that_the_stack_cannot_serve_are_refused_in_words():
    # 12 ranks a stage, 32 a node: some groups of 3 have two ranks on a node and one on the next.
    of = prices("trn1.32xlarge", tp=np.array([4, 32]), dp=3, pp=8)
    found = along(of, "data", "all-reduce", sizes=1e6)
    assert len(found.refused) == 1
    assert found.refused[0].broken.tolist() == [True, False]
    assert found.refused[0].words({}).startswith("all-reduce of 3 ranks, each 4 from the next: ")
    assert np.isnan(found.time_s).tolist() == [True, False]


def test_expert_groups_that_do_not_divide_have_no_price():
    found = along(prices("trn1.32xlarge", dp=6, ep=4), "expert_data", "all-reduce")
    assert np.isnan(found.time_s).all()


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.floats(1e2, 1e9), min_size=2, max_size=20),
    axis_op=st.sampled_from(
        (("tp", "all-reduce"), ("tp", "all-gather"), ("data", "reduce-scatter"), ("cp", "permute"))
    ),
    instance=st.sampled_from(("trn1.32xlarge", "p5.48xlarge")),
)
def test_more_bytes_never_take_less_time_in_a_node(sizes, axis_op, instance):
    degrees = {"tp": 4, "dp": 2} if instance.startswith("p5") else {"tp": 8, "cp": 2, "dp": 2}
    axis, op = axis_op
    found = along(prices(instance, **degrees), axis, op, sorted(sizes)).time_s
    assert (np.diff(np.atleast_1d(found)) >= -1e-15).all()


def test_many_sizes_are_priced_like_one():
    of = prices("trn2.48xlarge", tp=16, dp=16)
    sizes = np.geomspace(1e2, 1e9, 2_000)
    together = along(of, "data", "all-reduce", sizes=sizes).time_s
    for at in (0, 900, 1_700, 1_999):
        alone = along(of, "data", "all-reduce", sizes=sizes[at]).time_s
        assert together[at] == pytest.approx(float(alone), rel=1e-12)


@pytest.mark.parametrize(
    ("instance", "op"),
    [
        ("trn2.48xlarge", "all-gather"),
        ("trn2.48xlarge", "all-reduce"),
        ("p4d.24xlarge", "reduce-scatter"),
        ("p5.48xlarge", "all-reduce"),
    ],
)
def test_small_sizes_asked_after_large_ones_are_priced_like_all_at_once(
    instance, op, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    degrees = {"tp": 8, "dp": 16}
    sizes = np.geomspace(1e2, 1e10, 41)[::-1]

    def new_process() -> CollectivePrices:
        monkeypatch.setattr(kept_forms, "_kept", {})
        return prices(instance, **degrees)

    def first_start(of: CollectivePrices) -> float:
        (engine,) = of.site.kept.engines.values()
        assert not isinstance(engine, Refusal)
        return engine.starts[0]

    together = along(new_process(), "data", op, sizes=sizes).time_s
    of = new_process()
    assert [float(along(of, "data", op, sizes=one).time_s) for one in sizes] == together.tolist()
    assert not first_start(of)
    # The largest size alone needs the last algorithm; what it leaves in the file serves the others.
    of = new_process()
    along(of, "data", op, sizes=sizes[0])
    assert first_start(of)
    of.site.kept.write()
    of = new_process()
    assert [float(along(of, "data", op, sizes=one).time_s) for one in sizes] == together.tolist()
    of.site.kept.write()
    monkeypatch.setattr(ExchangeSite, "_placed", None)
    found = along(new_process(), "data", op, sizes=sizes).time_s
    assert found.tolist() == together.tolist()


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_shared_phases_and_rings_cost_what_groups_read_rank_by_rank_cost(data):
    instance = data.draw(st.sampled_from(("trn1.32xlarge", "trn2.48xlarge", "p5.48xlarge")))
    tp, dp = 2 ** np.arange(1, 6), data.draw(st.sampled_from((2, 4, 6, 8)))
    of = prices(instance, tp=tp.reshape(-1, 1), dp=dp)
    axis, op = data.draw(st.sampled_from((("tp", "all-gather"), ("data", "reduce-scatter"))))
    found = along(of, axis, op)
    for at, own in enumerate(tp.tolist()):
        one = grid_of(Layout(global_batch=1, sequence=1, precision="bf16-master", tp=own, dp=dp))
        groups = groups_along(axis, one, MEGATRON)
        world = (
            int(np.lcm(own * dp, of.ranks_per_node)) if own * dp > of.ranks_per_node else own * dp
        )
        members = groups.members(world)
        widest = np.argmax(np.ptp(members // of.ranks_per_node, axis=1))
        placed = place(of.platform, nodes=-(-world // of.ranks_per_node))
        apart = members_of(placed, np.roll(members, -widest, axis=0), symmetric=False)
        selected = chosen_for(of.stack, apart, op)
        times = np.broadcast_to(found.time_s, (len(tp), len(SIZES)))[at]
        if isinstance(selected, Refusal):
            assert np.isnan(times).all()
        else:
            assert times.tolist() == pytest.approx(
                sweep(selected, np.array(SIZES)).time_s.tolist(), rel=1e-9
            )
