"""The measuring process: the only importer of JAX, reporting each row at once.

A separate process, because importing JAX fixes the number of host devices, and because rows already
reported survive a crash (memory, a driver). Reads a request as JSON from stdin, writes events as
JSON lines to stdout.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from trnbench.errors import TrnbenchError
from trnbench.evidence.measure import host
from trnbench.evidence.measure.chains import chains
from trnbench.evidence.measure.collectives import exchanges
from trnbench.evidence.measure.device import DeviceChoice, capabilities, open_devices
from trnbench.evidence.measure.kernels import launch, product, stream
from trnbench.evidence.measure.loops import AllDevices, Repeats
from trnbench.evidence.measure.rows import Cells, exchange_row, kernel_row, provenance, step_row
from trnbench.evidence.measure.suites import (
    MIB,
    OPERATIONS,
    DecoderSizes,
    Suite,
    SuiteName,
    suite_for,
    with_given,
)
from trnbench.evidence.measure.training import training
from trnbench.facts.records import Record

TellEvent = Callable[[Mapping[str, object]], None]
_FEWEST_S, _MOST_S = 0.1, 2.0
"""What is spent on repeats of one measurement, at least and at most."""
T = TypeVar("T")
_CHAINED = 2
"""Number of the suite's first decoders whose layer passes are timed alone."""
_REPEATING = 0.4
"""Share of a budget for repeats; compiling and drawing numbers take the rest."""


class WorkRequest(Record):
    """Kinds of work (of `suites.KINDS`) in a suite on devices, within a time budget."""

    kinds: tuple[str, ...]
    suite: SuiteName
    device: DeviceChoice
    host_devices: int
    budget_s: float
    instance: str | None
    seed: int
    decoders: tuple[DecoderSizes, ...] = ()
    """Decoders in place of the suite's."""


def work(request: WorkRequest, emit: TellEvent) -> None:
    """Run the requested measurements; emit every row, and skipped work with reasons."""
    begun = time.monotonic()
    devices = open_devices(request.device, request.host_devices)
    import jax

    can = capabilities(devices)
    suite = with_given(suite_for(can, request.suite), request.decoders, can)
    name = request.instance or instance_name(can.backend, can.chip)
    shared = provenance(can, instance=name, seed=request.seed)
    emit({"event": "devices", "cells": shared, "remarks": host.remarks(can.backend)})
    machine = AllDevices(jax=jax, devices=devices, can=can, rule=_paced(request, suite))
    launched = [kernel_row(kernel) for kernel in launch(machine)]
    for row in launched:
        emit({"event": "row", "cells": shared | row})
    launch_s = float(launched[0]["latency_ms"]) * 1e-3
    tasks = _tasks(machine, suite, request, launch_s)
    for done, (what, rows) in enumerate(tasks):
        left_s = request.budget_s - (time.monotonic() - begun)
        if left_s <= 0:
            emit({"event": "budget", "left": [left for left, _ in tasks[done:]]})
            return
        emit({"event": "next", "done": done, "total": len(tasks), "what": what})
        try:
            for row in rows():
                emit({"event": "row", "cells": shared | row})
        except (TrnbenchError, jax.errors.JaxRuntimeError, TypeError, ValueError) as error:
            reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            emit({"event": "skipped", "what": what, "reason": reason})


def instance_name(backend: str, chip: str | None) -> str:
    return f"host-{chip or backend}"


def _paced(request: WorkRequest, suite: Suite) -> Repeats:
    """Repeats per measurement that fit the budget."""
    measured = {
        "matrix": len(suite.products) + 2 * len(suite.stream_bytes) + 7 * _CHAINED,
        "collective": len(OPERATIONS) * len(suite.groups) * len(suite.message_bytes),
        "train": 4 * len(suite.decoders),
    }
    count = sum(measured[kind] for kind in request.kinds)
    share_s = _REPEATING * request.budget_s / count
    return Repeats(budget_s=min(max(share_s, _FEWEST_S), _MOST_S))


def _tasks(
    machine: AllDevices, suite: Suite, request: WorkRequest, launch_s: float
) -> list[tuple[str, Callable[[], Iterable[Cells]]]]:
    """Measurements: the name of each for people, and the function that makes its rows."""
    tasks: list[tuple[str, Callable[[], Iterable[Cells]]]] = []

    def add(what: str, measured: Callable[[], Iterable[T]], row: Callable[[T], Cells]) -> None:
        tasks.append((what, lambda: map(row, measured())))

    if "matrix" in request.kinds:
        for case in suite.products:
            run = partial(product, machine, case, launch_s=launch_s, seed=request.seed)
            add(f"{case.format} {case.shape}", run, kernel_row)
        for size in suite.stream_bytes:
            passes = partial(stream, machine, size, launch_s=launch_s)
            add(f"streams of {size / MIB:g} MiB", passes, kernel_row)
        for decoder in suite.decoders[:_CHAINED]:
            between = partial(chains, machine, decoder, launch_s=launch_s)
            add(f"passes of a layer {decoder.part}", between, kernel_row)
    if "collective" in request.kinds:
        for op in OPERATIONS:
            for ranks in suite.groups:
                sizes = suite.message_bytes
                sent = partial(exchanges, machine, op, ranks, sizes, launch_s=launch_s)
                add(f"{op} of {ranks}", sent, exchange_row)
    if "train" in request.kinds:
        for decoder in suite.decoders:
            steps = partial(training, machine, decoder, seed=request.seed)
            add(f"steps of a decoder {decoder.shape}", steps, step_row)
    return tasks


def main() -> None:
    """Measure the request on stdin."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(2, sys.stdout.fileno())  # what libraries print is no event

    def emit(event: Mapping[str, object]) -> None:
        out.write(json.dumps(event) + "\n")
        out.flush()

    asked = json.loads(sys.stdin.read())
    request = WorkRequest(**{**asked, "kinds": tuple(asked["kinds"])})
    try:
        work(request, emit)
    except TrnbenchError as error:
        refusal = {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}
        emit({"event": "failed", **refusal})
        return
    emit({"event": "done"})


if __name__ == "__main__":
    main()
