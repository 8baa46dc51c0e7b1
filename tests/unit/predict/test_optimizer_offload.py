"""An optimizer on the host: what ranks and hosts hold, what the step waits for it, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import trnbench
from tests.unit.program.test_program_step import decoder
from trnbench.engines.emulate.step.host import HostPace, host_updates_s
from trnbench.engines.emulate.step.stages import chunk_counts
from trnbench.engines.execute.coverage import problems
from trnbench.errors import DataFileError
from trnbench.facts.calibration.hosts import load_job_rates
from trnbench.facts.catalog.search import built_in_folder, open_catalog
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.program.optimizer import is_on_host, link_bytes
from trnbench.program.step import host_states_bytes, training_step

# Two layers of the small decoder, the last norm, two tables of words.
WEIGHTS = 2 * (64 + 32 + 32 + 64 + 3 * 128 + 16) + 8 + 2 * 32 * 8
# Llama 3.1 8B on 8 tensor ranks: norms are whole on each, all else is cut.
NORMS = 65 * 4096
OF_RANK = (8_030_261_248 - NORMS) / 8 + NORMS


def program(**knobs):
    return training_step(decoder(), Layout(**{**SMALL_KNOBS, **knobs}))


SMALL_KNOBS: dict[str, Any] = {
    "global_batch": 8,
    "sequence": 16,
    "precision": "bf16-master",
    "optimizer_offload": "host",
}


def held(step, category):
    return sum(
        float(one.bytes * step.instances(kind))
        for kind, block in step.blocks.items()
        for one in block.residents
        if one.category == category
    )


def step_of(**asked):
    knobs: dict[str, Any] = {
        **{"on": "p5.48xlarge", "tp": 8, "pp": 1, "zero": 0, "micro_batch": 1, "vpp": 1},
        **{"global_batch": 16, "sequence": 2048, "recompute": "none", "schedule": "1f1b"},
    }
    (answer,) = trnbench.train("llama3.1-8b", **{**knobs, **asked})
    return answer


def test_states_leave_the_rank_and_weights_and_gradients_stay():
    near, away = program(optimizer_offload="none"), program()
    # Two moments and a master copy in fp32.
    assert held(near, "optimizer") == 12 * WEIGHTS
    assert held(away, "optimizer") == 0
    for category in ("weights", "gradients"):
        assert held(away, category) == held(near, category) > 0


def test_the_host_holds_states_and_its_copies_for_every_rank_of_a_node():
    # 12 bytes of states, 4 of a gradient and 2 of a weight.
    assert host_states_bytes(program(), 8) == 18 * WEIGHTS
    assert host_states_bytes(program(optimizer_offload="none"), 8) == 0
    # Without ZeRO each replica has all of it; sliced they share one, in whole elements or not.
    assert host_states_bytes(program(dp=4), 8) == 4 * 18 * WEIGHTS
    assert host_states_bytes(program(dp=4, zero=1), 8) == 18 * WEIGHTS
    assert host_states_bytes(program(dp=4), 2) == 2 * 18 * WEIGHTS
    # Of two stages on one node each counts once; of four ranks, that with most.
    whole = host_states_bytes(program(pp=2), 8)
    assert whole == 18 * WEIGHTS
    assert whole / 2 <= host_states_bytes(program(pp=2), 1) < whole


def test_bytes_over_the_link_and_in_host_memory():
    updates = [
        (op, step.instances(kind))
        for step in [program()]
        for kind, block in step.blocks.items()
        for op in block.ops
        if is_on_host(op)
    ]
    # Down a gradient in fp32, up a weight in bf16.
    assert sum(float(n * link_bytes(op)) for op, n in updates) == 6 * WEIGHTS
    # Master and two moments read and written, the gradient read, the weight written.
    assert sum(float(n * op.bytes) for op, n in updates) == (24 + 4 + 2) * WEIGHTS


@pytest.mark.parametrize("engine", ["analytic", "emulate"])
def test_a_step_waits_for_link_and_host(engine):
    near, away = (step_of(optimizer_offload=where, engine=engine) for where in ("none", "host"))
    assert near.step is not None
    assert away.step is not None
    # 80 % of 64 GB/s of link; 300 GB/s of host memory for 8 ranks.
    expected_s = 6 * OF_RANK / (0.8 * 64e9) + 30 * OF_RANK * 8 / 300e9
    assert away.step.exposed_s["optimizer"] == pytest.approx(expected_s, rel=1e-6)
    slower = away.step.step_time_s - near.step.step_time_s
    assert slower == pytest.approx(expected_s - near.step.exposed_s["optimizer"], rel=1e-6)
    assert away.step.step_time_s == pytest.approx(sum(away.step.exposed_s.values()))
    assert any("300 GB/s of its memory's bandwidth (150" in note for note in away.notes)
    assert away.memory is not None
    assert away.memory.by_category["optimizer"] == 0
    width = away.step.high_step_time_s - away.step.low_step_time_s
    assert width > near.step.high_step_time_s - near.step.low_step_time_s


def test_engines_agree_over_layouts_of_several_nodes():
    asked: dict[str, Any] = {"on": "p5.48xlarge:2", "optimizer_offload": "host"}
    for knobs in ({"pp": 2}, {"zero": 1, "dp": 2}, {"tp": 2, "pp": 4, "zero": 1}):
        closed, played = (
            step_of(**{**asked, **knobs}, engine=engine) for engine in ("analytic", "emulate")
        )
        assert closed.step is not None
        assert played.step is not None
        waits = [one.step.exposed_s["optimizer"] for one in (closed, played)]
        assert waits[1] == pytest.approx(waits[0], rel=0.03)
        assert played.step.step_time_s == pytest.approx(closed.step.step_time_s, rel=0.03)


def test_ranks_that_are_done_leave_the_host_to_the_others():
    step = program(pp=2)
    chunks = chunk_counts(step)
    pace = HostPace(link_bytes_per_s=np.inf, memory_bytes_per_s=1.0)
    alone = host_updates_s(step, chunks, pace, 1)
    short, long = sorted(alone)
    assert sum(alone) == pytest.approx(30 * WEIGHTS)
    # Both at half the pace until the shorter is done, then the longer alone.
    assert sorted(host_updates_s(step, chunks, pace, 2)) == pytest.approx([2 * short, short + long])


def test_formats_of_weights_are_cast_on_the_device():
    step = program(precision="fp8", tp=1)
    ops = [op for block in step.blocks.values() for op in block.ops if op.phase == "optimizer"]
    casts = [op for op in ops if op.name.startswith("quantise.")]
    assert casts
    assert not any(is_on_host(op) for op in casts)


def test_a_host_that_is_too_small_is_refused():
    asked: dict[str, Any] = {
        **{"on": "trn1.2xlarge", "global_batch": 16, "sequence": 1024, "assume_supported": True},
        **{"tp": 1, "pp": 1, "dp": 2, "recompute": "full", "optimizer_offload": "host"},
    }
    settled = {"micro_batch": 1, "vpp": 1, "cp": 1, "schedule": "1f1b"}
    for knobs in (asked, {**asked, **settled, "sequence_parallel": False}):
        (sliced,) = trnbench.train("tinyllama-1.1b", **knobs, zero=1)
        assert sliced.reasons == ()
        (answer,) = trnbench.train("tinyllama-1.1b", **knobs, zero=0)
        # Two replicas of 1,100,048,384 parameters with 18 bytes each.
        (why,) = answer.reasons
        assert "the optimizer on the host needs 36.88 GiB of its memory on a node" in why
        assert "trn1.2xlarge has 32 GiB" in why


def test_stacks_without_one_refuse_it():
    (answer,) = trnbench.train(
        "llama3.1-8b", on="trn1.32xlarge:4", stack="nxd-trn1", tp=8, optimizer_offload="host"
    )
    assert any("does not run optimizer offload" in why for why in answer.reasons)


def test_it_is_not_executed():
    assert problems(program(optimizer_offload="none")) == ()
    assert any("on the host is not executed" in why for why in problems(program()))


def test_a_search_finds_what_fits_the_host():
    asked: dict[str, Any] = {"on": "p5.48xlarge", "global_batch": 64, "sequence": 2048}
    near, away = (
        trnbench.train("llama3.1-8b", **asked, optimizer_offload=where)[0]
        for where in ("none", "host")
    )
    assert near.step is not None
    assert away.step is not None
    assert away.layout["optimizer_offload"] == "host"
    model = load_model(open_catalog(), "llama3.1-8b")
    needed = host_states_bytes(training_step(model, away.layout.complete()), 8)
    assert needed <= 2048 * 2**30


def test_rates_of_hosts_and_engines_come_from_a_file(tmp_path):
    text = (built_in_folder() / "specs/calibration/job-rates.toml").read_text()
    (tmp_path / "calibration").mkdir()
    own = tmp_path / "calibration/job-rates.toml"
    own.write_text(text.replace('"300 GB/s", low = "150', '"200 GB/s", low = "100'))
    slower = step_of(optimizer_offload="host", catalog=open_catalog([tmp_path], environment={}))
    assert slower.step is not None
    # 80 % of 64 GB/s of link; 200 GB/s of host memory for 8 ranks.
    expected_s = 6 * OF_RANK / (0.8 * 64e9) + 30 * OF_RANK * 8 / 200e9
    assert slower.step.exposed_s["optimizer"] == pytest.approx(expected_s, rel=1e-6)
    assert any("200 GB/s of its memory's bandwidth (100" in note for note in slower.notes)
    own.write_text(
        text.replace(
            "engine_share = { value = 0.6, low = 0.4", "engine_share = { value = 0, low = 0"
        )
    )
    with pytest.raises(DataFileError, match=r"engine_share.*above 0"):
        load_job_rates(open_catalog([tmp_path], environment={}))
