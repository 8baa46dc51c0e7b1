"""Dispatchers of tokens to experts: what they need, send, cost over EFA, and hide."""

from __future__ import annotations

from typing import Any

import pytest

import trnbench
from trnbench.errors import InputError
from trnbench.facts.calibration.chip_efficiency import DispatchEfficiency, ExpertEfficiency
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.choices import dispatcher_named
from trnbench.facts.workload.layout import Layout
from trnbench.predict.prices import prices_of
from trnbench.predict.setup import SetupMemo, TrainSetup, train_setup
from trnbench.program.step import training_step

CATALOG = open_catalog()
EXPERTS = ExpertEfficiency(
    compute=1.0, imbalance=0.0, block_pass_s=0.0, overlap_between_nodes=0.5, recompute=None
)
FREE = DispatchEfficiency(
    launch_overlap=0.0,
    alltoall_launch_s=0.0,
    deepep_launch_s=0.0,
    uccl_launch_s=0.0,
    alltoall_exchange=1.0,
    deepep_exchange=1.0,
    uccl_exchange=1.0,
    alltoall_overlap=0.0,
    deepep_overlap=0.0,
    uccl_overlap=0.0,
)
# Eight experts, two ranks apart: each token's experts are on both nodes of eight ranks.
LAYOUT = Layout(
    tp=2, dp=8, ep=8, micro_batch=1, global_batch=32, sequence=4096, precision="bf16-master"
)
MICRO_BATCHES = 4
LAYERS = 32


def setup_with(efa: DispatchEfficiency | None, on: str = "p5.48xlarge") -> TrainSetup:
    plain = train_setup(CATALOG, "mixtral-8x7b", on, 2)
    overlaps = replace(plain.stack.overlaps, expert=0.0)
    stack = replace(plain.stack, experts=EXPERTS, overlaps=overlaps, efa=efa, host=None)
    return replace(plain, efficiency=replace(plain.efficiency, stack=stack), memo=SetupMemo())


def seconds(efa: DispatchEfficiency | None, **changes: Any) -> dict[str, float]:
    setup = setup_with(efa)
    time = prices_of(setup, training_step(setup.model, replace(LAYOUT, **changes))).time()
    return {name: float(value) for name, value in time.by_category.items()}


def test_a_host_that_waits_adds_every_launch():
    # 32 layers, forward and backward, 4 micro-batches of 1 ms each.
    waiting = replace(FREE, alltoall_launch_s=1e-3)
    assert seconds(FREE)["host"] == 0
    assert seconds(waiting)["host"] == pytest.approx(MICRO_BATCHES * LAYERS * 2 * 1e-3)
    assert seconds(waiting, dispatcher="uccl")["host"] == 0
    # Inside a node tokens need no dispatcher between nodes; full recompute passes once more.
    assert seconds(waiting, tp=1, dp=16)["host"] == 0
    again = seconds(waiting, recompute="full")["host"]
    assert again == pytest.approx(MICRO_BATCHES * LAYERS * 3 * 1e-3)


def test_a_host_that_launches_ahead_is_a_floor():
    short, long = (replace(FREE, launch_overlap=1.0, alltoall_launch_s=s) for s in (1e-6, 1.0))
    assert seconds(short)["host"] == 0
    device = sum(seconds(FREE).values())
    floor = MICRO_BATCHES * LAYERS * 2
    assert floor < sum(seconds(long).values()) < floor + device


def test_messages_between_nodes_take_the_factor_of_their_dispatcher():
    plain, slow = seconds(FREE), seconds(replace(FREE, alltoall_exchange=2.0))
    assert slow["expert"] == pytest.approx(2 * plain["expert"])
    assert slow["matrix"] == plain["matrix"]
    inside = {"tp": 1, "dp": 16}
    assert seconds(replace(FREE, alltoall_exchange=2.0), **inside) == seconds(FREE, **inside)


def test_a_copy_a_node_is_fewer_bytes_than_a_copy_an_expert():
    copies, once = (seconds(FREE, dispatcher=name)["expert"] for name in ("alltoall", "deepep"))
    assert 0 < once < copies
    assert seconds(FREE)["expert"] == copies  # what software runs over EFA by itself
    assert seconds(None)["expert"] < seconds(None, dispatcher="alltoall")["expert"]


def test_an_overlap_is_off_on_or_the_software_s_own():
    hides = replace(FREE, alltoall_overlap=0.5)
    off, own, on = (seconds(hides, overlapped=how)["expert"] for how in ("off", None, "on"))
    assert off == own
    assert 0.5 * off <= on < off
    # On another network the software's own is its tuned recipe.
    off, own, on = (seconds(None, overlapped=how)["expert"] for how in ("off", None, "on"))
    assert own == on < off


@pytest.mark.parametrize("engine", ["analytic", "emulate"])
def test_both_engines_price_the_same_costs(engine):
    asked: dict[str, Any] = {
        **{"on": "p6-b300.48xlarge:4", "tp": 8, "expert_tp": 1, "ep": 32, "pp": 1, "cp": 1},
        **{"vpp": 1, "zero": 1, "micro_batch": 4, "global_batch": 32, "sequence": 4096},
        **{"recompute": "none", "schedule": "1f1b", "dispatcher": "uccl", "overlapped": "on"},
    }
    (found,) = trnbench.train("qwen3-235b-a22b", engine=engine, **asked)
    (plain,) = trnbench.train("qwen3-235b-a22b", **{**asked, "dispatcher": "alltoall"})
    (again,) = trnbench.train("qwen3-235b-a22b", **asked)
    assert found.step is not None
    assert plain.step is not None
    assert again.step is not None
    assert found.step.step_time_s == pytest.approx(again.step.step_time_s, rel=0.03)
    assert found.step.step_time_s > 1.1 * plain.step.step_time_s


REFUSED = [
    ("p5.48xlarge:4", {"dispatcher": "hybridep"}, "needs InfiniBand between nodes"),
    ("trn2.48xlarge:4", {"dispatcher": "deepep"}, "needs GPUs"),
    ("p5.48xlarge:4", {"overlapped": "on", "recompute": "full"}, "does not go with recompute"),
    ("p5.48xlarge:4", {"overlapped": "on", "pp": 2}, "needs model chunks"),
]


@pytest.mark.parametrize(("on", "asked", "reason"), REFUSED)
def test_what_a_dispatcher_needs_is_named(on, asked, reason):
    knobs = {"tp": 8, "pp": 1, "vpp": 1, "cp": 1, "ep": 2, "global_batch": 64, **asked}
    (answer,) = trnbench.train("mixtral-8x7b", on=on, assume_supported=True, **knobs)
    assert any(reason in one for one in answer.reasons)


def test_a_dispatcher_that_cannot_be_run_is_refused_whatever_the_layout():
    (answer,) = trnbench.train("mixtral-8x7b", on="trn2.48xlarge:4", ep=1, dispatcher="deepep")
    assert any("needs GPUs" in one for one in answer.reasons)


def test_a_loss_is_for_models_with_words():
    with pytest.raises(InputError, match="has no logits of words"):
        trnbench.train("dit-xl-2", on="p5.48xlarge", loss="fused")


def test_names_of_libraries_are_those_of_dispatchers():
    assert [dispatcher_named(name) for name in ("nccl", "nvshmem", "uccl")] == [
        *("alltoall", "deepep", "uccl")
    ]
    with pytest.raises(ValueError, match="not one of alltoall"):
        dispatcher_named("mpi")
    with pytest.raises(InputError, match="has no experts"):
        trnbench.train("llama3.1-8b", on="p5.48xlarge", dispatcher="deepep")


@pytest.mark.parametrize(
    ("on", "said", "told"),
    [
        ("dgx-h100", {"ep": 8}, ("deepep",)),
        ("p5.48xlarge", {"ep": 8}, ("alltoall",)),
        ("dgx-h100", {"ep": 8, "dispatcher": "alltoall"}, ()),
        ("dgx-h100", {"ep": 1}, ()),
    ],
)
def test_a_dispatcher_that_nobody_named_is_assumed(
    on: str, said: dict[str, Any], told: tuple[str, ...]
) -> None:
    ran: dict[str, Any] = {"tp": 1, "pp": 1, "dp": 8, "cp": 1, "micro_batch": 1, "zero": 1}
    (found,) = trnbench.train(
        "qwen3-30b-a3b", on=on, global_batch=64, recompute="full", **ran, **said
    )
    assert tuple(one.value for one in found.assumptions if one.name == "dispatcher") == told
