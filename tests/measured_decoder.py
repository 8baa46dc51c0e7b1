"""Runs on eight forced devices, in a process of its own: what JAX computes, as JSON on stdout."""

from __future__ import annotations

import json
from typing import Any

from trnbench.evidence.measure.chains import layout_of_case, model_of
from trnbench.evidence.measure.collectives import exchanges
from trnbench.evidence.measure.device import capabilities, open_devices
from trnbench.evidence.measure.loops import AllDevices, Repeats
from trnbench.evidence.measure.suites import OPERATIONS, DecoderCase
from trnbench.evidence.measure.training import Decoder
from trnbench.facts.records import replace
from trnbench.program.step import training_step

ONE = DecoderCase(
    layers=1,
    hidden=64,
    heads=4,
    ffn=192,
    vocab=256,
    sequence=64,
    micro_batch=4,
    micro_batches=1,
    tp=1,
    dp=1,
    precision="fp32",
)
STEPS = 4


def flop_of(program: Any) -> float:
    counted = program.cost_analysis()
    return float((counted[0] if isinstance(counted, list) else counted)["flops"])


def main():
    devices = open_devices("cpu", 8)
    import jax

    rule = Repeats(
        least=1,
        most=1,
    )
    machine = AllDevices(jax=jax, devices=devices, can=capabilities(devices), rule=rule)
    found: dict[str, object] = {}
    for name, case in {
        "one": ONE,
        "tp2dp2": replace(ONE, tp=2, dp=2, micro_batch=1, micro_batches=2),
    }.items():
        decoder = Decoder.on(machine, case)
        state, words = decoder.state(0), decoder.words(1)
        program = decoder.step().lower(state, words).compile()  # type: ignore[attr-defined]
        losses = []
        for _ in range(STEPS):
            state, loss = program(state, words)
            losses.append(float(loss))
        ours = training_step(model_of(case), layout_of_case(case))
        found[name] = {
            "losses": losses,
            "compiled_flop": flop_of(program) * case.devices,
            "flop": float(ours.hardware_flop),
        }
    left, right = jax.numpy.zeros((64, 128)), jax.numpy.zeros((128, 32))
    product = jax.jit(jax.numpy.matmul).lower(left, right).compile()
    found["product"] = flop_of(product)
    found["collectives"] = [
        (op, ranks, one.size_bytes, one.check)
        for op in OPERATIONS
        for ranks in (2, 8)
        for one in exchanges(machine, op, ranks, (65536,))
    ]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
