"""Files of measurements: which set they are, and what is wrong with a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from trnbench.errors import DataFileError, InputError
from trnbench.evidence.rows import EvidenceRow, RowFault, read_evidence

PUBLISHED = Path(__file__).parents[3] / "workloads" / "published"
KERNELS = "hardware,kernel,shape,dtype,latency_ms\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "measured.csv"
    path.write_text(text)
    return path


def row(**cells: str) -> EvidenceRow:
    return EvidenceRow(id="row", line=2, cells=cells)


STEPS = (
    *(
        "gpu_steps",
        "trainium_steps",
        "trainium_steps_2026",
        "trainium_refusals",
        "mlperf_lora",
        "bridge_steps",
        "bridge_efa",
        "torchneuron_steps",
        "families_2026",
        "hf_one_gpu",
        "nanotron_steps",
        "rl_steps",
    ),
)
KERNELS_OF = dict.fromkeys(("attention_kernels", "trainium_products_2026"), "trainium_kernels")
"""A published file -> the set with the same columns."""


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.csv")), ids=lambda path: path.stem)
def test_a_published_file_is_the_set_of_its_name(path):
    found = read_evidence(path)
    own = KERNELS_OF.get(path.stem, path.stem)
    assert found.set == ("steps" if path.stem in STEPS else own)
    assert not [row.id for row in found.rows if row.fault]


def test_every_line_of_a_published_file_is_a_row():
    counts = {path.stem: len(read_evidence(path).rows) for path in PUBLISHED.glob("*.csv")}
    assert counts == {
        "trainium_steps": 198,
        "gpu_steps": 528,
        "trainium_steps_2026": 10,
        "trainium_refusals": 3,
        "mlperf_lora": 3,
        "bridge_steps": 5,
        "bridge_efa": 29,
        "torchneuron_steps": 20,
        "families_2026": 184,
        "hf_one_gpu": 14,
        "nanotron_steps": 24,
        "rl_steps": 12,
        "trainium_kernels": 84,
        "trainium_products_2026": 27,
        "attention_kernels": 97,
        "gpu_kernels": 178,
        "neuron_compile": 182,
        "trainium_collectives": 93,
        "gpu_collectives": 284,
    }


def test_order_of_columns_and_more_columns_do_not_matter(tmp_path):
    text = "mood,latency_ms,shape,dtype,kernel,hardware\nfine,2.5,M1 K2 N3,bf16,matmul,trn1\n"
    (found,) = read_evidence(written(tmp_path, text)).rows
    assert found.text("kernel") == "matmul"
    assert found.positive("latency_ms") == 2.5
    assert found.id == "line 2"


@pytest.mark.parametrize("number", ["5e-324", "1e31"])
def test_numbers_that_other_units_would_lose_are_refused(tmp_path, number):
    text = f"latency_ms,shape,dtype,kernel,hardware\n{number},M1 K2 N3,bf16,matmul,trn1\n"
    (found,) = read_evidence(written(tmp_path, text)).rows
    with pytest.raises(RowFault, match=r"latency_ms: .* is out of range"):
        found.positive("latency_ms")


def test_a_row_is_named_by_its_line_where_it_has_no_id(tmp_path):
    text = KERNELS + "\ntrn1,matmul,512^3,bf16,1\n"
    assert [row.id for row in read_evidence(written(tmp_path, text)).rows] == ["line 3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n , \n", "is empty"),
        (KERNELS, "no row"),
        ("hardware,kernel,shape,dtype\ntrn1,matmul,512^3,bf16\n", "needs: latency_ms"),
        ("a,b\n1,2\n", "columns not recognised"),
        ("hardware,hardware,kernel,shape,dtype,latency_ms\n1,2,3,4,5,6\n", "two columns named"),
        ('hardware,kernel,shape,dtype,latency_ms\n"trn1"x,a,b,c,d\n', "not CSV"),
    ],
)
def test_a_file_of_no_known_set_is_refused_with_what_it_lacks(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as caught:
        read_evidence(written(tmp_path, text))
    assert caught.value.exit_code == 2


def test_one_of_several_columns_for_a_time_is_enough(tmp_path):
    columns = "platform,nodes,gpus,collective,size_bytes"
    cells = "p5.48xlarge,2,16,all-reduce,1024"
    for time in ("time_us", "busbw_GBps"):
        text = f"{columns},{time}\n{cells},1.0\n"
        assert read_evidence(written(tmp_path, text)).set == "gpu_collectives"
    with pytest.raises(InputError, match="time_us or busbw_GBps or algbw_GBps"):
        read_evidence(written(tmp_path, f"{columns}\n{cells}\n"))


def test_ragged_lines_and_ids_that_stand_twice_are_faults_of_the_row(tmp_path):
    text = "id," + KERNELS + "a,trn1,matmul,512^3,bf16,1\na,trn1,matmul,512^3,bf16,1\nb,trn1\n"
    first, second, short = read_evidence(written(tmp_path, text)).rows
    assert first.fault is None
    assert second.fault == "the id is given twice, first on line 2"
    assert short.fault == "line 4 has 2 cells, and there are 6 columns"


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("", "not given"),
        ("not stated", "not given"),
        ("eight", "'eight' is not a number"),
        ("[1, 1]", "is not a number"),
        ("0", "is not a positive number"),
        ("-4", "is not a positive number"),
        ("nan", "is not a positive number"),
        ("inf", "is not a positive number"),
        ("2.5", "is not a whole number"),
    ],
)
def test_a_cell_that_is_no_count_says_why(cell, reason):
    with pytest.raises(RowFault, match=reason):
        row(tp=cell).whole("tp")


def test_a_cell_that_nobody_filled_is_unknown_and_not_wrong():
    assert row(vpp=" ").whole_if_said("vpp") is None
    assert row().whole_if_said("vpp") is None
    assert row(vpp="2").whole_if_said("vpp") == 2
    with pytest.raises(RowFault):
        row(vpp="two").whole_if_said("vpp")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs: model, instance, step_time_s or"),
        ({}, "give --model and --on, or see `trnbench validate --template`"),
        (
            {"model": "llama3.1-8b", "instance": "p5.48xlarge"},
            "; see `trnbench validate --template`",
        ),
    ],
)
def test_a_file_that_lacks_columns_is_told_of_options_that_it_needs(tmp_path, given, said):
    path = tmp_path / "mine.csv"
    path.write_text("tp,seq,gbs\n1,4096,8\n")
    with pytest.raises(DataFileError) as refused:
        read_evidence(path, given)
    assert said in refused.value.message
    assert ("--on" in refused.value.message) is (not given)


def test_a_step_time_may_be_called_so_without_its_unit(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("model,instance,tp,seq,gbs,Step Time\nllama3.1-8b,p5.48xlarge,1,4096,8,2.5\n")
    (row,) = read_evidence(path).rows
    assert row.text("step_time_s") == "2.5"
