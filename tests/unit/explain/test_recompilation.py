"""A log that compiles between steps is told to recompile; the same times without it are not."""

from __future__ import annotations

import pytest

from trnbench import explain

COMPILED = "INFO ||NEURON_CC_WRAPPER||: Compiler status PASS\n"


@pytest.mark.slow
@pytest.mark.parametrize("again", [True, False])
def test_a_log_that_compiles_between_steps_recompiles(tmp_path, again):
    log = tmp_path / "run.log"
    log.write_text("".join(f"{COMPILED * again}step {i} | step time: 12.4 s\n" for i in range(20)))
    ran = {"model": "llama3.1-8b", "on": "trn1.32xlarge", "tp": 8, "micro_batch": 1}
    found = explain(log, global_batch=64, sequence="4k", **ran)
    (cause,) = [one for one in found.suspects if one.cause.id == "recompilation"]
    assert (found.suspects[0] is cause) is again
    assert (cause.probability > 0.5) is again
