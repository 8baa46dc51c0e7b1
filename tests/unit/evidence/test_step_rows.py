"""Typed rows of measured steps: columns, what blank cells mean, memory and fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from trnbench.errors import DataFileError
from trnbench.evidence.columns import COLUMNS, column_of, named_columns
from trnbench.evidence.rows import (
    EvidenceFile,
    EvidenceRow,
    RowFault,
    is_table_of_steps,
    read_evidence,
)
from trnbench.evidence.step_comparison import compare_training
from trnbench.evidence.step_row import step_of
from trnbench.evidence.training_cases import EvidenceCase, Reader
from trnbench.facts.calibration.coverage import together
from trnbench.facts.calibration.training_stack import load_training_stack
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import KNOBS

LLAMA = {
    "source": "a paper",
    "model": "llama3.1-8b",
    "instance": "p5.48xlarge",
    "nodes": "2",
    "ranks": "16",
    "tp": "2",
    "pp": "2",
    "mbs": "1",
    "gbs": "64",
    "seq": "8192",
    "framework": "NeMo",
    "step_time_s": "4.0",
}


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(open_catalog())


def file_of(*rows: dict[str, str]) -> EvidenceFile:
    made = [EvidenceRow(id=f"row {i}", line=i + 2, cells=cells) for i, cells in enumerate(rows)]
    return EvidenceFile(name="rows.csv", set="steps", rows=tuple(made))


def read(reader: Reader, **cells: str) -> EvidenceCase | str:
    (found,) = reader.cases(file_of(LLAMA | cells))
    return found


def case(reader: Reader, **cells: str) -> EvidenceCase:
    found = read(reader, **cells)
    assert not isinstance(found, str), found
    return found


def texts(found: EvidenceCase) -> list[str]:
    return [one.text for one in found.assumed]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "steps.csv"
    path.write_text(text)
    return path


def test_every_knob_has_a_column():
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    assert {column_of(name) for name in KNOBS} <= set(names)
    assert [column_of(name) for name in ("micro_batch", "global_batch", "sequence", "tp")] == [
        *("mbs", "gbs", "seq", "tp"),
    ]


def test_columns_are_known_by_other_names_too():
    written = ["TP", "sequence", "Micro-Batch", "Global Batch Size", "dtype", "mood"]
    assert named_columns(written) == ["tp", "seq", "mbs", "gbs", "precision", "mood"]
    spellings = [name for column in COLUMNS for name in (column.name, *column.aliases)]
    assert len(set(spellings)) == len(spellings)


def test_a_file_is_of_steps_by_its_columns_under_any_of_their_names(tmp_path):
    text = "model,on,sequence,tp,pp,global_batch,time_s\nllama3.1-8b,p5.48xlarge,8k,1,1,64,2\n"
    found = read_evidence(written(tmp_path, text))
    assert found.set == "steps"
    assert found.rows[0].text("instance") == "p5.48xlarge"
    assert found.rows[0].text("step_time_s") == "2"


def test_two_columns_that_mean_the_same_are_refused(tmp_path):
    text = "model,instance,seq,sequence,gbs,step_time_s\n"
    with pytest.raises(DataFileError, match="two columns for 'seq': seq and sequence"):
        read_evidence(written(tmp_path, text + "a,b,1,2,3,4\n"))


def test_what_a_file_lacks_can_be_given_for_all_its_rows(tmp_path):
    path = written(tmp_path, "tp,pp,seq,gbs,step_time_s,model\n1,1,8192,64,2,llama3.1-8b\n")
    with pytest.raises(DataFileError, match="needs: instance"):
        read_evidence(path)
    (row,) = read_evidence(path, {"instance": "p5.48xlarge"}).rows
    assert row.text("instance") == "p5.48xlarge"
    with pytest.raises(DataFileError, match="has a column 'model': leave out the option"):
        read_evidence(path, {"instance": "p5.48xlarge", "model": "llama2-7b"})


def test_a_table_of_steps_is_told_from_a_log_of_one_run(tmp_path):
    assert is_table_of_steps(written(tmp_path, "Global Batch,step_time_s\n64,2\n"))
    for log in ("step,step_time_s\n1,2.0\n", "step 1 | step time: 2 s\n", ""):
        assert not is_table_of_steps(written(tmp_path, log))


def test_a_stack_serves_every_machine_with_its_chips(reader):
    mine = case(reader).setup.stack
    mine = replace(mine, name="training-mine", default_for=(), frameworks=("mine",))
    mine = replace(mine, instances=("dgx-h100",))
    other = Reader(reader.catalog)
    other.stacks._known = (mine,)
    assert case(other, framework="Mine 2.1").setup.stack.name == "training-mine"
    assert case(other, framework="Mine 2.1").setup.own_stack
    assert case(other, framework="Mine", instance="p5.48xlarge").setup.own_stack
    elsewhere = case(other, framework="Mine", instance="dgx-b200")
    assert not elsewhere.setup.own_stack


def test_software_that_no_stack_names_may_be_given_one(reader):
    megatron = load_training_stack(reader.catalog, "nemo-hopper")
    other = Reader(reader.catalog, otherwise=megatron)
    found = case(other, framework="home-made")
    assert found.setup.own_stack
    assert found.setup.stack.name == "training-nemo-hopper"
    # What names its own software keeps that.
    assert case(other, framework="torchtitan").setup.stack.name == "training-torchtitan-hopper"


def test_a_row_becomes_a_layout(reader):
    found = case(reader)
    one = found.layout
    assert (one.tp, one.pp, one.dp, one.cp, one.ep, one.vpp) == (2, 2, 4, 1, 1, 1)
    assert (one.micro_batch, one.global_batch, one.sequence) == (1, 64, 8192)
    assert found.setup.model.name == "llama3.1-8b"
    assert found.setup.stack.name == "training-nemo-hopper"
    assert found.setup.own_stack
    assert texts(found) == [
        "shapes llama3.1-8b: from the model's name",
        "vpp 1: the row names none",
        "zero 1: habit of nemo-hopper",
        "sequence parallel on: habit of nemo-hopper",
        "precision bf16-master: habit of nemo-hopper",
        "recompute none to full: the least that fits, of all layers or some",
    ]


def test_a_row_of_a_job_with_adapters(reader):
    layout = case(reader, job="lora", adapter_rank="8", adapter_on="attention").layout
    assert (layout.job, layout.adapter_rank, layout.adapter_on) == ("lora", 8, "attention")
    assert type(layout.adapter_rank) is int
    assert "adapter_rank: 'x' is not a number" in str(read(reader, job="lora", adapter_rank="x"))
    assert "`adapter_rank` is a knob of job lora" in str(read(reader, adapter_rank="8"))


def test_a_habit_of_recompute_fills_its_blank(reader):
    stack = case(reader).setup.stack
    habits = replace(stack.habits, recompute="full", precision="bf16-sr")
    other = Reader(reader.catalog)
    other.stacks._known = (replace(stack, habits=habits),)
    found = case(other)
    assert found.layout.recompute == "full"
    assert found.layout.precision == "bf16-sr"
    assert {("recompute", "full"), ("precision", "bf16-sr")} <= {
        (one.name, one.value) for one in found.assumed
    }


@pytest.mark.parametrize(
    ("said", "recipe", "assumed"),
    [
        ("bf16", "bf16-master", True),
        ("fp16", "fp16-master", True),
        ("bf16-master", "bf16-master", False),
        ("bf16-pure", "bf16", False),
        ("fp8", "fp8", False),
    ],
)
def test_a_bare_format_leaves_open_which_copies_are_kept(reader, said, recipe, assumed):
    found = case(reader, precision=said)
    assert found.layout.precision == recipe
    named = [(one.name, one.value) for one in found.assumed]
    assert (("precision", recipe) in named) is assumed


def test_a_row_of_lora_has_the_usual_adapters_unless_it_says_others(reader):
    found = case(reader, job="lora", adapter_on="attention")
    assert (found.layout.job, found.layout.adapter_on) == ("lora", "attention")
    assert found.layout.adapter_rank == 16
    assert "adapter rank 16: usual of --job lora" in texts(found)
    assert not any(what.startswith("adapters on") for what in texts(found))
    assert "job: 'rloo' is not one of pretrain, finetune, lora" in str(read(reader, job="rloo"))


def test_a_row_without_software_takes_the_machines_stack_and_unknown_software_is_eager(reader):
    usual, unknown = case(reader, framework=""), case(reader, framework="home-made 2.1")
    assert usual.setup.own_stack
    assert texts(usual)[0] == "stack nemo-hopper: usual on this instance"
    assert not unknown.setup.own_stack
    assert texts(unknown)[0] == "stack eager-hopper: as none is known for its software"


def test_fewer_ranks_than_the_nodes_have(reader):
    found = case(reader, nodes="1", ranks="4", pp="1")
    assert (found.layout.dp, found.layout.ranks, found.setup.nodes) == (2, 4, 1)
    assert read(reader, nodes="1", ranks="32") == (
        "32 ranks do not fit on 1 nodes of p5.48xlarge, 8 each"
    )


def test_ranks_follow_from_replicas_or_from_nodes(reader):
    assert case(reader, nodes="", ranks="", dp="8").setup.nodes == 4
    assert case(reader, nodes="2", ranks="").layout.dp == 4
    alone = case(reader, nodes="", ranks="")
    assert (alone.setup.nodes, alone.layout.ranks) == (1, 8)
    assert "nodes 1: the row names none" in texts(alone)


def test_logical_cores_of_another_size(reader):
    trainium = {"instance": "trn2.48xlarge", "framework": "", "pp": "1", "ranks": ""}
    assert case(reader, **trainium, nodes="1", lnc="1").layout.dp == 64
    assert case(reader, **trainium, nodes="1", lnc="2").layout.dp == 32
    assert "has no logical size 3" in str(read(reader, **trainium, nodes="1", lnc="3"))


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"tp": "two"}, "tp: 'two' is not a number"),
        ({"tp": ""}, "tp: not given"),
        ({"gbs": ""}, "gbs: not given"),
        ({"seq": ""}, "seq: not given"),
        ({"zero": "4"}, "zero: '4' is not one of 0, 1, 2, 3"),
        ({"recompute": "some"}, "recompute: 'some' is not one of none, selective, full"),
        ({"sequence_parallel": "maybe"}, "sequence_parallel: 'maybe' is neither of yes"),
        ({"instance": "p5.47xlarge"}, "unknown instance 'p5.47xlarge'; did you mean"),
        ({"precision": "int3"}, "unknown precision 'int3'"),
        ({"outcome": "odd"}, "outcome: 'odd' is not one of measured, crashed_or_oom"),
        ({"step_time_s": ""}, "step_time_s: not given, and nothing else was measured"),
        ({"step_time_s": "-2"}, "step_time_s: '-2' is not a positive number"),
        ({"trust": "none", "notes": "a typo; more"}, "its collector doubts it: a typo"),
        (
            {"offload": "optimizer"},
            "the optimizer ran on the host: only offloaded activations are scored",
        ),
    ],
)
def test_a_bad_cell_says_where_and_what(reader, cells, reason):
    assert reason in str(read(reader, **cells))


def test_memory_is_of_a_rank_in_gib_or_of_a_chip_in_mib():
    rank = step_of(file_of(LLAMA | {"memory_gb": "40", "step_time_s": ""}).rows[0])
    chip = step_of(file_of(LLAMA | {"memory_mib_chip": "30000"}).rows[0])
    assert rank.memory is not None
    assert chip.memory is not None
    assert (rank.memory.bytes, rank.memory.of) == (40 * 2**30, "rank")
    assert (chip.memory.bytes, chip.memory.of) == (30000 * 2**20, "chip")
    with pytest.raises(RowFault, match="memory_gb"):
        step_of(file_of(LLAMA | {"memory_gb": "much"}).rows[0])


def test_memory_and_fit_are_predicted_whatever_the_outcome():
    crashed = {"outcome": "crashed_or_oom", "step_time_s": "", "tp": "1", "pp": "1", "mbs": "4"}
    rows = file_of(
        LLAMA | {"memory_gb": "40"},
        LLAMA | crashed | {"recompute": "none"},
        LLAMA | {"step_time_s": "", "memory_gb": "40"},
        LLAMA | {"vpp": "40"},
    )
    ran, lost, untimed, illegal = compare_training(Reader(open_catalog()), rows)
    assert ran.memory.error == pytest.approx((ran.memory_predicted_bytes or 0) / (40 * 2**30) - 1)
    assert ran.memory_of == "rank"
    assert ran.called_fitting
    for found in (ran, lost, untimed):
        low, high = found.memory_low_bytes, found.memory_high_bytes
        assert low is not None
        assert high is not None
        assert found.memory_predicted_bytes is not None
        assert low <= found.memory_predicted_bytes <= high
        assert low < high
    assert lost.called_fitting is False
    assert lost.outcome == "crashed_or_oom"
    assert lost.measured_s is None
    assert untimed.predicted_s == ran.predicted_s
    assert untimed.error is None
    assert illegal.fit_probability is None
    assert illegal.reason


def test_memory_of_a_chip_is_that_of_all_its_ranks_in_use():
    trainium = LLAMA | {"instance": "trn2.48xlarge", "framework": "", "memory_mib_chip": "1"}
    one = trainium | {"nodes": "1", "ranks": "", "tp": "4", "pp": "1"}
    of_rank = {"memory_gb": "1", "memory_mib_chip": ""}
    few = one | {"ranks": "2", "tp": "2", "dp": "1"}
    rows = file_of(one, one | of_rank, few, few | of_rank)
    chip, rank, part, of_part = (
        row.memory_predicted_bytes or 0 for row in compare_training(Reader(open_catalog()), rows)
    )
    assert chip == pytest.approx(4 * rank)
    assert part == pytest.approx(2 * of_part)


def test_a_step_that_crashed_is_no_measurement_of_time(reader):
    found = case(reader, outcome="crashed_or_oom", step_time_s="")
    assert not found.step.ran
    assert replace(found.step, outcome="measured").ran


def test_data_is_what_the_cell_or_the_notes_say(reader):
    def data(**cells: str) -> str | None:
        return step_of(EvidenceRow(id="row", line=2, cells=LLAMA | cells)).data

    assert data() is None
    assert data(data="Real", notes="mock data") == "real"
    assert data(notes="real data, natural routing; packed sequences of 8") == "packed"
    assert data(notes="routing forced to be balanced, mock data") == "mock"
    assert "data: 'web'" in str(read(reader, data="web"))


def test_other_data_than_that_of_the_rows_widens_and_is_said(reader):
    cells = {"framework": "Megatron-Bridge", "recompute": "none", "zero": "1", "vpp": "1"}
    mock, packed = (case(reader, **cells, data=data) for data in ("mock", "packed"))
    known, wider = (one.setup.spread_in(one.layout) for one in (mock, packed))
    allowed = packed.setup.data
    assert allowed is not None
    assert wider == together(known, allowed)
    assert any(one.name == "data" and one.value == "packed" for one in packed.assumed)
    # Nobody says what rows of other software ran on.
    assert case(reader, framework="torchtune", tp="1", pp="1", data="packed").setup.data is None
