"""Streams that are closed or break, signals that end, files that appear whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.terminal import Terminal
from trnbench.errors import EnvironmentFault
from trnbench.facts.catalog.whole_file import BESIDE, put_whole, write_whole

EVIDENCE = Path(__file__).parents[1] / "golden" / "validate_kernels.csv"
TRNBENCH = f"{sys.executable} -m trnbench"


def shell(line: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["bash", "-c", line], capture_output=True, check=False)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("info >&-", 0),
        ("--version >&-", 0),
        ("spec show nope 2>&-", 2),
        ("spec show nope >&- 2>&- <&-", 2),
        ("workload show llama3.1-70b --json | true; exit ${PIPESTATUS[0]}", 0),
        ("matrix 512x512x512 --on trainium2 2>&- | grep -q trainium2; exit ${PIPESTATUS[1]}", 0),
    ],
)
def test_streams_that_are_closed_or_break_change_no_answer(line, code):
    done = shell(f"{TRNBENCH} {line}")
    assert done.returncode == code
    assert done.stderr.count(b"\n") <= 3
    assert b"internal" not in done.stderr + done.stdout


@pytest.mark.parametrize("most", ["0.001%", "100000%"])
@pytest.mark.parametrize("reader", ["true", "head -n 1"])
def test_a_verdict_counts_though_nobody_reads_it(most, reader):
    line = f"{TRNBENCH} validate --evidence {EVIDENCE} -q --fail-above {most}"
    done = shell(f"{line} | {reader} >/dev/null; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (int(most == "0.001%"), b"")


def test_sigterm_is_an_interrupt_with_a_code_of_its_own(tmp_path):
    script = (
        "import os, signal, trnbench.verbs.info.run as asked\n"
        "asked.info = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"
        "import sys; sys.argv[1:] = ['info']\n"
        "from trnbench.__main__ import run; run()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr == b"trnbench: interrupted\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_for_a_file_and_then_comes(tmp_path, number):
    target = tmp_path / "out"
    target.write_text("old")
    came = []
    before = signal.signal(number, lambda *_: came.append(number))
    try:

        def write(file):
            file.write(b"new")
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            assert not came

        put_whole(target, write)
    finally:
        signal.signal(number, before)
    assert came == [number]
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "out"
    target.write_text("old")

    def broken(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        put_whole(target, broken)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_what_a_killed_process_left_is_swept_and_what_a_living_one_writes_is_not(tmp_path):
    names = []
    put_whole(tmp_path / "first", lambda file: names.extend(os.listdir(tmp_path)))
    (mine,) = names
    assert mine.startswith(BESIDE)
    ours, process, _ = mine.rsplit("-", 2)
    assert int(process) == os.getpid()
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], text=True,
                          capture_output=True, check=True).stdout.strip()  # fmt: skip
    (tmp_path / f"{ours}-{gone}-00").write_text("half")
    (tmp_path / f"{ours}-{os.getppid()}-00").write_text("under way")
    (tmp_path / f"{BESIDE}elsewhere-{gone}-00").write_text("of another machine")
    write_whole(tmp_path / "second", b"x")
    assert sorted(os.listdir(tmp_path)) == sorted(
        ["first", "second", f"{ours}-{os.getppid()}-00", f"{BESIDE}elsewhere-{gone}-00"]
    )


def test_nothing_follows_a_link_that_waits_where_a_file_begins(tmp_path, monkeypatch):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    monkeypatch.setattr("os.urandom", bytes)
    names = []
    put_whole(tmp_path / "first", lambda file: names.extend(os.listdir(tmp_path)))
    planted = next(name for name in names if name.startswith(BESIDE))
    (tmp_path / planted).symlink_to(precious)
    with pytest.raises(EnvironmentFault, match="File exists"):
        write_whole(tmp_path / "second", b"x")
    assert precious.read_text() == "precious"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_left_as_it_was(tmp_path, number):
    home = {f"XDG_{name}_HOME": str(tmp_path) for name in ("DATA", "STATE", "CONFIG", "CACHE")}
    environment = {**os.environ, **home, "HOME": str(tmp_path), "TERM": "xterm-256color"}
    terminal = Terminal([*TRNBENCH.split(), "tui"], environment, cwd=tmp_path)
    try:
        terminal.until(b"Compa")
        terminal.process.send_signal(number)
        assert terminal.ended() == 128 + number
        assert terminal.restored
        assert b"Traceback" not in terminal.written
        assert (tmp_path / "trnbench" / "tui.toml").is_file()
    finally:
        terminal.close()
