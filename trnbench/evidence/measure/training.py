"""Timed steps of a small decoder; losses must fall, and the compiler's FLOP are recorded."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from trnbench.evidence.measure.decoder import Decoder
from trnbench.evidence.measure.device import peak_memory_bytes
from trnbench.evidence.measure.loops import AllDevices
from trnbench.evidence.measure.suites import DecoderCase
from trnbench.evidence.measure.timing import Timing, timed
from trnbench.facts.records import Record
from trnbench.program.precision import recipe_named
from trnbench.program.tensor import element_bytes

_FIRST_STEPS = 3
_STATES = 4
"""Copies of all weights in fp32 during a step: master, gradient and two moments."""
_SCORES = 6
"""Copies of a layer's scores or activations, at most."""


class StepRun(Record):
    """A decoder's step on all devices."""

    case: DecoderCase
    timing: Timing
    compile_s: float
    losses: tuple[float, ...]
    compiled_flop: float | None
    """FLOP of one device by the compiler's cost analysis, if available."""
    peak_memory_bytes: float | None
    """Peak of a device so far, if the backend reports it."""

    @property
    def check(self) -> float:
        """0 if losses are finite and fell, else infinite."""
        sound = all(map(math.isfinite, self.losses)) and self.losses[-1] < self.losses[0]
        return 0.0 if sound else math.inf


def training(machine: AllDevices, case: DecoderCase, *, seed: int) -> Iterator[StepRun]:
    """Yield the timing of a decoder's step: compiled, warmed up, repeated on the same words."""
    machine.check_memory(_needed_bytes(case), f"a decoder {case.shape}")
    decoder = Decoder.on(machine, case)
    state, words = decoder.state(seed), decoder.words(seed + 1)
    begun = time.perf_counter()
    program = decoder.step().lower(state, words).compile()  # type: ignore[attr-defined]
    compile_s = time.perf_counter() - begun
    losses: list[float] = []

    def step() -> None:
        nonlocal state
        state, loss = program(state, words)
        losses.append(float(machine.jax.block_until_ready(loss)))

    for _ in range(_FIRST_STEPS):
        step()
    timing = timed(step, machine.rule)
    counted = program.cost_analysis()
    counted = counted[0] if isinstance(counted, list) else counted
    yield StepRun(
        case=case,
        timing=timing,
        compile_s=compile_s,
        losses=tuple(losses),
        compiled_flop=float(counted["flops"]) if counted and "flops" in counted else None,
        peak_memory_bytes=peak_memory_bytes(machine.devices),
    )


def _needed_bytes(case: DecoderCase) -> float:
    """Estimated minimum memory of a device for a step, bytes."""
    layer = case.hidden * (4 * case.hidden + 3 * case.ffn)
    weights = (case.layers * layer + 2 * case.vocab * case.hidden) / case.tp
    tokens = case.micro_batch * case.sequence
    width = element_bytes(recipe_named(case.precision).activations)
    scores = case.heads * case.sequence if case.attention == "naive" else 0
    held = case.layers * _SCORES * (2 * case.hidden + case.ffn + scores) * width
    return 4.0 * _STATES * weights + tokens * (held / case.tp + 4.0 * 3 * case.vocab / case.tp)
