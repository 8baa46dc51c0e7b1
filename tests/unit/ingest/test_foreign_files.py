"""Files of other tools as they come: cut anywhere, in blocks of any size, with endless lines."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.fuzz.foreign import SAMPLES
from trnbench.errors import InputError
from trnbench.evidence.readers.blocks import LineBlock
from trnbench.evidence.readers.collectives import MeasuredCluster, is_sweep, read_sweep
from trnbench.evidence.readers.devices import device_tool, read_devices
from trnbench.evidence.readers.step_text import in_short_lines
from trnbench.evidence.readers.steps import RunSize, read_steps
from trnbench.evidence.rows import is_table, read_evidence

RUN = RunSize(global_batch=64, sequence=2048, ranks=64)
WHERE = MeasuredCluster(instance="p5.48xlarge", nodes=2, ranks=16, neuron=False)
FEW_CUTS = 12
BLOCKS = (1, 7, 64, 500, 4096)
ONE_GPU = """\
#       size  count   type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong
     1048576 262144  float    sum    -1  4.53 231.36   0.00      0  0.30 3477.14  0.00      0
"""
JSON = """{"nccl_version": 22809, "args": ["all_reduce_perf"], "results": [
 {"size": 1048576, "type": "float", "redop": "sum",
  "out_of_place": {"time": 100.0, "alg_bw": 10.49, "bus_bw": 19.66, "nwrong": %s},
  "in_place": {"time": 100.0, "alg_bw": 10.49, "bus_bw": 19.66, "nwrong": %s}}]}"""


def read(path: Path, block_bytes: int = 0) -> object:
    """Return what a file says by the reader that it is of, or why it is refused."""
    try:
        if is_sweep(path):
            return read_sweep(path, WHERE)
        if device_tool(path):
            return read_devices(path)
        if is_table(path):
            return read_evidence(path)
        return read_steps(path, RUN, block_bytes=block_bytes)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_samples_that_are_cut_are_read_or_refused(sample, tmp_path):
    _cut(sample, tmp_path, FEW_CUTS)


@pytest.mark.soak
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_samples_that_are_cut_at_any_byte_are_read_or_refused(sample, tmp_path):
    _cut(sample, tmp_path, sample.stat().st_size + 1)


def _cut(sample: Path, folder: Path, most: int) -> None:
    raw, path = sample.read_bytes(), folder / sample.name
    for cut in random.Random(sample.name).sample(range(len(raw) + 1), min(most, len(raw) + 1)):
        for end in (b"", b"\n"):
            path.write_bytes(raw[:cut] + end)
            read(path)


@pytest.mark.parametrize(
    "text",
    [
        *(path.read_bytes() for path in SAMPLES if path.suffix == ".log"),
        b"step_time_ms: 1200\nstep_time_ms: 1210\nstep_time_ms: 1220\n",
        b"step time (s): 1.2\nstep time (s): none\n" + b"step time (s): 1.25\n" * 20,
        b"time per step in s: 1.2\ntime per step in s: 1,300 ms\n",
    ],
)
def test_blocks_of_any_size_and_a_last_line_without_end_give_one_result(text, tmp_path):
    path = tmp_path / "run.log"
    path.write_bytes(text)
    whole = read(path)
    path.write_bytes(text.rstrip(b"\n"))
    assert read(path) == whole
    for block_bytes in BLOCKS:
        assert read(path, block_bytes) == whole


def test_a_sweep_over_one_rank_is_rows_that_say_so(tmp_path):
    path = tmp_path / "one.log"
    path.write_text(ONE_GPU)
    found = read_sweep(path, WHERE.__class__(instance="p5.4xlarge", nodes=1, ranks=8, neuron=False))
    assert [row.cells["ranks"] if "ranks" in row.cells else row.cells["gpus"] for row in found.rows]
    assert found.rows[0].cells["gpus"] == "1"
    assert "one rank, which sends nothing" in (found.rows[0].fault or "")


@pytest.mark.parametrize(
    ("out", "in_place", "kept"),
    [("0", "0", True), ("0.0", "null", True), ("3", "0", False), ("0", "1.0", False)],
)
def test_sizes_that_came_out_wrong_are_no_rows(out, in_place, kept, tmp_path):
    path = tmp_path / "sweep.json"
    path.write_text(JSON % (out, in_place))
    found = read(path)
    if kept:
        assert not isinstance(found, str)
    else:
        assert "all its 1 size came out wrong" in str(found)


@pytest.mark.parametrize(("columns", "left"), [("7 0", 5), ("0 2", 5), ("N/A N/A", 6)])
def test_rows_of_a_log_with_wrong_data_are_left_out_and_said(columns, left, tmp_path):
    out, in_place = columns.split()
    text = next(p for p in SAMPLES if p.name == "nccl_allreduce_2xp5_mpi_tag.log").read_text()
    assert "126.33      0   1001.7   66.99  125.62      0" in text
    path = tmp_path / "all_reduce.log"
    path.write_text(
        text.replace(
            "126.33      0   1001.7   66.99  125.62      0",
            f"126.33      {out}   1001.7   66.99  125.62      {in_place}",
        )
    )
    found = read_sweep(path, WHERE)
    assert len(found.rows) == left
    assert ("1 whose data came out wrong" in found.remarks[0]) is (left == 5)


def test_no_pattern_sees_a_line_that_is_long(tmp_path):
    """Patterns that start anew in a line take time by its square: so lines are parted."""
    lines = [b"step: 1 " * 10, b"| 1/2 [00:01<" * 9_000, b"x" * 4096, b"a\r" * 9_000, b"end"]
    block = LineBlock(text=b"\n".join(lines), line=7)
    found = in_short_lines(block)
    assert max(map(len, re.split(rb"[\r\n]", found.text))) <= 4096
    assert found.line == 7
    assert found.text.count(b"\n") == block.text.count(b"\n")
    assert found.text.replace(b"\r", b"") == block.text.replace(b"\r", b"")
    short = LineBlock(text=b"\n".join([lines[0], lines[2]]), line=1)
    assert in_short_lines(short) is short
    bar = LineBlock(text=b"\r| 1/2 [00:01<00:02,  1.25s/it]" * 9_000 + b"\n", line=1)
    assert in_short_lines(bar) is bar


def test_a_long_word_in_a_sweep_and_a_long_cell_of_a_table_end_soon(tmp_path):
    path = tmp_path / "all_reduce.log"
    path.write_text(ONE_GPU + "x" * 2_000_000 + "\n")
    assert "ran over 1 rank, and" in str(read(path))
    path = tmp_path / "smi.csv"
    row = "{}, 50 %, 10 MiB\n"
    text = "index, utilization.gpu [%], memory.used [MiB]\n" + row.format(0) * 20
    path.write_text(text + row.format("5" * 140_000))
    assert read_devices(path).unread == 1
    path = tmp_path / "steps.csv"
    path.write_text("step_time_s\n1.5\n" + "1" * 2_000_000)
    assert "line 3 has more than 1,048,576 characters" in str(read(path))
