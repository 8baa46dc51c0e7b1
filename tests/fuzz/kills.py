"""Kills runs at random moments: what was kept stays, and nothing else is left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from trnbench.facts.catalog.whole_file import BESIDE

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TRNBENCH = (sys.executable, "-m", "trnbench")
OLD = b'{"old": "report"}\n'
TRAINING = (
    "train tiny-gpt --on trn1.2xlarge --tp 2 --global-batch 4 --sequence 16 --precision bf16-sr "
    "--engine functional --steps 60 --resume run --json"
)
WRITES = (
    "info --json -o out",
    "workload list --json -o out",
    "train tiny-gpt --on trn1.2xlarge --global-batch 8 --json -o out",
    "matrix 512x512x512 --on trainium1 --engine emulate --trace out",
)
LONGEST_RUN_S = 3.0


def killed(seed: int, folder: Path) -> str | None:
    """Kill a run of a seed in `folder`; return what is wrong with what it left, if anything is."""
    chance = random.Random(seed)
    number = chance.choice(SIGNALS)
    line = chance.choice(WRITES).split()
    (folder / "out").write_bytes(OLD)
    code, said = _run(line, folder, number, chance.uniform(0.0, LONGEST_RUN_S))
    if b"Traceback" in said and b"KeyboardInterrupt" not in said:
        return f"{line} {number.name}: {said[-300:]!r}"
    content = (folder / "out").read_bytes()
    if content != OLD:
        try:
            json.loads(content)
        except ValueError:
            return f"{line} {number.name}: half a report, {len(content)} bytes"
    if number != signal.SIGKILL and code not in (0, 1, 130, 128 + number, -number):
        return f"{line} {number.name}: exit code {code}: {said[-300:]!r}"
    return _left(folder, line, number)


def _left(folder: Path, line: Sequence[str], number: signal.Signals) -> str | None:
    # What nobody can clean up at SIGKILL, the next write beside it does.
    if number == signal.SIGKILL:
        _run(["info", "--json", "-o", "out"], folder, None, 0.0)
    left = [name for name in os.listdir(folder) if name.startswith(BESIDE)]
    return f"{line} {number.name}: left {left}" if left else None


def losses_after_kills(seed: int, folder: Path, kills: int) -> tuple[list[float], int]:
    """Return the losses of a training run that was killed and resumed, and how often it was."""
    chance = random.Random(seed)
    done = 0
    for _ in range(kills):
        before = _newest(folder)
        number = chance.choice(SIGNALS)
        code, _ = _run(TRAINING.split(), folder, number, chance.uniform(0.5, LONGEST_RUN_S))
        assert _newest(folder) >= before, f"a checkpoint was lost: {before}"
        done += code != 0
    code, said = _run(TRAINING.split(), folder, None, 0.0)
    assert code == 0, said
    answer = json.loads((folder / "stdout").read_bytes())
    left = [path.name for path in folder.rglob(f"{BESIDE}*")]
    assert not left, left
    return [row["loss"] for row in answer["rows"] if "loss" in row], done


def _newest(folder: Path) -> str:
    return max((path.name for path in (folder / "run").glob("step-*.npz")), default="")


def _run(
    line: Sequence[str], folder: Path, number: signal.Signals | None, after_s: float
) -> tuple[int, bytes]:
    """Run a line, send it a signal after a while if one is given; return exit code and stderr."""
    home = {f"XDG_{name}_HOME": str(folder / ".home") for name in ("DATA", "STATE", "CONFIG")}
    with (folder / "stdout").open("wb") as out:
        process = subprocess.Popen(
            [*TRNBENCH, *line],
            cwd=folder,
            env={**os.environ, **home},
            stdout=out,
            stderr=subprocess.PIPE,
        )
        if number is not None:
            try:
                process.wait(after_s)
            except subprocess.TimeoutExpired:
                process.send_signal(number)
        _, said = process.communicate()
    return process.returncode, said
