"""A session keeps what it heard, whatever ends the process that measures."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import pytest

from trnbench.errors import EnvironmentFault, InputError
from trnbench.evidence.columns import MEASURED_COLUMNS, measured_text
from trnbench.evidence.measure.session import run_session
from trnbench.evidence.measure.worker import WorkRequest
from trnbench.evidence.rows import parts_of, read_evidence
from trnbench.verbs.asking.use_case import never, quiet

REQUEST = WorkRequest(
    kinds=("matrix",),
    suite="quick",
    device="cpu",
    host_devices=2,
    budget_s=0.05,
    instance=None,
    seed=0,
)
DEVICES = {"event": "devices", "cells": {"backend": "cpu"}, "remarks": ["busy"]}
NEEDS_JAX = pytest.mark.skipif(find_spec("jaxlib") is None, reason="JAX is not installed")


def row(number):
    return {"event": "row", "cells": {"id": f"r{number}", "latency_ms": "1.0"}}


def session(*events, then="", cancel=never):
    """Run a process that tells of events, then does something."""
    lines = "".join(json.dumps(event) + "\n" for event in events)
    code = f"import sys, os, time; sys.stdin.read(); os.write(1, {lines.encode()!r}); {then}"
    worker = (sys.executable, "-c", code)
    return run_session(REQUEST, progress=quiet, cancel=cancel, worker=worker)


def test_rows_come_as_they_are_measured():
    found = session(DEVICES, row(1), row(2), {"event": "done"})
    assert [one["id"] for one in found.rows] == ["r1", "r2"]
    assert (found.stopped, found.device, found.remarks) == (None, {"backend": "cpu"}, ["busy"])


def test_a_process_that_is_killed_leaves_its_rows():
    found = session(DEVICES, row(1), then="os.kill(os.getpid(), 9)")
    assert found.stopped == "crash"
    assert len(found.rows) == 1
    assert "killed by signal 9" in found.remarks[-1]


def test_a_process_that_dies_at_once_is_an_error_with_its_last_words():
    with pytest.raises(EnvironmentFault, match="exit code 1: ImportError: no such thing"):
        session(then="raise ImportError('no such thing')")


def test_ctrl_c_keeps_the_rows_and_ends_the_process():
    asked = iter([False, False, False])
    found = session(DEVICES, row(1), then="time.sleep(60)", cancel=lambda: next(asked, True))
    assert found.stopped == "interrupt"
    assert len(found.rows) == 1


def test_what_the_process_refuses_is_raised_with_its_remedy():
    failed = {"event": "failed", "message": "no device", "hint": "install it", "exit_code": 3}
    with pytest.raises(EnvironmentFault, match="no device") as refused:
        session(failed)
    assert refused.value.hint == "install it"
    with pytest.raises(InputError):
        session({**failed, "exit_code": 2})


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_file_of_several_kinds_is_read_back_by_kinds(tmp_path, ending):
    shared = {"software": "x", "repeats": "5", "instance": "host-cpu", "source": "s"}
    rows = [
        {**shared, "kind": "matrix", "id": "a", "kernel": "matmul"},
        {**shared, "kind": "train", "id": "b", "step_time_s": "1.5", "hidden": "64"},
        {**shared, "kind": "collective", "id": "c", "collective": "all-reduce"},
        {**shared, "kind": "matrices", "id": "d"},
    ]
    path = tmp_path / f"m.{ending}"
    path.write_text(measured_text(rows, as_json=ending == "json"))
    file = read_evidence(path)
    parts = {part.set: part.rows for part in parts_of(file)}
    assert {name: [one.id for one in of] for name, of in parts.items()} == {
        "measured_kernels": ["a", "d"],
        "steps": ["b"],
        "trainium_collectives": ["c"],
    }
    assert parts["measured_kernels"][1].fault == (
        "kind: 'matrices' is not one of matrix, stream, launch, collective, train"
    )
    assert parts["steps"][0].positive("step_time_s") == 1.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "is not a JSON file of measured rows"),
        ('{"schema": "trnbench.measured/1", "rows": [{"a": 1}]}', "cells are not texts"),
    ],
)
def test_another_json_is_refused(tmp_path, text, said):
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_evidence(path)


def test_no_column_stands_twice():
    names = [column.name for column in MEASURED_COLUMNS]
    assert len(names) == len(set(names))


@pytest.mark.slow
@NEEDS_JAX
def test_the_budget_ends_a_session_of_real_measurements():
    found = run_session(REQUEST, progress=quiet, cancel=never)
    assert found.stopped == "budget"
    assert [one["kernel"] for one in found.rows] == ["program", "kernel"]
    assert all(float(one["latency_ms"]) > 0 for one in found.rows)
    assert found.device["backend"] == "cpu"
    assert "jax 0." in found.device["software"]
    assert "--xla_force_host_platform_device_count=2" in found.device["settings"]
    assert found.skipped[0] == ("fp32 M256 K256 N256", "the budget was spent")
