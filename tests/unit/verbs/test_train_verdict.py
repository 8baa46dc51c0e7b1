"""The verdict on training steps: who is fastest, by how much, and what cannot run."""

from __future__ import annotations

import re

import pytest

from trnbench import train
from trnbench.facts.records import replace
from trnbench.verbs.quotes.verdict import MOST_WORDS, words_of
from trnbench.verbs.train.text import train_verdict

LAYOUT = {"tp": 8, "pp": 1, "cp": 1, "dp": 4, "zero": 1, "micro_batch": 1, "global_batch": 64}


@pytest.fixture(scope="module")
def answer():
    (found,) = train("llama2-7b", on="trn1.32xlarge:1", recompute="none", **LAYOUT)
    return found


def twice_as_slow(answer):
    step = replace(answer.step, step_time_s=2 * answer.step.step_time_s)
    return replace(answer, instance="p5.48xlarge", step=step)


def test_the_fastest_leads_and_the_next_is_named(answer):
    refused = replace(answer, step=None, reasons=("needs 1.3x of the memory",))
    text = train_verdict([twice_as_slow(answer), answer, refused])
    assert text.startswith("1 x trn1.32xlarge takes ")
    assert text.endswith("It is 2x as fast as 1 x p5.48xlarge. 1 of 3 cases cannot run.")
    for sentence in re.split(r"\. (?=[A-Z0-9])", text):
        assert words_of(sentence) <= MOST_WORDS


def test_what_cannot_run_says_why_where_it_is_short(answer):
    refused = replace(answer, step=None, reasons=("needs 1.3x of the memory",))
    said = "No: llama2-7b does not run on 1 x trn1.32xlarge"
    assert train_verdict([refused]) == f"{said}: needs 1.3x of the memory."
    long = replace(refused, reasons=(" ".join(["reason"] * 20),))
    assert train_verdict([long]) == f"{said} as asked."
