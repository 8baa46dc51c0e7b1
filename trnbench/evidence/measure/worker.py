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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from trnbench.errors import TrnbenchError
from trnbench.evidence.measure import host
from trnbench.evidence.measure.chains import chains
from trnbench.evidence.measure.collectives import exchanges
from trnbench.evidence.measure.device import DeviceChoice, capabilities, open_devices
from trnbench.evidence.measure.kernels import PROGRAM, launch, product, stream
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
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.records import Record, replace

TellEvent = Callable[[Mapping[str, object]], None]
_FEWEST_S, _MOST_S = 0.1, 2.0
"""What is spent on repeats of one measurement, at least and at most."""
_WARM_S = 0.2
"""Work of an accelerator before it is timed: its clock falls once it draws full power."""
T = TypeVar("T")
_EARLY = 1
"""Products of each further format before those that tell less."""
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
    machine = AllDevices(
        jax=jax,
        devices=devices,
        can=can,
        rule=_paced(request, suite, shared=can.shares_host),
        watch=host.watch(can.backend),
        sum_bits=sum_bits(can.chip),
    )
    for found in launch(machine):
        emit({"event": "row", "cells": shared | kernel_row(found)})
        if found.kernel == PROGRAM:
            machine = replace(machine, launch_s=found.timing.seconds)
    tasks = tasks_of(machine, suite, request)
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


def _paced(request: WorkRequest, suite: Suite, *, shared: bool) -> Repeats:
    """Repeats per measurement that fit the budget."""
    measured = {
        "matrix": len(suite.products) + 2 * len(suite.stream_bytes) + 7 * suite.chained,
        "collective": len(OPERATIONS) * len(suite.groups) * len(suite.message_bytes),
        "train": 4 * len(suite.decoders),
    }
    count = sum(measured[kind] for kind in request.kinds)
    share_s = _REPEATING * request.budget_s / count
    return Repeats(
        budget_s=min(max(share_s, _FEWEST_S), _MOST_S), warm_s=0.0 if shared else _WARM_S
    )


def tasks_of(
    machine: AllDevices, suite: Suite, request: WorkRequest
) -> list[tuple[str, Callable[[], Iterable[Cells]]]]:
    """Measurements: the name of each for people, and the function that makes its rows.

    What a machine's spec needs comes first, and what tells least last: a budget may end them.
    """
    tasks: list[tuple[int, str, Callable[[], Iterable[Cells]]]] = []

    def add(
        turn: int, what: str, found: Callable[[], Iterable[T]], row: Callable[[T], Cells]
    ) -> None:
        tasks.append((turn, what, lambda: map(row, found())))

    if "matrix" in request.kinds:
        seen: Counter[str] = Counter()
        for case in suite.products:
            usual = case.format == machine.can.training_format
            plain = case.batch == 1 and case.order == "NN"
            turn = (0 if plain else 4) if usual else 3 if seen[case.format] < _EARLY else 6
            seen[case.format] += 1
            run = partial(product, machine, case, seed=request.seed)
            add(turn, f"{case.format} {case.shape}", run, kernel_row)
        for size in suite.stream_bytes:
            passes = partial(stream, machine, size)
            add(0, f"streams of {size / MIB:g} MiB", passes, kernel_row)
        for i, decoder in enumerate(suite.decoders[: suite.chained]):
            between = partial(chains, machine, decoder)
            add(5 * i + 1, f"passes of a layer {decoder.part}", between, kernel_row)
    if "collective" in request.kinds:
        for op in OPERATIONS:
            for ranks in suite.groups:
                sent = partial(exchanges, machine, op, ranks, suite.message_bytes)
                turn = 2 if ranks == max(suite.groups) else 5
                add(turn, f"{op} of {ranks}", sent, exchange_row)
    if "train" in request.kinds:
        for i, decoder in enumerate(suite.decoders):
            steps = partial(training, machine, decoder, seed=request.seed)
            add(2 if i else 1, f"steps of a decoder {decoder.shape}", steps, step_row)
    return [(what, rows) for _, what, rows in sorted(tasks, key=lambda task: task[0])]


def sum_bits(chip: str | None) -> int | None:
    """Bits of mantissa of a chip's sums of 8-bit products, by its data file."""
    if chip is None:
        return None
    bits = load_chip(open_catalog(), chip).rounding.fp8_sum_bits
    return None if bits is None else int(bits)


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
