"""`trnbench workload`: lists, sheets, and models made from Hugging Face configurations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return path


def test_list_names_models_and_suites(run):
    names = {(r["section"], r["name"]) for r in run("workload", "list", "--json").json["rows"]}
    assert {("models", "llama2-7b"), ("matrix", "square"), ("training", "trn1")} <= names


def test_show_counts_parameters(run):
    done = run("workload", "show", "mixtral-8x7b")
    assert "46,702,792,704" in done.out
    assert "active for a token" in done.out
    summary = run("workload", "show", "llama-2-7b", "--json").json["summary"]
    assert summary["parameters"]["total"] == 6_738_415_616


def test_a_name_that_fits_two_suites_asks_which(run):
    done = run("workload", "show", "trn1")
    assert done.code == 2
    assert "write collective/trn1 or training/trn1" in done.err
    assert run("workload", "show", "training/trn1").code == 0


def test_an_imported_model_is_shown_with_the_right_count(run, config, tmp_path):
    folder = tmp_path / "mine" / "models"
    folder.mkdir(parents=True)
    target = folder / "my-llama.toml"
    assert run("workload", "import", config, "-o", target).code == 0
    assert run("workload", "validate", target).code == 0
    shown = run("workload", "show", "my-llama", "--spec-dir", tmp_path / "mine", "--json").json
    assert shown["summary"]["parameters"]["total"] == 6_738_415_616
    printed = run("workload", "import", config, "--name", "my-llama")
    assert printed.out == target.read_text()


@pytest.mark.parametrize(
    ("change", "arguments", "said"),
    [
        ({}, (), "the model needs a name"),
        ({}, ("--name", "Bad Name"), "cannot name a model"),
        ({"model_type": "lama"}, ("--name", "x"), "unknown architecture 'lama'"),
        ({"hidden_size": "big"}, ("--name", "x"), "hidden_size"),
        ({"hidden_size": None}, ("--name", "x"), "hidden_size"),
        ({"num_hidden_layers": -1}, ("--name", "x"), "num_hidden_layers"),
    ],
)
def test_bad_configurations_are_refused_in_one_line(run, config, change, arguments, said):
    config.write_text(json.dumps({**LLAMA, **change}))
    done = run("workload", "import", config, *arguments)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""
    assert len([line for line in done.err.splitlines() if "hint:" not in line]) == 1


def test_every_fault_of_a_configuration_is_said(run, config):
    config.write_text(json.dumps({**LLAMA, "hidden_size": "big", "vocab_size": 0}))
    done = run("workload", "import", config, "--name", "x")
    assert done.code == 2
    assert "hidden_size: expected a whole number" in done.err
    assert "hint: also vocab_size: must be from 1" in done.err


def test_a_model_file_has_its_models_name(run, config, tmp_path):
    target = tmp_path / "a.toml"
    done = run("workload", "import", config, "--name", "b", "--output", target)
    assert (done.code, target.exists()) == (2, False)
    assert "--name b contradicts --output" in done.err


def test_no_config_file(run, tmp_path):
    done = run("workload", "import", tmp_path / "none.json", "--name", "x")
    assert (done.code, "no such file" in done.err) == (2, True)


def test_all_shipped_workloads_are_valid(run):
    assert run("workload", "validate", ROOT / "workloads").code == 0


def test_a_suite_that_names_nothing_known_is_faulty(run, tmp_path):
    folder = tmp_path / "matrix"
    folder.mkdir()
    text = (ROOT / "workloads/matrix/square.toml").read_text()
    (folder / "square.toml").write_text(text.replace('"trainium1"', '"trainium11"'))
    done = run("workload", "validate", folder)
    assert done.code == 2
    assert "chips[0]: unknown chip 'trainium11'; did you mean 'trainium1'?" in done.out
