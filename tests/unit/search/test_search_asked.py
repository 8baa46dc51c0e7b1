"""Knobs that a search chooses only where it is asked to."""

from typing import Any

import pytest

from tests.steps import step_prices
from tests.unit.search.test_search import adds_up, everything, question
from trnbench.engines.analytic.step.memory import memory
from trnbench.errors import InputError
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import KNOBS
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.facts.workload.pipeline_layout import lighter_ends, stages_of, written
from trnbench.program.step import training_step
from trnbench.verbs.asking.command_lines import command_question
from trnbench.verbs.calibrate.run import calibrate
from trnbench.verbs.explain.run import explain
from trnbench.verbs.search_layouts.run import search_layouts
from trnbench.verbs.train.functional import train_functional
from trnbench.verbs.train.question import TrainQuestion
from trnbench.verbs.train.run import train

FEW = {"tp": 4, "schedule": "1f1b", "zero": 1, "recompute": "none", "cp": 1}
NEMO: dict[str, Any] = {"stack": "nemo-hopper", "batch": 16, "sequence": 4096, "nodes": (2,)}
ASKED = {
    "shard": question("llama2-7b", "p5.48xlarge", **NEMO, fixed={**FEW, "zero": None, "pp": 1}),
    "recompute": question("llama2-7b", "p5.48xlarge", **NEMO, fixed=FEW),
    "stage_split": question("llama2-7b", "p5.48xlarge", **NEMO, fixed=FEW),
    "pipeline_layout": question(
        "llama2-7b", "p5.48xlarge", **NEMO, fixed={**FEW, "schedule": None, "micro_batch": 1}
    ),
    "context_parallel": question(
        "llama2-7b", "p5.48xlarge", **NEMO, fixed={**FEW, "cp": None, "pp": 1, "tp": 1}
    ),
    "expert_tp": question(
        "mixtral-8x7b", "p5.48xlarge", **NEMO, fixed={**FEW, "pp": 2, "tp": None}
    ),
}
VALUES: dict[str, list[Any]] = {
    # 64 ranks with tp 4: groups of data ranks that are neither one nor all of them.
    "shard": [None, 2],
    "recompute": ["none", "norms", "activations", "norms,activations", "full"]
    + [f"full:{n}" for n in (1, 2, 3, 4, 6, 8, 12, 16, 24)],
    "stage_split": ["layers", "layers-and-ends", "work"],
    "context_parallel": ["ring", "all-to-all", "hybrid:2", "hybrid:4", "hybrid:8"],
    "expert_tp": [None, 1, 2, 4],
}


def asked_for(name):
    asked = ASKED[name]
    return replace(asked, layout=asked.layout.changed(**{name: "any"}))


def by_hand(asked, layout):
    """Return time and memory of one layout, from a program of its own."""
    program = training_step(asked.model, layout)
    assert program.legal, program.refusals()
    held = memory(
        program,
        asked.platform,
        fragmentation_ratio=asked.stack.fragmentation,
        overheads=asked.stack.memory,
    )
    prices = step_prices(program, asked.platform, asked.efficiency, asked.collectives)
    return float(prices.time().time_s), float(held.total_bytes)


@pytest.mark.parametrize("name", ASKED)
def test_a_found_layout_read_back_by_hand_takes_the_same_time(name):
    asked = asked_for(name)
    result, found = everything(asked)
    assert adds_up(result.tally)
    assert {getattr(layout, name) for _, layout in found} - {getattr(asked.completed, name)}
    every = list(found.items())
    for (_, layout), seconds in every[:: max(len(every) // 10, 1)]:
        assert by_hand(asked, layout)[0] == pytest.approx(seconds, rel=1e-9)
    for one in result.ranked[:5]:
        assert by_hand(asked, one.layout) == pytest.approx((one.step_time_s, one.memory_bytes))


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_asking_finds_what_each_value_given_by_hand_finds(name):
    asked = asked_for(name)
    _, found = everything(asked)
    times: dict[Any, float] = {}
    for value in VALUES[name]:
        one = replace(asked, layout=ASKED[name].layout.changed(**{name: value}))
        for key, seconds in everything(one)[1].items():
            times.setdefault(key, seconds)
    for key, seconds in found.items():
        assert times[key] == pytest.approx(seconds, rel=1e-9)
    assert min(times.values()) == pytest.approx(min(found.values()), rel=1e-9)
    # What is not found beside is the same program under another name.
    programs = {(round(seconds, 12)) for seconds in found.values()}
    assert {round(seconds, 12) for seconds in times.values()} <= programs


def test_no_layout_is_found_under_two_names():
    for name in ("shard", "stage_split", "expert_tp"):
        _, found = everything(asked_for(name))
        told: dict[Any, list[Any]] = {}
        for (_, layout), seconds in found.items():
            degrees = (layout.tp, layout.pp, layout.cp, layout.dp, layout.ep, layout.vpp)
            key = (*degrees, layout.micro_batch, layout.zero, layout.schedule)
            told.setdefault((key, round(seconds, 12)), []).append(getattr(layout, name))
        assert all(len(names) == 1 for names in told.values()), name


def test_a_cluster_of_many_stages_takes_lighter_ends():
    # 4 stages share 32 layers: with 1 less first and 2 less last 35 / 4 leave 3 over.
    assert lighter_ends(32, 4, 0, 0) == (8, 8, 8, 8)
    assert lighter_ends(30, 4, 1, 1) == (7, 8, 8, 7)
    assert lighter_ends(31, 4, 0, 2) == (8, 8, 9, 6)
    assert lighter_ends(32, 4, 1, 2) is None
    assert lighter_ends(126, 128, 1, 1) == (0, *[1] * 126, 0)
    assert lighter_ends(3, 8, 1, 1) is None
    for stages in ((7, 8, 8, 7), (0, 1, 0)):
        assert stages_of(written(stages)) == stages


def test_asking_for_one_knob_counts_more_layouts_and_never_loses_the_best():
    plain, _ = everything(ASKED["pipeline_layout"])
    more, _ = everything(asked_for("pipeline_layout"))
    assert more.legal > plain.legal
    assert more.best is not None
    assert plain.best is not None
    assert more.best.step_time_s <= plain.best.step_time_s
    assert {one.layout.vpp for one in more.ranked} != {1} or more.best.layout.vpp == 1


def test_what_a_stack_refuses_is_refused_with_the_reason():
    (answer,) = train(
        "llama2-7b", on="trn1.32xlarge:2", stack="optimum-neuron", pipeline_layout="any"
    )
    assert answer.step is None
    assert "does not run pipeline layout" in answer.reasons[0]


def test_too_many_programs_are_one_line():
    several = (name for name, knob in KNOBS.items() if knob.on_request and name != "expert_tp")
    given: dict[str, Any] = {"global_batch": 1024, "sequence": 8192, "precision": "bf16-master"}
    given |= {"stack": "nemo-hopper", **dict.fromkeys(several, "any")}
    with pytest.raises(InputError, match="programs, at most"):
        search_layouts(model="llama3.1-405b", instance="p5.48xlarge", nodes=64, **given)


def test_any_of_a_knob_that_is_searched_anyway_changes_nothing():
    given: dict[str, Any] = {"on": "trn1.32xlarge:2", "global_batch": 64, "zero": 1}
    (plain,) = train("llama2-7b", **given)
    (asked,) = train("llama2-7b", tp="any", **given)
    assert asked.layout == plain.layout
    assert asked.step == plain.step


@pytest.mark.parametrize("verb", ["functional", "explain", "calibrate"])
def test_any_is_refused_where_nothing_is_searched_for(verb, tmp_path):
    log = tmp_path / "run.log"
    log.write_text("step 1 | step time: 18.5 s\n" * 20)
    where: dict[str, Any] = {"on": "trn1.2xlarge", "recompute": "any"}
    asked = {
        "functional": lambda: train_functional("tiny-gpt", **where),
        "explain": lambda: explain(log, model="tiny-gpt", **where),
        "calibrate": lambda: calibrate(log, model="tiny-gpt", stack="ours", **where),
    }
    with pytest.raises(InputError, match="--recompute any: nothing is searched for here"):
        asked[verb]()


def test_a_command_line_repeats_what_was_asked_for():
    layout = PartialLayout(shard="any", tp=8, recompute="any", pp="any")
    assert layout.wanted == ("shard", "recompute")
    assert layout.said == {"tp": 8, "shard": "any", "recompute": "any"}
    assert layout.changed(shard=4).wanted == ("recompute",)
    assert set(layout.wanted) < set(layout.open)
    asked = TrainQuestion(model="tiny-gpt", places=(("trn1.2xlarge", 1),), layout=layout)
    line = command_question("train", asked).line
    assert line == "trnbench train tiny-gpt --on trn1.2xlarge --tp 8 --shard any --recompute any"
