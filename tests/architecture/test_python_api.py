"""The Python API: verbs that are functions, typed, with examples, free of signals."""

from __future__ import annotations

import doctest
import gc
import importlib
import inspect
import pkgutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import trnbench
from trnbench import cli, verbs
from trnbench.cli.main import VERBS as COMMANDS
from trnbench.errors import InputError

VERBS = trnbench._VERBS
_SHARED = {"asking", "quotes"}
"""Folders of what several verbs share."""
CLUSTER = {
    **{"model": "llama2-7b", "instance": "trn1.32xlarge", "nodes": 1, "global_batch": 8},
    **{"sequence": 4096, "precision": "bf16-master"},
}


@pytest.mark.parametrize("before", [(700, 10, 10), (0, 10, 10), (2_000_000, 5, 5)])
def test_a_verb_leaves_the_collector_of_cycles_as_it_was(before):
    first, seen = gc.get_threshold(), []
    gc.set_threshold(*before)
    try:
        trnbench.search_layouts(**CLUSTER, progress=lambda *_: seen.append(gc.get_threshold()))
        with pytest.raises(InputError):
            trnbench.search_layouts(**{**CLUSTER, "nodes": 0})
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*first)
    assert {number for number, *_ in seen} == {max(before[0], 1_000_000) if before[0] else 0}


def test_every_module_of_verbs_holds_the_verb_of_its_name():
    folders = {module.name for module in pkgutil.iter_modules(verbs.__path__)}
    assert set(VERBS) <= folders <= {*VERBS, *COMMANDS, *_SHARED}


@pytest.mark.slow
@pytest.mark.parametrize("order", [VERBS, VERBS[::-1]], ids=["as listed", "from the last"])
def test_verbs_are_functions_before_and_after_any_import(order):
    code = (
        "import importlib, inspect, pkgutil, trnbench, trnbench.verbs\n"
        f"before = {{verb: getattr(trnbench, verb) for verb in {tuple(order)}}}\n"
        "for module in pkgutil.walk_packages(trnbench.verbs.__path__, 'trnbench.verbs.'):\n"
        "    importlib.import_module(module.name)\n"
        "for verb, function in before.items():\n"
        "    assert inspect.isfunction(function), verb\n"
        "    assert getattr(trnbench, verb) is function, verb"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_package_imports_nothing_heavy():
    code = "import sys; import trnbench; assert 'numpy' not in sys.modules; dir(trnbench)"
    subprocess.run([sys.executable, "-c", code], check=True)


PUBLIC = (
    *("matrix", "collective", "train", "compare", "plan", "fleet", "measure", "validate"),
    *("calibrate", "explain", "numerics", "claims", "search_layouts", "open_catalog"),
)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_a_function_of_the_package_itself(name):
    """Also after every module below is imported: no folder at the top takes the name."""
    assert inspect.isfunction(getattr(trnbench, name))
    assert name in trnbench.__all__
    assert find_spec(f"trnbench.{name}") is None


@pytest.mark.parametrize("name", sorted(trnbench.__all__))
def test_every_exported_name_is_there(name):
    assert getattr(trnbench, name) is not None
    assert name in dir(trnbench)


@pytest.mark.parametrize("verb", VERBS)
def test_the_example_of_a_verb_runs_without_touching_signals(verb):
    if verb == "measure" and find_spec("jaxlib") is None:
        pytest.skip("JAX is not installed")
    before = signal.getsignal(signal.SIGINT)
    found = doctest.DocTestFinder(recurse=False).find(getattr(trnbench, verb), verb, globs={})
    examples = [one for one in found if one.examples]
    assert examples, f"{verb} has no example"
    runner = doctest.DocTestRunner()
    for one in examples:
        said: list[str] = []
        runner.run(one, out=said.append)
        assert not said, "".join(said)
    assert signal.getsignal(signal.SIGINT) is before


def is_asked(verb):
    """Return whether command and function of a verb are both made of its question."""
    return find_spec(f"trnbench.verbs.{verb}") is not None


@pytest.mark.parametrize("verb", [verb for verb in VERBS if not is_asked(verb)])
def test_options_of_the_command_are_arguments_of_the_verb(verb):
    """Those that say where and how to print, or where to write, are the front's own."""
    command = importlib.import_module(f"trnbench.cli.{verb}_command")
    own = {"plot", "format", "output_format", "json", "output", "quiet", "spec_dir"}
    own |= {"context", "no_keep", "tag", "against", "fail_over", "details"}
    own |= {"report", "redact_prices", "plot_file"}
    other = {
        "compare": {"scaling", "scenario"},
        "train": {"steps", "resume"},
        "validate": {"fail_above", "template"},
        "launch": {"into", "force", "listed", "row"},
        "plan": {"into", "scheduler"},
    }
    offered = set(inspect.signature(getattr(command, verb)).parameters) - own
    renamed = {"names": "claim", "sets": "set"}
    wanted = {renamed.get(name, name) for name in offered - other.get(verb, set())}
    assert wanted <= set(inspect.signature(getattr(trnbench, verb)).parameters)


@pytest.mark.parametrize(
    ("verb", "arguments", "said"),
    [
        ("matrix", {"shapes": "8x8x8", "on": "trainium9"}, "did you mean"),
        ("matrix", {"shapes": "8x8x8", "on": "trainium2", "kernel": "blcked"}, "did you mean"),
        ("collective", {"op": "all-redcue", "on": "p5.48xlarge"}, "did you mean 'all-reduce'"),
        ("collective", {"op": "all-reduce", "on": "p5.48xlarge", "min_size": "1Gb"}, "--min-size"),
        ("validate", {"set": "gpus"}, "did you mean 'gpu'"),
        ("claims", {"claim": "nothing-of-the-kind"}, "unknown claim"),
        ("measure", {"kind": "matrx"}, "did you mean 'matrix'"),
        ("measure", {"kind": "matrix", "decoder": "tp=2"}, "measure all or train, not matrix"),
        ("calibrate", {"measurements": "a,b.csv"}, "^a,b.csv: no such file"),
        ("calibrate", {"measurements": Path("a.csv"), "start": "eager"}, "name it with --stack"),
        (
            "calibrate",
            {"measurements": "a.csv", "stack": "mine", "tp": "any"},
            "--tp any: nothing is searched for here",
        ),
        ("numerics", {"steps": 0}, "steps"),
        ("numerics", {"global_batch": 0}, "global_batch must be at least 1, found 0"),
        ("compare", {"model": "llama2-7b", "tokns": "1T"}, "did you mean 'tokens'"),
        ("plan", {"model": "llama2-7b", "tokens": "1T", "on": "trn9"}, "unknown"),
        ("train", {"model": "llama2-7b", "on": "trn1.32xlarge", "recompute": "ful"}, "'full'"),
        ("train", {"model": "llama2-7b", "on": "trn1.32xlarge", "tp": 0}, "--tp must be from 1"),
        ("search_layouts", {**CLUSTER, "recmpute": "full"}, "did you mean 'recompute'"),
        ("search_layouts", {**CLUSTER, "precision": "bf17"}, "unknown precision 'bf17'"),
    ],
)
def test_faults_are_input_errors(verb, arguments, said):
    with pytest.raises(InputError, match=said):
        getattr(trnbench, verb)(**arguments)


_FORKING = ("trnbench.verbs.quotes.searching", "trnbench.verbs.compare.run")


def test_the_command_line_owns_the_signals():
    assert cli.__name__ == "trnbench.cli"
    for module in pkgutil.walk_packages(verbs.__path__, "trnbench.verbs."):
        if module.name not in _FORKING:  # processes of their own, that ignore Ctrl-C
            source = inspect.getsource(importlib.import_module(module.name))
            assert "import signal" not in source, module.name
