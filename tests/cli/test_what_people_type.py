"""Names, times and options as people type them: taken where they are clear, else refused in a line.

Each mistake below was typed by somebody; its answer names what, where and the remedy.
"""

from __future__ import annotations

import datetime
import json

import pytest

from trnbench.cli.option_groups import GROUPS, options_of
from trnbench.errors import InputError
from trnbench.facts.catalog.search import open_catalog, plain_name
from trnbench.facts.parsing import deadline, duration
from trnbench.facts.workload.layout import KNOBS
from trnbench.facts.workload.library import load_model
from trnbench.verbs.asking.names import understood
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.plan.question import PlanQuestion
from trnbench.verbs.train.question import TrainQuestion

DAY_S = 86400.0
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 16,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}
MODEL = "llama3.1-8b"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compare --gpu h100", "compare has no --gpu; write --on INSTANCE"),
        ("compare --instance p5", "compare has no --instance; write --on INSTANCE"),
        (f"train {MODEL} --on trn2 --mbs 2", "train has no --mbs; write --micro-batch N"),
        (f"train {MODEL} --on trn2 --gbs 64", "train has no --gbs; write --global-batch N"),
        (f"train {MODEL} --on trn2 --seq-len 8k", "train has no --seq-len; write --sequence N"),
        (f"train {MODEL} --on trn2 --lora", "train has no --lora; write --job lora"),
        (f"train {MODEL} --on trn2 --tensor_parallel=8", "write --tp N"),
        (f"train {MODEL} --on trn2 --nodes 4", "goes behind the instance: --on trn2.48xlarge:4"),
        (f"train {MODEL} --on trn2 --deadline 30d", "`trnbench plan MODEL --deadline 30d`"),
        ("compare --budget 2M", "`trnbench plan MODEL --budget 2M` keeps to it"),
        (f"plan --model {MODEL}", "the model is written first, without an option"),
        (f"train {MODEL} --on trn2 --tpp 3", "did you mean '--pp' or '--tp'?"),
        (
            f"compare {MODEL} --on trn2.48xlarge p5.48xlarge",
            "separate instances by commas: --on A,B",
        ),
        ("compare --on trn2.48xlarge p5.48xlarge", "the model goes first, then --on A,B"),
        ("comapre", "trnbench has no command 'comapre'; did you mean 'compare'?"),
        (f"train {MODEL} --on trn2 --tp", "--tp needs a value"),
        (f"train trn2.48xlarge --on {MODEL}", "it is a model, which goes first"),
        ("train trn2.48xlarge --on p5", "it is an instance type; the model goes first"),
        ("matrix 64x64x64 --on trn2.48xlarge", "it is an instance type; its chip: trainium2"),
        (f"train {MODEL} --on h100", "h100 is a chip; instances with it:"),
        ("compare --tokens 2000", "2,000 tokens are less than one step (1,024 x 8,192 = 8.389M"),
        ("compare --tokens lots", "--tokens: 'lots' is not a count; write e.g. 2T or 500B"),
        ("compare --discount 18", "write 18%"),
        ("compare --confidence 80", "write 80%"),
        ("compare --deadline 2020-01-01", "2020-01-01 is not in the future; name a later day"),
        ("compare --deadline 2027-13-40", "is not a date; write e.g."),
        ("compare --deadline 60", "'60' has no unit; expected e.g. 60d, 8w, 3mo or 36h"),
        ("compare --on trn2:4 --nodes 8", "--on says how many nodes; leave out --nodes"),
        ("compare --on p5,p5.48xlarge", "p5.48xlarge is named twice"),
        ("compare --on trn2 --region mars", "unknown region 'mars'"),
        ("plan --budget lots", "expected e.g. 5M or 5,000,000"),
        (f"train {MODEL} --on trn2 --precision int4", "known: auto-cast-bf16"),
        (f"launch {MODEL}", "launch needs --on and --with: MODEL --on INSTANCE:NODES"),
        ("spec new foo --like dgx-h100 --network 4x400G", "write 'Gbit/s' or 'GB/s'"),
        ("spec new foo --like dgx-h100 --network 4x400Gb/s", "does not say bit or byte"),
        (f"compare {MODEL} --on trn2 --mfu trn2=140%", "below 100%, found '140%'"),
        (f"train {MODEL} --on trn2 --sequence 8 k", "write a value with blanks in quotes"),
        ("validate steps.csv", "give measurements with --evidence steps.csv"),
        ("validate --measured steps.csv", "write --evidence FILE"),
        ("explain run.log", "run.log: no such file"),
        ("verify nosuch run.log", "nosuch: is not a folder; name the folder that `launch` wrote"),
        ("train ./nosuch/config.json --on trn2", "the file does not exist, or the folder has no"),
        (f"train {MODEL} --on trn2 --layout tp=8,xx=3", "`trnbench help options layout` lists"),
        ("--foo", "trnbench has no --foo; `trnbench --help` lists its options"),
    ],
)
def test_a_mistake_is_answered_by_what_to_write(run, line, said):
    done = run(*line.split())
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) <= 2


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Llama-3.1-70B", "llama3.1-70b"),
        ("meta-llama/Llama-3.1-70B", "llama3.1-70b"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama3.1-70b"),
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("mistralai/Mistral-7B-v0.3", "mistral-7b-v0.3"),
    ],
)
def test_a_model_is_known_by_the_name_its_owner_gives_it(typed, name):
    assert load_model(open_catalog(), typed).name == name


def test_no_two_models_or_instances_are_one_name_but_for_case_and_dashes():
    catalog = open_catalog()
    for section in ("models", "instances", "chips"):
        found: dict[str, str] = {}
        for name, (entry,) in catalog.users(section).items():
            assert found.setdefault(plain_name(name), entry.name) == entry.name


def test_a_configuration_of_hugging_face_is_a_model_wherever_one_is_named(run, tmp_path):
    folder = tmp_path / "My 3B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for path in (folder, folder / "config.json"):
        model = load_model(open_catalog(), str(path))
        assert model.name == "my-3b"
        assert model.transformer is not None
        assert model.transformer.layers == 16
    done = run("train", folder, "--on", "trn2:2", "--json", "--no-keep")
    assert done.code == 0
    assert done.json["inputs"]["cases"][0]["model"] == str(folder)  # asks the same again


def test_names_are_those_of_the_catalogue_and_the_answer_says_which(run):
    options = TrainQuestion.options()
    given = {"model": MODEL, "on": "p5:4, TRN2", "stack": "p5=nemo-hopper", "tp": "8"}
    read, taken = understood(options, given, open_catalog())
    assert read == {
        "model": MODEL,
        "on": "p5.48xlarge:4,trn2.48xlarge",
        "stack": "p5.48xlarge=nemo-hopper",
        "tp": "8",
    }
    assert taken == {"p5.48xlarge": "p5", "trn2.48xlarge": "TRN2"}
    done = run("train", "Llama-3.1-8B", "--on", "p5", "--tp", "8", "--no-keep")
    assert "p5 = p5.48xlarge" in done.out.splitlines()


def test_a_number_of_nodes_behind_an_instance_is_the_size_of_that_row():
    catalog = open_catalog()
    asked = {"model": MODEL, "tokens": "1T", "on": "trn2:24,p5:16"}
    both = CompareQuestion.asked(catalog, asked)
    assert both.run.instances == ("trn2.48xlarge", "p5.48xlarge")
    assert both.run.counts_of("trn2.48xlarge") == (24,)
    assert both.by_nodes
    assert both.said()["on"] == "trn2.48xlarge:24,p5.48xlarge:16"
    one = CompareQuestion.asked(catalog, {**asked, "on": "trn2:24,p5"})
    assert not one.by_nodes  # the other is as large as the deadline asks
    assert one.run.counts_of("p5.48xlarge") == tuple(2**power for power in range(10))
    assert CompareQuestion.asked(catalog, one.said()) == one


def test_plan_takes_what_compare_takes_where_nothing_is_said():
    catalog = open_catalog()
    plan, compare = (kind.asked(catalog, {}) for kind in (PlanQuestion, CompareQuestion))
    assert plan.run == compare.run
    assert plan.assumed == compare.assumed
    assert [name for name, _ in plan.assumed] == ["model", "tokens", "on"]


@pytest.mark.parametrize(
    ("text", "days"),
    [("60d", 60), ("60 days", 60), ("8w", 56), ("8 weeks", 56), ("3mo", 90), ("1 month", 30)],
)
def test_a_time_is_in_days_weeks_or_months_of_thirty_days(text, days):
    assert duration("--deadline")(text) == days * DAY_S
    assert deadline("--deadline")(f"{text}+2w") == (days + 14) * DAY_S


def test_a_deadline_may_be_a_date():
    today = datetime.datetime.now(tz=datetime.UTC).date()
    later = today + datetime.timedelta(days=40)
    assert deadline("--deadline")(later.isoformat()) == 40 * DAY_S
    assert deadline("--deadline")(f"{later}-10d") == 30 * DAY_S
    with pytest.raises(InputError, match="not in the future"):
        deadline("--deadline")(today.isoformat())


def test_knobs_in_one_text_are_those_of_the_single_options():
    catalog = open_catalog()
    asked = {"model": MODEL, "on": "trn2:4"}
    alone = TrainQuestion.asked(catalog, {**asked, "tp": "8", "pp": "4", "micro_batch": "2"})
    for text in ("tp=8,pp=4,micro-batch=2", "tp=8, pp=4, mbs=2"):
        assert TrainQuestion.asked(catalog, {**asked, "layout": text}) == alone
    both = {**asked, "layout": "tp=8,pp=4", "tp": "4"}
    with pytest.raises(InputError, match="--layout and --tp differ"):
        TrainQuestion.asked(catalog, both)
    with pytest.raises(InputError, match="names 'warp', which is not a knob"):
        TrainQuestion.asked(catalog, {**asked, "layout": "warp=9"})


@pytest.mark.parametrize("group", GROUPS)
def test_options_are_listed_by_what_they_are_about(run, group):
    done = run("help", "options", group)
    assert done.code == 0
    assert all(option.flag in done.out for option in options_of(group))
    assert options_of(group)


def test_every_knob_is_in_one_group():
    groups = [{o.name for o in options_of(name)} for name in ("layout", "jobs", "adapters", "rl")]
    assert all(sum(knob in group for group in groups) == 1 for knob in KNOBS)


def test_a_file_of_rows_has_twenty_columns_unless_all_are_asked_for(run):
    line = ("train", MODEL, "--on", "trn2", "--tp", "8", "--no-keep", "--format", "csv")
    few = run(*line).out.splitlines()[0].split(",")
    every = run(*line, "--all-columns").out.splitlines()[0].split(",")
    assert len(few) == 20
    assert {*few} < {*every}
    refused = run(*line[:-1], "json", "--all-columns")
    assert (refused.code, "has every column" in refused.err) == (2, True)
