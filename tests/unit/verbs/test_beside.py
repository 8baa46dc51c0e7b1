"""Why a layout was chosen, and two layouts of a step term by term."""

from __future__ import annotations

from typing import Any

import pytest

from trnbench.errors import InputError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.show.text_table import Style
from trnbench.verbs.train.answer import OtherLayout
from trnbench.verbs.train.beside import memory_beside, time_beside, versus_block, why_lines
from trnbench.verbs.train.question import TrainQuestion
from trnbench.verbs.train.run import run

CATALOG = open_catalog(environment={})
GIVEN = {
    "model": "llama2-7b",
    "on": "p4d.24xlarge:4",
    "zero": "1",
    "sequence_parallel": "on",
    "global_batch": "64",
}


def asked(**more: str) -> TrainQuestion:
    return TrainQuestion.asked(CATALOG, {**GIVEN, **more})


@pytest.fixture(scope="module")
def pair() -> Any:
    return run(CATALOG, asked(tp="4", pp="2", vs="tp=8,pp=1"))


def test_the_other_layout_differs_in_the_knobs_that_are_named(pair):
    one, other = pair
    assert [(each.layout["tp"], each.layout["pp"]) for each in pair] == [(4, 2), (8, 1)]
    assert (one.label, other.label.partition(" ")[2]) == (
        "A: tp=4,pp=2,global_batch=64,zero=1,sequence_parallel=on",
        "tp=8,pp=1",
    )


def test_terms_add_up_to_the_difference(pair):
    one, other = pair
    more = sum(second - first for _, first, second in time_beside(one, other))
    assert more == pytest.approx(other.step.step_time_s - one.step.step_time_s)
    more = sum(second - first for _, first, second in memory_beside(one, other))
    assert more == pytest.approx(other.memory.total_bytes - one.memory.total_bytes, rel=1e-6)


def test_the_difference_is_told_in_a_sentence(pair):
    one, other = pair
    times = other.step.step_time_s / one.step.step_time_s
    word = "slower" if times > 1 else "faster"
    first = versus_block(one, other, Style(width=100)).splitlines()[0]
    assert first.startswith("B: tp=8,pp=1: ")
    assert f" % {word}: " in first


def test_a_chosen_layout_is_explained():
    answer: Any = run(CATALOG, asked())[0]
    simple, usual = answer.beside["simplest"], answer.beside["usual"]
    assert simple.times <= 1.03
    assert usual.times >= 1
    assert len(why_lines(answer)) == 2
    preferred: Any = run(CATALOG, asked(prefer="simple"))[0]
    assert preferred.layout == simple.layout
    assert preferred.step.step_time_s == pytest.approx(simple.times * answer.step.step_time_s)
    assert any("simplest within 3 %" in one.why for one in preferred.assumptions)


def test_reasons_in_words(pair):
    answer = replace(pair[0], layout=PartialLayout(tp=4, pp=2, cp=2, micro_batch=1, vpp=1, dp=4))
    step_s = answer.step.step_time_s
    usual = OtherLayout(
        layout=PartialLayout(tp=8, pp=4, micro_batch=1, vpp=1, dp=1, cp=1),
        times=1.07,
        more_s={"bubble": 0.05 * step_s, "tensor": 0.03 * step_s, "matrix": -0.01 * step_s},
    )
    told = why_lines(replace(answer, beside={"usual": usual, "simplest": usual}))
    assert told[1] == "that is the simplest within 3 %; --prefer simple takes it"
    assert told[0].startswith("tp 8, pp 4, as usual, would be 7 % slower: bubble +")
    assert "tensor +" in told[0]
    assert "matrix" not in told[0]
    same = OtherLayout(layout=answer.layout, times=1.0)
    told = why_lines(replace(answer, beside={"usual": same, "simplest": same}))
    assert told == [
        "it is the usual layout: the fewest pipeline stages that fit",
        "no simpler layout is within 3 % of it",
    ]
    chosen = replace(answer, beside={"simplest": same}, chosen=("tp", "cp"))
    assert why_lines(chosen)[0].startswith("no layout of the usual kind fits")
    assert len(why_lines(replace(chosen, chosen=("cp",)))) == 1


def test_no_reasons_are_given_where_nothing_was_chosen():
    given = {"tp": "4", "pp": "2", "dp": "4", "cp": "1", "ep": "1", "vpp": "1", "recompute": "none"}
    (answer,) = run(CATALOG, asked(**given, schedule="1f1b", micro_batch="1"))
    assert why_lines(answer) == []


@pytest.mark.parametrize("text", ["tp", "tp=", "tpp=8", "tp=three"])
def test_knobs_that_are_none_are_refused(text):
    with pytest.raises(InputError):
        asked(vs=text)


def test_two_steps_are_compared_and_no_runs():
    with pytest.raises(InputError, match="--vs compares two steps"):
        asked(vs="tp=8", tokens="1T")
