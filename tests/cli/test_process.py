"""The command as a process: closed pipes, interrupts, bugs, colour and environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import ModuleType

import pytest
import typer

from trnbench import __main__ as process
from trnbench import __version__
from trnbench.cli.diagnostics import ExitCode, guarded
from trnbench.cli.main import main

TRNBENCH = [sys.executable, "-m", "trnbench"]


def test_version(run):
    assert run("--version").out == f"trnbench {__version__}\n"


@pytest.mark.parametrize("arguments", [("spec",), ("--help",), ("spec", "show", "-h")])
def test_help_goes_to_stdout(run, arguments):
    done = run(*arguments)
    assert (done.code, done.err) == (0, "")
    assert "Usage: trnbench" in done.out


def test_help_documents_the_exit_codes(run):
    assert "2 malformed input; 3 environment" in " ".join(run("--help").out.split())


def test_a_closed_pipe_is_no_error():
    # 2>&1 into the same closed pipe: not even the last flush may complain.
    command = f"{sys.executable} -m trnbench spec list | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("section")


def test_info_names_folders_and_what_was_found(run):
    facts = run("info", "--json").json["summary"]
    assert facts["user_folder"].endswith("trnbench")  # told before it is made
    assert facts["trnbench"] == __version__
    assert facts["folders"][-1]["origin"] == "built in"
    assert facts["found"]["chips"] >= 8


def test_an_interrupt_is_130(capsys):
    def interrupt():
        raise KeyboardInterrupt

    assert guarded(interrupt, debug=False) == 130
    assert guarded(lambda: (_ for _ in ()).throw(typer.Abort()), debug=False) == 130
    assert capsys.readouterr().err == "trnbench: interrupted\n" * 2


def test_an_interrupted_command_says_so(capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("trnbench.verbs.info.run.info", interrupt)
    assert main(["info"]) == 130
    assert capsys.readouterr().err == "trnbench: interrupted\n"


def test_our_own_bug_is_70_and_has_a_traceback_only_on_request(capsys, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("trnbench.verbs.info.run.info", broken)
    assert main(["info"]) == 70
    quiet = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: oops" in quiet
    assert "Traceback" not in quiet
    assert main(["--debug", "info"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_running_out_of_memory_is_said(capsys, monkeypatch):
    def greedy(*_):
        raise MemoryError

    monkeypatch.setattr("trnbench.verbs.info.run.info", greedy)
    assert main(["info"]) == 3
    assert "not enough memory" in capsys.readouterr().err


@pytest.mark.slow
def test_colour_only_on_a_terminal_and_not_against_the_users_will():
    script = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    command = [sys.executable, "-c", script, *TRNBENCH, "spec", "list"]
    plain = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"}
    coloured = subprocess.run(
        command, capture_output=True, check=True, env=plain, stdin=subprocess.DEVNULL
    )
    assert b"\x1b[1m" in coloured.stdout
    for setting in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        done = subprocess.run(
            command, capture_output=True, check=True, env=plain | setting, stdin=subprocess.DEVNULL
        )
        assert b"\x1b" not in done.stdout


def test_a_path_variable_that_leads_nowhere(run, monkeypatch):
    monkeypatch.setenv("TRNBENCH_SPEC_PATH", "/no/such/folder")
    done = run("spec", "list")
    assert done.code == 2
    assert "TRNBENCH_SPEC_PATH: '/no/such/folder' is not a folder" in done.err


def test_completion_offers_names_without_reading_files(monkeypatch, tmp_path):
    from trnbench.cli.derived_options import completes

    chips = tmp_path / "chips"
    chips.mkdir()
    (chips / "my-chip.toml").write_text("not even TOML")
    monkeypatch.setenv("TRNBENCH_SPEC_PATH", str(tmp_path))
    assert completes(("chips",))("my") == ["my-chip"]
    assert "trn2.48xlarge" in completes(("instances",))("trn2")
    monkeypatch.setenv("TRNBENCH_SPEC_PATH", "/no/such/folder")
    assert completes(("chips",))("my") == []


def test_json_is_one_object_with_the_documented_keys(run):
    for arguments in (("spec", "list"), ("workload", "list"), ("info",)):
        document = json.loads(run(*arguments, "--json").out)
        assert list(document) == ["schema", "version", "inputs", "rows", "summary"]


def test_an_interrupt_during_the_imports_is_one_too(monkeypatch):
    class Importing(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "trnbench.cli.main", Importing("trnbench.cli.main"))
    with pytest.raises(SystemExit) as ended:
        process.run()
    assert ended.value.code == ExitCode.INTERRUPTED
