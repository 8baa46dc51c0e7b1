"""No interval promises what no kernel of the chip has reached: over models x machines."""

from __future__ import annotations

import random

import pytest

import trnbench
from trnbench.errors import TrnbenchError
from trnbench.facts.calibration.training_stack import load_chip_efficiency
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_instance

CATALOG = open_catalog(environment={})

MOST_MFU = 0.75
"""Of a whole step; a chip whose products alone reach more may pass it, up to their share."""
MODELS = (
    *("llama2-7b", "llama2-13b", "llama2-70b", "llama3.1-8b", "llama3.1-70b", "llama3.1-405b"),
    *("qwen3-8b", "phi-4", "gemma-3-27b", "mixtral-8x7b", "qwen3-30b-a3b", "qwen3-235b-a22b"),
    *("deepseek-v3", "gpt-oss-20b", "gpt-oss-120b", "nemotron-h-56b", "mamba2-2.7b"),
)
MACHINES = (
    *("trn1.32xlarge:32", "trn2.48xlarge:8", "trn2-ultraserver:2", "trn3-ultraserver-gen1:1"),
    *("trn3-ultraserver-gen2:1", "p4d.24xlarge:32", "p4de.24xlarge:16", "p5.48xlarge:16"),
    *("p5en.48xlarge:16", "p6-b200.48xlarge:16", "p6-b300.48xlarge:16", "u-p6e-gb200x72:1"),
)
DEGREES = ((1, 1, 1), (4, 1, 1), (8, 4, 1), (4, 2, 8), (32, 8, 1))
"""Tensor, pipeline and expert parallel: with none a step is fastest, with all it fits."""
BATCH = 9216
"""Of samples: every data parallel degree of these machines divides it."""
SAMPLE = random.Random(7).sample([(a, b) for a in MODELS for b in MACHINES], 3)


def high_mfus(model: str, machine: str, *, most: int) -> list[float]:
    """Upper ends of MFU of layouts that fit, at most so many."""
    ends: list[float] = []
    for tp, pp, ep in DEGREES:
        for recompute in ("none", "full"):
            if len(ends) == most:
                return ends
            degrees = {"tp": tp, "pp": pp, "ep": ep, "cp": 1, "vpp": 1, "zero": 1}
            try:
                (answer,) = trnbench.train(
                    *(model,),
                    on=machine,
                    sequence=4096,
                    micro_batch=1,
                    global_batch=BATCH,
                    recompute=recompute,
                    **degrees,
                )
            except TrnbenchError:  # degrees that this model or machine refuses
                continue
            step = answer.step
            if step is not None:
                ends.append(step.mfu * step.step_time_s / step.low_step_time_s)
                break
    return ends


def reached(machine: str) -> float:
    """The largest share of peak that products alone reach on the machine's chip."""
    instance = load_instance(CATALOG, machine.partition(":")[0])
    chip = load_chip_efficiency(CATALOG, instance.chip)
    return chip.provenance.evidence["tensor_share"].high or float(chip.tensor_share)


@pytest.mark.parametrize(("model", "machine"), SAMPLE)
def test_an_interval_ends_below_what_physics_allows(model, machine):
    assert all(end <= max(MOST_MFU, reached(machine)) for end in high_mfus(model, machine, most=1))


@pytest.mark.soak
@pytest.mark.parametrize("machine", MACHINES)
def test_no_model_passes_what_kernels_reach(machine):
    ends = {model: high_mfus(model, machine, most=3) for model in MODELS}
    assert sum(map(len, ends.values())) >= len(MODELS)
    most = max(MOST_MFU, reached(machine))
    assert [name for name, found in ends.items() if found and max(found) > most] == []
