"""Sweeps of nccom-test and nccl-tests: sizes, times, groups and operations, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trnbench.errors import DataFileError
from trnbench.evidence.readers.collectives import MeasuredCluster, is_sweep, read_sweep

SAMPLES = Path(__file__).parents[2] / "samples"
TRN1 = MeasuredCluster(instance="trn1.32xlarge", nodes=1, ranks=32, neuron=True)
P5 = MeasuredCluster(instance="p5.48xlarge", nodes=2, ranks=16, neuron=False)
HEAD = (
    "  size(B)    count(elems)    type    time:avg(us)    algbw(GB/s)    busbw(GB/s)    algorithm\n"
)
# 32 MiB in 402.38 us are 83.39 GB/s; the bus factor of 16 ranks is 1.875.
ROWS = (
    "     1024             512    bf16           21.43           0.05           0.09         mesh\n"
)
ROWS += (
    " 33554432        16777216    bf16          402.38          83.39         156.36          rdh\n"
)
END = "Avg bus bandwidth:\t109.0155GB/s\n"


def read(tmp_path, text, where=TRN1, name="sweep.txt"):
    path = tmp_path / name
    path.write_text(text)
    assert is_sweep(path)
    return read_sweep(path, where)


def test_text_of_nccom_test_tells_its_operation_and_group_by_the_bus_factor(tmp_path):
    found = read(tmp_path, HEAD + ROWS + END)
    assert found.set == "trainium_collectives"
    assert [row.text("time_us") for row in found.rows] == ["21.43", "402.38"]
    assert {row.text("ranks") for row in found.rows} == {"16"}
    assert {row.text("collective") for row in found.rows} == {"all-reduce"}
    assert "2 sizes of all-reduce over 16 ranks by nccom-test" in found.remarks[0]


def test_older_nccom_test_counts_gibibytes(tmp_path):
    text = "size(B) count(elems) type time(us) algbw(GB/s) busbw(GB/s)\n"
    text += "268435456 67108864 fp32 5010 49.90 93.56\n"
    (row,) = read(tmp_path, text).rows
    assert (row.text("size_bytes"), row.text("time_us")) == ("268435456", "5010.0")


def test_a_log_of_nccl_tests_behind_prefixes_of_mpirun():
    found = read_sweep(SAMPLES / "nccl_allreduce_2xp5_mpi_tag.log", P5)
    assert found.set == "gpu_collectives"
    last = found.rows[-1]
    assert (last.text("size_bytes"), last.text("time_us")) == ("2147483648", "9197.5")
    assert (last.text("gpus"), last.text("nodes"), last.text("collective")) == (
        "16",
        "2",
        "all-reduce",
    )
    assert "1 of no bytes left out" in found.remarks[0]


def test_json_of_both_tools(tmp_path):
    rows = [{"size(B)": 2**21, "count(elems)": 1, "type": "fp32", "time:avg(us)": 58.6}]
    rows[0] |= {"algbw(GB/s)": 35.7876, "busbw(GB/s)": 67.1017}
    (row,) = read(tmp_path, json.dumps({"results": rows}), name="a.json").rows
    assert (row.text("time_us"), row.text("ranks")) == ("58.6", "16")
    table = json.loads((SAMPLES / "nccl_tests.json").read_text())
    table["results"][0] |= {"size": 2**30}
    table["results"][0]["out_of_place"] = {"time": 6426.3, "alg_bw": 167.09, "bus_bw": 313.29}
    (row,) = read(tmp_path, json.dumps(table), P5, "b.json").rows
    assert (row.text("time_us"), row.text("gpus"), row.text("collective")) == (
        "6426.3",
        "16",
        "all-reduce",
    )
    assert "NCCL_DEBUG" not in str(row)


def test_sizes_that_failed_are_said(tmp_path):
    failed = (
        "67108864    Failure running neuron-bench - log file x.log\n1 errors found - test failed\n"
    )
    found = read(tmp_path, HEAD + ROWS + failed)
    assert len(found.rows) == 2
    assert "1 that failed left out" in found.remarks[0]


def test_the_name_of_a_file_may_tell_the_operation(tmp_path):
    text = HEAD + ROWS.replace("156.36", " 78.18").replace("0.09", "0.05")
    with pytest.raises(DataFileError, match="all-gather or reduce-scatter or all-to-all"):
        read(tmp_path, text)
    (row, _) = read(tmp_path, text, name="nccom_all_gather.txt").rows
    assert row.text("collective") == "all-gather"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            HEAD + "1024 512 bf16 fast 0.05 0.09 mesh\n" + END,
            "1 of 1 row of nccom-test cannot be read, first line 2",
        ),
        (HEAD + ROWS.replace("402.38", "40.238"), "1 of 2 rows"),
        (HEAD + ROWS + "4096 12\n", "first line 4"),
        (
            HEAD + "4096 Failure running neuron-bench - log file x\n",
            "no time of a collective: 1 size failed",
        ),
        (HEAD + ROWS.replace("156.36", "150.00"), "which no group of the 32 ranks"),
        ('{"results": [{"size(B)": 12', "not valid JSON"),
        ('{"results": 3, "x": "size(B)"}', "has no `results`"),
    ],
)
def test_half_understood_sweeps_are_refused(tmp_path, text, said):
    with pytest.raises(DataFileError, match=said):
        read(tmp_path, text)
