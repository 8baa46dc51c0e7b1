"""Rows of training runs as questions, and their predictions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from trnbench.evidence.predict import Predictor, RowMemory, RowPrediction
from trnbench.evidence.rows import STEPS, EvidenceFile, EvidenceRow, read_evidence
from trnbench.evidence.step_comparison import compare_training
from trnbench.evidence.training_cases import EvidenceCase, Reader
from trnbench.facts.calibration.training_stack import load_training_stack
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace

PUBLISHED = Path(__file__).parents[3] / "workloads" / "published"
GPU = {
    "source": "a paper",
    "instance": "dgx-h100",
    "model": "llama3-8B",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "8",
    "ffn": "14336",
    "mlp": "swiglu",
    "vocab": "128256",
    "seq": "8192",
    "ranks": "16",
    "tp": "2",
    "pp": "2",
    "dp": "4",
    "cp": "1",
    "ep": "1",
    "vpp": "2",
    "mbs": "1",
    "gbs": "64",
    "recompute": "none",
    "precision": "bf16-master",
    "framework": "NeMo/Megatron",
    "step_time_s": "4.0",
}
TRAINIUM = {
    "source": "a paper",
    "model": "Llama2-7B",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "32",
    "ffn": "11008",
    "vocab": "32000",
    "seq": "4096",
    "instance": "trn1.32xlarge",
    "nodes": "2",
    "ranks": "64",
    "tp": "8",
    "pp": "1",
    "dp": "8",
    "mbs": "1",
    "gbs": "64",
    "precision": "bf16-master",
    "zero": "1",
    "sequence_parallel": "1",
    "recompute": "selective",
    "framework": "neuronx-distributed",
    "step_time_s": "8.0",
}


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(open_catalog())


def file_of(*rows: dict[str, str]) -> EvidenceFile:
    return EvidenceFile(
        name="rows.csv",
        set=STEPS,
        rows=tuple(
            EvidenceRow(id=f"row {i}", line=i + 2, cells=cells) for i, cells in enumerate(rows)
        ),
    )


def gpu(reader: Reader, **cells: str) -> EvidenceCase | str:
    (found,) = reader.cases(file_of(GPU | cells))
    return found


def trainium(reader: Reader, **cells: str) -> EvidenceCase | str:
    (found,) = reader.cases(file_of(TRAINIUM | cells))
    return found


def case(found: EvidenceCase | str) -> EvidenceCase:
    assert not isinstance(found, str), found
    return found


def texts(found: EvidenceCase) -> list[str]:
    return [one.text for one in found.assumed]


def test_a_row_may_say_any_knob_under_its_name(reader):
    asked = {"context_parallel": "all-to-all", "attention": "naive", "capacity_factor": "1.5"}
    for found in (case(gpu(reader, **asked)), case(trainium(reader, **asked))):
        assert found.layout.context_parallel == "all-to-all"
        assert found.layout.attention == "naive"
        assert found.layout.capacity_factor == 1.5
    assert "not one of ring, all-to-all" in str(gpu(reader, context_parallel="star"))


def test_a_gpu_row_becomes_a_layout(reader):
    found = case(gpu(reader))
    one = found.layout
    assert found.setup.platform.instance.name == "dgx-h100"
    assert found.setup.nodes == 2
    assert (one.tp, one.pp, one.dp, one.vpp, one.micro_batch, one.global_batch) == (
        2,
        2,
        4,
        2,
        1,
        64,
    )
    assert (one.recompute, one.schedule, one.precision) == ("none", "interleaved", "bf16-master")
    assert found.step.step_time_s == 4.0
    assert found.setup.stack.name == "training-nemo-hopper"
    assert found.setup.own_stack
    # Not said: how the optimizer is sharded and whether sequences are split; NeMo does both.
    assert (one.zero, one.sequence_parallel) == (1, True)
    assert texts(found) == [
        "zero 1: habit of nemo-hopper",
        "sequence parallel on: habit of nemo-hopper",
    ]


def test_a_trainium_row_becomes_a_layout(reader):
    found = case(trainium(reader))
    one = found.layout
    assert found.setup.platform.instance.name == "trn1.32xlarge"
    assert (one.tp, one.pp, one.dp, one.zero, one.sequence_parallel) == (8, 1, 8, 1, True)
    assert (one.recompute, one.precision) == ("selective", "bf16-master")
    assert found.setup.stack.name == "training-nxd-trn1"
    assert found.step.step_time_s == pytest.approx(64 / 8.0)
    assert found.assumed == ()


def test_unknown_sequence_parallelism_on_trainium_is_off(reader):
    found = case(trainium(reader, sequence_parallel="unknown"))
    assert not found.layout.sequence_parallel
    assert "sequence parallel off: habit of nxd-trn1" in texts(found)


def test_selective_recompute_is_half_a_pass_where_the_stack_says_so(reader):
    found = case(gpu(reader, recompute="selective", framework="torchtitan FSDP2", pp="1", dp="8"))
    ((variant,),) = found.ways
    assert [(share, layout.recompute) for share, layout in variant] == [
        (0.5, "none"),
        (0.5, "full"),
    ]
    assert any("repeats half of a forward pass" in words for words in texts(found))
    plain = case(gpu(reader, recompute="selective"))
    ((other,),) = plain.ways
    assert [layout.recompute for _, layout in other] == ["selective"]
    assert not any("forward pass" in words for words in texts(plain))


def test_an_unknown_micro_batch_is_tried_and_said_to_be(reader):
    found = case(gpu(reader, mbs="", gbs="24"))
    # 24 sequences over 4 replicas: 6 each, of which 1 and 2 are divisors and 4 and 8 are not.
    assert [way[0][0][1].micro_batch for way in found.ways] == [1, 2]
    assert "micro-batch 1 or 2: the fastest that fits" in texts(found)


def test_an_unknown_recompute_is_the_least_that_fits(reader):
    found = case(gpu(reader, recompute="not stated"))
    mixes = [[(share, one.recompute) for share, one in way] for way in found.ways[0]]
    some = [[(1 - share, "none"), (share, "full")] for share in (0.25, 0.5, 0.75)]
    assert mixes == [[(1.0, "none")], [(1.0, "selective")], *some, [(1.0, "full")]]
    assert "recompute none to full: the least that fits, of all layers or some" in texts(found)


def test_software_that_nobody_knows_takes_the_machines_stack(reader):
    found = case(gpu(reader, framework="home-made"))
    assert not found.setup.own_stack
    assert "stack eager-hopper: as none is known for its software" in texts(found)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"dp": "8"}, "tp x pp x dp x cp = 2 x 2 x 8 x 1 = 32, and there are 16 ranks"),
        ({"dp": "[1, 1]"}, "dp: '[1, 1]' is not a number"),
        ({"tp": "two"}, "tp: 'two' is not a number"),
        ({"gbs": ""}, "gbs: not given"),
        ({"gbs": "63"}, "does not divide by 4 replicas"),
        ({"mbs": "3"}, "micro-batch 3 does not divide"),
        ({"instance": "abacus"}, "unknown instance 'abacus'"),
        ({"precision": "int3"}, "unknown precision 'int3'"),
        ({"offload": "optimizer"}, "only offloaded activations are scored"),
        ({"step_time_s": ""}, "step_time_s: not given"),
        ({"step_time_s": "-1"}, "is not a positive number"),
        ({"layers": "", "model": "mine"}, "layers: not given"),
        ({"trust": "none", "notes": "two numbers; more"}, "doubts it: two numbers"),
    ],
)
def test_a_row_that_cannot_be_predicted_says_why(reader, cells, reason):
    found = gpu(reader, **cells)
    assert isinstance(found, str)
    assert reason in found


def test_trainium_ranks_that_do_not_fit_on_the_nodes(reader):
    found = trainium(reader, ranks="128", dp="16")
    assert found == "128 ranks do not fit on 2 nodes of trn1.32xlarge, 32 each"


def test_a_release_of_the_stack_is_taken_where_a_row_names_it(reader):
    found = case(trainium(reader, release="2.18.0"))
    stack = replace(found.setup.stack, releases={"2.18": 0.9, "2.20": 0.8}, release="2.20")
    later = replace(reader)
    later.stacks._known = (stack,)
    assert case(trainium(later, release="2.18.0")).setup.stack.release == "2.18"
    assert case(trainium(later, release="2.99.0")).setup.stack.release == "2.20"


def test_a_release_that_nobody_knows_is_none_of_those_known(reader):
    found = case(trainium(reader, release="2.99.0"))
    assert found.setup.stack.release == "other"
    known = case(trainium(reader, release="2.24.0"))
    assert known.setup.stack.release == "2.24"
    # Where nothing is said, it is the one that predictions take.
    unsaid = case(trainium(reader, release=""))
    assert unsaid.setup.stack.release == known.setup.stack.release


def test_what_a_stack_does_not_do_was_not_done_by_it(reader):
    own = case(gpu(reader))
    assert own.setup.own_stack
    other = case(gpu(reader, zero="3", pp="1", dp="8"))
    assert not other.setup.own_stack
    assert any("cuts weights otherwise" in what for what in texts(other))


def test_a_named_stack_takes_all_rows(reader):
    named = Reader(reader.catalog, stack=load_training_stack(reader.catalog, "nxd-trn1"))
    assert case(trainium(named, framework="home-made")).setup.own_stack
    assert case(trainium(named, framework="home-made")).setup.stack.name == "training-nxd-trn1"
    other = trainium(named, framework="neuronx-nemo-megatron", recompute="none")
    assert case(other).setup.stack.name == "training-nxd-trn1"


def test_predictions_have_an_interval_around_them_and_reasons_where_there_are_none():
    rows = file_of(GPU, GPU | {"vpp": "20"}, GPU | {"mbs": ""}, GPU | {"tp": "x"})
    settled, illegal, tried, unread = compare_training(Reader(open_catalog()), rows)
    for found in (settled, tried):
        assert found.low_s is not None
        assert found.high_s is not None
        assert found.predicted_s is not None
        assert found.low_s < found.predicted_s < found.high_s
        assert found.reason is None
        assert found.ideal_s is not None
        assert found.ideal_s < found.predicted_s
    assert "more than 32 layers" in str(illegal.reason)
    assert illegal.predicted_s is None
    assert illegal.measured_s == 4.0
    assert unread.reason == "tp: 'x' is not a number"
    assert (tried.predicted_s or 0.0) <= (settled.predicted_s or 0.0)


def test_samples_price_every_layout_at_once(reader):
    found = case(gpu(reader))
    prepared = Predictor().prepared(found)
    one = found.setup.efficiency
    slower = replace(one, stack=replace(one.stack, factor=1.1))
    both = replace(one, stack=replace(one.stack, factor=np.array([one.stack.factor, 1.1])))
    times = prepared.times_s(both)
    assert times.shape == (1, 2)
    assert times[0, 0] == pytest.approx(prepared.times_s(one)[0, 0])
    assert times[0, 1] == pytest.approx(prepared.times_s(slower)[0, 0])


def predicted(cases: Sequence[EvidenceCase]) -> list[tuple[RowPrediction, RowMemory]]:
    """Return what one predictor says of cases that it lowers together."""
    predictor = Predictor()
    predictor.lower_together(cases)
    found = [predictor.predict(one) for one in cases]
    return [(x, predictor.memory(one, x.mixture)) for one, x in zip(cases, found, strict=True)]


@pytest.mark.parametrize(
    "changes",
    [
        # Sequences differ and their tables with them; tables alone; one has a stage more.
        [{"seq": "2048"}, {"seq": "4096"}],
        [{"seq": "2048"}, {"seq": "2048", "rows": "8192"}],
        [{"seq": "2048"}, {"seq": "4096", "rows": "8192", "pp": "2", "dp": "4"}],
    ],
)
def test_models_that_differ_in_their_table_of_positions_are_lowered_together(reader, changes):
    plain = {"model": "mine", "mlp": "gelu", "ffn": "16384", "pp": "1", "dp": "8", "vpp": ""}
    cases = []
    for change in changes:
        found = case(gpu(reader, **{**plain, **change, "rows": ""}))
        model = found.setup.model
        assert model.transformer is not None
        position = replace(
            model.transformer.position, length=int(change.get("rows", change["seq"]))
        )
        model = replace(model, transformer=replace(model.transformer, position=position))
        cases.append(replace(found, setup=replace(found.setup, model=model)))
    together = predicted(cases)
    for one, (time, memory) in zip(cases, together, strict=True):
        ((alone, alone_memory),) = predicted([one])
        assert (time.time_s, time.low_s, time.high_s, time.ideal_s) == (
            *(alone.time_s, alone.low_s, alone.high_s),
            alone.ideal_s,
        )
        assert memory == alone_memory
    (first, first_memory), (second, second_memory) = together
    assert first.mixture[0][1].programs is second.mixture[0][1].programs
    assert first_memory.bytes != second_memory.bytes


@pytest.mark.slow
def test_every_published_row_has_a_prediction_or_a_reason():
    found = compare_training(
        Reader(open_catalog()), read_evidence(PUBLISHED / "trainium_steps.csv")
    )
    assert len(found) == 198
    assert all((row.predicted_s is None) == (row.reason is not None) for row in found)
    assert sum(row.predicted_s is not None for row in found) == 171
    marked = [row for row in found if row.use == "fit"]
    assert len(marked) == 16
    assert all(row.predicted_s is not None for row in marked)


def test_what_ran_fits_if_its_stack_doubts_the_memory_model_that_much(reader):
    # A rank of 80 GiB is too small for what 8 sequences keep; four times as much would do.
    found = case(gpu(reader, tp="2", pp="1", dp="8", vpp="", mbs="8"))
    fits = []
    for margin in (1.0, 4.0):
        stack = replace(found.setup.stack, memory_margin=margin)
        efficiency = replace(found.setup.efficiency, stack=stack)
        setup = replace(found.setup, efficiency=efficiency)
        fits.append(Predictor().prepared(replace(found, setup=setup)).fits)
    assert fits == [False, True]
