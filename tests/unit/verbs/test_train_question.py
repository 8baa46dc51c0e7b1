"""What `train` is asked: options that are for nothing, cases, runs, and configurations."""

from __future__ import annotations

import datetime

import pytest

from trnbench.errors import InputError
from trnbench.facts.catalog.search import open_catalog
from trnbench.verbs.asking.command_lines import command_question
from trnbench.verbs.asking.configuration import CURRENT, Configuration, Configured
from trnbench.verbs.train.functional import train_functional
from trnbench.verbs.train.question import TrainQuestion
from trnbench.verbs.train.run import train

CATALOG = open_catalog(environment={})
STEP = {"model": "llama2-7b", "on": "trn1.32xlarge:4"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"steps": 3}, "--steps belongs to a run with real numbers"),
        ({"resume": "runs"}, "--resume belongs to a run with real numbers"),
        ({"assume_price": ["a=2x b"]}, "--assume-price is for the bill of a run"),
        ({"discount": "10%"}, "--discount is for the bill of a run"),
        ({"tokens": "1B", "engine": "functional"}, "leave out --tokens"),
        ({"seed": 0}, "--seed acts on the played schedule"),
        ({"straggler": "0=2", "engine": "functional"}, "--straggler acts on the played"),
        ({"straggler": "two", "engine": "emulate"}, "write STAGE=FACTOR"),
        ({"suite": "trn1"}, "one of the two"),
        ({"on": ""}, "on which instance"),
        ({"tokens": "1B", "memory": True}, "a run has a step for each part"),
        ({"tokens": "1B", "price": "p5.48xlarge=1"}, "not among --on"),
        ({"tokens": "1B", "samples": "1K"}, "give one of"),
    ],
)
def test_options_that_would_be_for_nothing_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        TrainQuestion.asked(CATALOG, STEP | given)


@pytest.mark.parametrize("given", [{"on": "trn1.32xlarge"}, {"tp": 8}, {"lnc": 1}])
def test_a_suite_brings_its_own_places(given):
    with pytest.raises(InputError, match="a suite brings its own places"):
        train.request(suite="trn1", **given)
    asked = train.request(suite="trn1")
    assert [case.label for case in asked.cases] == [case.label for case in asked.of_suite]
    assert len({case.label for case in asked.cases}) == len(asked.cases) > 1
    assert command_question("train", asked).line == "trnbench train --suite trn1"


def test_a_run_of_several_places_may_have_prices_of_any():
    asked = train.request(
        "llama2-7b",
        **{"on": "trn1.32xlarge:4,trn2.48xlarge", "tokens": "1B", "tp": 8},
        **{"price": ["trn2.48xlarge=9", "p5.48xlarge=1?"], "price_date": "2026-11-21"},
    )
    runs = [(run.instances, run.nodes, run.layout["tp"]) for run in asked.runs]
    assert runs == [(("trn1.32xlarge",), (4,), 8), (("trn2.48xlarge",), (1,), 8)]
    assert {run.bought.prices for run in asked.runs} == {("trn2.48xlarge=9",)}
    assert asked.inputs()["price_date"] == "2026-11-21"
    assert TrainQuestion.asked(CATALOG, asked.said()) == asked


def test_a_step_has_no_purchase_to_say_again():
    asked = train.request(**STEP, seed=0, engine="emulate", straggler=["1=1.5"])
    assert "price_date" not in {**asked.inputs(), **asked.said()}
    assert TrainQuestion.asked(CATALOG, asked.said()) == asked
    line = command_question("train", asked).line
    assert line.endswith("--engine emulate --seed 0 --straggler 1=1.5")


def test_the_usual_purchase_counts_for_a_run_and_not_for_a_step():
    region = Configured(value="us-east-2", said="us-east-2", origin="trnbench.toml")
    token = CURRENT.set(Configuration(files=(), values={"region": region}))
    try:
        assert train.request(**STEP).bought.region is None
        assert train.request(**STEP, tokens="1B").bought.region == "us-east-2"
        asked = train.request(**STEP, tokens="1B", region="us-west-2")
        assert asked.bought.region == "us-west-2"
    finally:
        CURRENT.reset(token)


def test_a_configuration_says_knobs_and_hosts_unless_they_are_given(tmp_path):
    file = tmp_path / "job.sbatch"
    file.write_text(
        "#!/bin/bash\n#SBATCH --nodes=4\ntorchrun --nproc_per_node=32 pretrain_gpt.py "
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 --seq-length 4096\n"
    )
    told = train.request("llama2-7b", on="trn1.32xlarge", config=file)
    assert told.places == (("trn1.32xlarge", 4),)
    assert (told.layout["tp"], told.layout["pp"]) == (8, 2)
    assert told.inputs()["config"] == str(file)
    assert "config" not in told.said()
    own = train.request("llama2-7b", on="trn1.32xlarge:2", config=str(file), tp=4)
    assert own.places == (("trn1.32xlarge", 2),)
    assert (own.layout["tp"], own.layout["pp"]) == (4, 2)


def test_real_numbers_are_trained_on_one_place():
    asked = train.request("tiny-gpt", on="trn1.2xlarge", engine="functional", steps="7", tp=2)
    functional = asked.functional
    assert functional == train_functional.request("tiny-gpt", on="trn1.2xlarge", steps=7, tp=2)
    assert (functional.steps, functional.seed, functional.place[1]) == (7, 0, 1)
    two = train.request("tiny-gpt", on="trn1.2xlarge:1,trn1.32xlarge", engine="functional")
    with pytest.raises(InputError, match="one model on one place"):
        _ = two.functional
    with pytest.raises(InputError, match="train_functional"):
        train("tiny-gpt", on="trn1.2xlarge", engine="functional")


def test_prices_are_of_today_unless_dated():
    asked = train.request(**STEP, tokens="1B")
    assert asked.bought.price_date == datetime.datetime.now(tz=datetime.UTC).date()
