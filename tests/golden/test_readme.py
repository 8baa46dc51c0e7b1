"""The README keeps its word: its captures are real output, and its table of errors is computed."""

from __future__ import annotations

import doctest
import math
import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.golden.documents import README, check, text_of_all
from tests.validation import test_collective_evidence as collectives
from tests.validation import test_kernel_ladder as kernels
from trnbench.cli.main import main
from trnbench.engines.emulate.tensor_engine.matrix import run_matrix
from trnbench.program.matrix import matrix_product
from trnbench.show.text_table import TextTable, markdown

CAPTURE = re.compile(r"```console\n\$ (?P<command>[^\n]+)\n(?P<shown>.*?)```", re.DOTALL)
CUT = "...\n"
"""Last line of a capture whose end is left out."""
TABLE = re.compile(r"(?<=<!-- accuracy -->\n).*?(?=<!-- /accuracy -->)", re.DOTALL)


def captures():
    """Yield the commands; moving 1 GiB with real numbers and six types are slow."""
    for found in CAPTURE.finditer(text_of_all()):
        command = found["command"]
        slow = "--check" in command.split() or command.startswith("trnbench compare")
        yield pytest.param(command, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("command", captures())
def test_a_capture_is_what_the_command_prints(command, capfdbinary, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    first = command.startswith("trnbench compare")
    monkeypatch.setenv("COLUMNS", "80" if first else "100")
    assert main(shlex.split(command)[1:]) == 0
    out = capfdbinary.readouterr().out.decode()
    assert not first or max(map(len, f"$ {command}\n{out}".splitlines())) <= 80
    (found,) = [m for m in CAPTURE.finditer(text_of_all()) if m["command"] == command]
    if found["shown"].endswith(CUT):
        out = "".join(out.splitlines(keepends=True)[: found["shown"].count("\n") - 1]) + CUT
    check(found[0], f"```console\n$ {command}\n{out}```")


@pytest.mark.slow
def test_the_tutorial_runs_as_it_stands(tmp_path):
    text = text_of_all()
    (part,) = re.findall(r"<!-- tutorial -->(.*?)<!-- /tutorial -->", text, re.DOTALL)
    lines = "".join(re.findall(r"```sh\n(.*?)```", part, re.DOTALL))
    verbs = set(re.findall(r"^trnbench (\w+)", lines, re.MULTILINE))
    assert {"workload", "train", "compare", "calibrate", "plan", "explain", "launch"} <= verbs
    started = f'trnbench() {{ "{sys.executable}" -m trnbench "$@"; }}\nset -e\n'
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}
    environment["PYTHONPATH"] = str(README.parent)
    done = subprocess.run(
        ["bash", "-c", started + lines],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "training-ours fitted to 3 measured steps" in done.stdout
    assert "speed measured, stack ours" in done.stdout
    assert "run, my-3b on trn1.32xlarge:4: slower than predicted by" in done.stdout
    assert (tmp_path / "job" / "job.sbatch").is_file()
    assert not (tmp_path / "data").exists() or not list((tmp_path / "data").rglob("*.toml"))


@pytest.mark.slow
def test_a_cluster_of_ones_own_takes_the_commands_that_are_shown(
    capfdbinary, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    blocks = re.findall(r"```sh\n(.*?)```", text_of_all(), re.DOTALL)
    (shown,) = [block for block in blocks if "spec new" in block]
    for line in shown.splitlines():
        assert main(shlex.split(line)[1:]) == 0
    assert b"carried over from dgx-h100" in b" ".join(capfdbinary.readouterr().out.split())


@pytest.mark.slow
def test_the_table_of_errors_is_current():
    table = TextTable(
        headings=("what", "measured by", "error"),
        rows=(*_kernel_rows(), *_collective_rows()),
        right=(False, False, True),
    )
    (found,) = TABLE.finditer(text_of_all())
    check(
        f"<!-- accuracy -->\n{found[0]}<!-- /accuracy -->",
        f"<!-- accuracy -->\n{markdown(table)}\n<!-- /accuracy -->",
    )


def _kernel_rows():
    for row in kernels.LADDER:
        ran = kernels.product(row)
        chip, number_format, kernel = kernels.chip(ran.chip), ran.number_format, ran.kernel
        product = matrix_product(*ran.shape, format_a=number_format)
        closed = ran.time_s(chip)
        played = run_matrix(product, chip, kernel=kernel).time_s
        errors = [time_s / kernels.seconds(row) - 1 for time_s in (closed, played)]
        what = f"{ran.chip}, one core, {number_format} 4096x8192x8192, {kernel} kernel"
        by = f"{1e3 * kernels.seconds(row):.2f} ms (`{row}`)"
        yield what, by, f"{100 * errors[0]:+.1f} % closed form, {100 * errors[1]:+.1f} % played"


def _collective_rows():
    trn1 = collectives.large(collectives.trainium_rows(), "nd-allr64-2n")
    error = collectives.geometric_error(trn1)
    yield "trn1.32xlarge, all-reduce over 64 ranks, 1 MiB up", _rows(trn1), _mean(error)
    for name, (_, prefix) in collectives.GPU_SWEEPS.items():
        rows = collectives.large(collectives.gpu_rows(), prefix)
        error = collectives.geometric_error(rows)
        yield f"{name}, 1 MiB up", _rows(rows), _mean(error)


def _rows(rows):
    return f"{len(rows)} sizes (`{os.path.commonprefix([row.id for row in rows]).rstrip('-')}`)"


def _mean(error):
    assert math.isfinite(error)
    return f"{100 * error:.1f} % geometric mean"


def test_the_python_example_gives_what_it_shows():
    example = re.search(r"```pycon\n(.*?)```", text_of_all(), re.DOTALL)
    assert example
    test = doctest.DocTestParser().get_doctest(example[1], {}, "README", str(README), 0)
    assert doctest.DocTestRunner().run(test) == doctest.TestResults(failed=0, attempted=5)


def test_the_readme_is_short():
    text = README.read_text()
    assert len(text.splitlines()) <= 220
    assert len(text.encode()) <= 14_000
