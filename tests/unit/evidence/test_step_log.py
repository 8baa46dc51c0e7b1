"""Logs of steps: what is a step time or a rate in them, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trnbench.catalog.search import BUILT_IN, Catalog, Folder, built_in_folder
from trnbench.errors import DataFileError
from trnbench.evidence.step_log import LoggedRun, logged_steps
from trnbench.evidence.training_told import told_by
from trnbench.hardware.library import load_platform
from trnbench.workload.partial_layout import PartialLayout

CATALOG = Catalog((Folder(built_in_folder(), BUILT_IN),))


def run(instance="trn1.32xlarge", **changes):
    known = LoggedRun(
        model="llama3.1-8b",
        platform=load_platform(CATALOG, instance),
        nodes=1,
        layout=PartialLayout(
            tp=8,
            micro_batch=1,
            global_batch=64,
            sequence=4096,
            zero=1,
            sequence_parallel=True,
            recompute="selective",
            precision="bf16-master",
        ),
    )
    return replace(known, **changes)


def step_s(tmp_path, text, **changes):
    path = tmp_path / "run.log"
    path.write_text(text)
    file = logged_steps(path, run(**changes))
    (row,) = file.rows
    return told_by(row, file.set).measured_s


@pytest.mark.parametrize(
    ("line", "expected_s"),
    [
        ("step 3 | step time: 9.25 s | loss 4.2", 9.25),
        ("step_time=9250 ms", 9.25),
        ("iteration 7/10 | elapsed time per iteration (ms): 9250.0 | loss", 9.25),
        ("train_step_timing in s=9.25", 9.25),
        ("9.25 was no step; iteration time 9.25", 9.25),
        # 64 samples of 4,096 tokens are 262,144 tokens.
        ("throughput 26,214.4 tokens/s", 10.0),
        ("tokens_per_s: 26214.4", 10.0),
        ("loss 4.2, 6.4 samples/s", 10.0),
        ("seq/s = 6.4", 10.0),
    ],
)
def test_a_line_tells_a_step(tmp_path, line, expected_s):
    assert step_s(tmp_path, f"compiled in 73 s\n{line}\nsaved") == pytest.approx(expected_s)


def test_the_median_leaves_out_the_first_steps(tmp_path):
    times = [90, 12, 10.0, 10.2, 10.1, 10.3, 10.1, 10.1, 10.0, 11.0]
    text = "".join(f"step time: {time} s\n" for time in times)
    # Two of ten are warm-up; of the other eight the middle two are 10.1.
    assert step_s(tmp_path, text) == pytest.approx(10.1)


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("step,step_time_s\n1,90\n2,10\n3,10\n", 10.0),
        ("step,step_time_ms\n1,90000\n2,10000\n", 10.0),
        ("step,loss,tokens_per_s\n1,9,100\n2,8,26214.4\n3,8,26214.4\n", 10.0),
        ("seq_per_s\n6.4\n", 10.0),
    ],
)
def test_a_csv_log_has_a_column_of_steps(tmp_path, text, expected_s):
    assert step_s(tmp_path, text) == pytest.approx(expected_s)


def test_gpus_have_rows_of_their_own_kind(tmp_path):
    assert step_s(tmp_path, "step time: 2 s", instance="p5.48xlarge") == 2.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing to see", "has no step time or rate"),
        ("", "has no step time or rate"),
        ("3,500 tokens/s/gpu", "a rate of one device"),
        ("tokens per second per device: 3500", "a rate of one device"),
        ("step,step_time_s\n1,fast\n", "line 2: step_time_s 'fast' is not a number"),
        ("step,step_time_s\n1,-3\n", "-3 is no time and no rate"),
        ("step,step_time_s\n1,nan\n", "nan is no time and no rate"),
        ("step time: 0 s", "0 is no time and no rate"),
    ],
)
def test_a_log_without_steps_is_refused(tmp_path, text, said):
    with pytest.raises(DataFileError, match=said):
        step_s(tmp_path, text)
