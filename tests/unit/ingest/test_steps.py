"""Logs of steps: what each format tells, what is left out, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from trnbench.errors import DataFileError
from trnbench.evidence.readers.steps import RunSize, read_steps

SAMPLES = Path(__file__).parents[2] / "samples"
RUN = RunSize(global_batch=64, sequence=4096, ranks=32)


def read(tmp_path, text, run=RUN, name="run.log"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_steps(path, run)


def step_s(tmp_path, text):
    return read(tmp_path, text).step_time_s


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing to see", "has no step time or rate"),
        ("", "has no step time or rate"),
        ("3,500 tokens/s/gpu", "a rate of one device"),
        ("tokens per second per device: 3500", "a rate of one device"),
        ("step,step_time_s\n1,fast\n", "line 2: step_time_s 'fast' is not a number"),
        ("step,step_time_s\n1,-3\n", "-3 is neither a time nor a rate"),
        ("step,step_time_s\n1,nan\n", "nan is neither a time nor a rate"),
        ("step time: 0 s", "0 is neither a time nor a rate"),
        ("Epoch 2 5e-324 tokens/s", "is neither a time nor a rate"),
    ],
)
def test_a_log_without_steps_is_refused(tmp_path, text, said):
    with pytest.raises(DataFileError, match=said):
        step_s(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "run", "expected_s", "batch"),
    [
        # The middle of five printed times; the rate beside them starts cold and is not used.
        ("nxd_llama3_70b_trn1.log", RunSize(), 243.86105, None),
        ("megatron_gpt3_slurm_srun_label.log", RunSize(), 0.087, 2),
        ("megatron_core_with_throughput.log", RunSize(), 5.1234, 128),
        ("nemo2_lightning.log", RunSize(), 4.319, 128),
        # 59:12, 59:30, 59:48; and 24,064 samples, then 24,192.
        ("nxdt_progress.log", RunSize(), 18.0, 128),
        # 64 x 4,096 tokens over 32 devices of 6,785 tokens a second; six ranks print one step.
        ("torchtitan_srun_ansi_residue.log", RUN, 64 * 4096 / 32 / 6785, 64),
        ("nxd_zero1.log", RUN, 64 / 12.34, 64),
        ("nxd_ptl.log", RUN, 64 / 12.34, 64),
        ("nxd_results.json", RUN, 64 / 12.3, 64),
        # The first window is cold: 40.74 s, then 11.4 and 11.51.
        ("optimum_neuron.log", RunSize(), 11.455, None),
        ("hf_trainer.log", RunSize(), 1 / 0.123, None),
        ("mllog.log", RunSize(), 32 / 30.694928, 32),
    ],
)
def test_samples_of_each_format(name, run, expected_s, batch):
    found = read_steps(SAMPLES / name, run)
    assert found.step_time_s == pytest.approx(expected_s, rel=1e-6)
    assert found.global_batch == batch


def test_torchtitan_tells_memory_of_a_rank():
    found = read_steps(SAMPLES / "torchtitan_srun_ansi_residue.log", RUN)
    assert found.memory_bytes == 68.57 * 2**30
    assert (found.used, found.lines) == (1, 6)
    assert "5 repeated lines" in found.remarks


def rates(times, batch=64):
    """Return what NeuronX Distributed prints of steps: windows of up to ten that start cold."""
    passed = [times[max(0, i - 9) : i + 1] for i in range(len(times))]
    return "".join(
        f"LOG Mon Jan  5 10:11:12 2026 - (0, {i}) step_loss : 9.8 learning_rate : 1e-05 "
        f"throughput : {batch * len(window) / sum(window):.6f} seq/s grad-norm : 2.1\n"
        for i, window in enumerate(passed, start=1)
    )


@pytest.mark.parametrize("steps", [8, 14, 60])
def test_a_moving_average_that_starts_cold_is_corrected(tmp_path, steps):
    # The printed rate of the eighth step means 19.6 s: the first one compiled for 90 s.
    assert step_s(tmp_path, rates([90.0] + [9.6] * (steps - 1))) == pytest.approx(9.6, rel=1e-3)


def test_a_bar_that_starts_cold_is_corrected(tmp_path):
    # A minute of compiling, then 0.8 s a step; carriage returns separate the states.
    clocks = [divmod(60 + int(0.8 * i), 60) for i in range(600)]
    states = [
        f"Epoch 0: {i}%| | {i}/9000 [{m:02}:{s:02}<3:00:00, {60 / max(i, 1) + 0.8:.2f}s/it, loss=7]"
        for i, (m, s) in enumerate(clocks)
    ]
    other = "Loading shards: 100%|###| 4/4 [00:31<00:00,  7.9s/it]\n"
    found = read(tmp_path, other + "\r".join(states))
    assert found.step_time_s == pytest.approx(0.8, rel=0.02)


def test_warm_up_odd_steps_and_a_change_of_pace_are_said(tmp_path):
    times = [180.0, 2.9] + [2.0] * 20 + [31.0] + [2.6] * 24
    text = "".join(f"step {i} step_time {t}s throughput 1 seq/s\n" for i, t in enumerate(times))
    found = read(tmp_path, text)
    assert (found.warm_up, found.odd, found.used) == (2, 1, 44)
    assert found.step_time_s == 2.6
    said = "; ".join(found.remarks)
    assert "2 of warm-up left out (longest 3 min)" in said
    assert "1 far from the median left out (longest 31 s)" in said
    assert "its pace changes from 2 s to 2.6 s per step" in said


def test_iterations_whose_optimizer_did_not_run_are_no_steps(tmp_path):
    line = (SAMPLES / "megatron_core_with_throughput.log").read_text()
    skipped = line.replace("5123.4", "4000.0").replace(
        "skipped iterations:   0", "skipped iterations:   1"
    )
    found = read(tmp_path, skipped + line, RunSize())
    assert (found.step_time_s, found.skipped) == (5.1234, 1)
    with pytest.raises(DataFileError, match="all 3 iterations of Megatron-LM were skipped"):
        read_steps(SAMPLES / "megatron_gpt3_k8s.log")


def test_steps_that_only_compiled_do_not_count(tmp_path):
    compiling = "step 1 step_time 0.1s\n2026 INFO ||NEURON_PARALLEL_COMPILE||: Total graphs: 36\n"
    assert step_s(tmp_path, compiling + "step 1 step_time 9.5s\n") == 9.5
    with pytest.raises(DataFileError, match="no step time or rate"):
        step_s(tmp_path, compiling)


def test_blocks_of_mlperf_steps(tmp_path):
    def entry(key, time_ms, value="null", more=""):
        return (
            f':::MLLOG {{"time_ms": {time_ms}, "key": "{key}", "value": {value}, '
            f'"metadata": {{{more}}}}}\n'
        )

    text = entry("global_batch_size", 1, "32") + entry("max_sequence_length", 1, "8192")
    for block in range(3):
        # 64 steps of 32 samples in 96 s, then an evaluation.
        text += entry("block_start", block * 200_000, more=f'"samples_count": {block * 2048}')
        text += entry(
            "block_stop", block * 200_000 + 96_000, more=f'"samples_count": {block * 2048 + 2048}'
        )
    found = read(tmp_path, "0: starting\n" + text, RunSize())
    assert (found.step_time_s, found.global_batch, found.sequence) == (1.5, 32, 8192)


def test_trainer_state(tmp_path):
    history = ", ".join(
        f'{{"step": {i}, "train/step_time": {t}}}' for i, t in ((1, 40), (2, 11), (3, 11))
    )
    text = f'{{"global_step": 3, "log_history": [{history}]}}'
    assert read(tmp_path, text, name="trainer_state.json").step_time_s == 11
    text = (
        '{"global_step": 100, "log_history": [{"loss": 2}, {"train_runtime": 812.5, "step": 100}]}'
    )
    assert read(tmp_path, text, name="trainer_state.json").step_time_s == 8.125


def test_objects_of_json_a_line_are_a_log(tmp_path):
    text = "".join(f'{{"step": {i}, "step_time": 1.5}}\n' for i in range(4))
    assert step_s(tmp_path, text) == 1.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "step 1 step_time 9.5s\nstep 2 step_time nans\n",
            "1 of 2 step lines of NeuronX Distributed cannot be read, first line 2: 'step 2",
        ),
        ("step time: nan\nstep time: 1.5 s\n", "1 of 2 step lines of plain lines"),
        (":::MLLOG {\n", "1 of 1 step lines of MLPerf log cannot be read, first line 1"),
        ('{"log_history": [', "not valid JSON"),
        ('{"log_history": []}', "no step time"),
        ('{"a": 1}', "is JSON of no known kind"),
        (b"step time: 1.5 s\n\0\0", "is a binary file"),
        (
            "step 7 step_time 4.1s\nstep 7 step_time 8.3s\n",
            "its ranks disagree: step 7 of NeuronX Distributed has 4.1 and 8.3",
        ),
        (
            "iteration 1/9 | elapsed time per iteration (ms): 9.0 | global batch size: 4 |\n"
            "iteration 2/9 | elapsed time per iteration (ms): 9.0 | global batch size: 8 |\n",
            "more than one global batch: 4, 8",
        ),
        (
            "iteration 1/9 | elapsed time per iteration (ms): 9.0 | global batch size: 4 |\n",
            "a global batch of 4, and 64 is given",
        ),
    ],
)
def test_what_is_half_understood_is_refused_with_its_line(tmp_path, text, said):
    with pytest.raises(DataFileError, match=said):
        read(tmp_path, text)


def test_a_rate_needs_what_a_step_was_of(tmp_path):
    with pytest.raises(DataFileError, match="give --global-batch and --sequence and --on"):
        read_steps(SAMPLES / "torchtitan.log")


def test_blocks_keep_lines_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("trnbench.evidence.readers.blocks.BLOCK_BYTES", 64)
    text = "".join(f"step {i} step_time {2 + i % 2 / 4}s throughput 1 seq/s\n" for i in range(99))
    found = read(tmp_path, text)
    assert (found.used, found.lines) == (99, 99)


def test_words_that_change_after_many_lines_are_read_as_before(tmp_path, monkeypatch):
    """Blocks of one label and unit are read quickly; others, and a nan, are not passed by."""
    monkeypatch.setattr("trnbench.evidence.readers.blocks.BLOCK_BYTES", 4096)
    lines = [f"step {i} step time: 2.00 s\n" for i in range(3000)]
    lines[1500:1510] = [f"step {i} step time: 2000 ms\n" for i in range(10)]
    lines[2000] = "step 2000 step time: nan\n"
    lines[2500] = "step 2500 step_time = 1,998.5 ms\n"
    path = tmp_path / "run.log"
    path.write_text("".join(lines))
    found = read_steps(path)
    assert (found.step_time_s, found.used, found.unread) == (2.0, 2999, 1)


def test_bars_of_several_totals_and_clocks_are_told_apart(tmp_path):
    """Seconds of clocks with and without hours, in one block with a bar of another total."""
    states = []
    for i in range(2400):
        passed = 2 * i
        hours = f"{passed // 3600:02d}:" if passed >= 3600 else ""
        clock = f"{hours}{passed // 60 % 60:02d}:{passed % 60:02d}"
        states.append(f"  1%|  | {i}/9999 [{clock}<9:00:00,  2.00s/it]\r")
        if i % 100 == 0:
            states.append(f"val: 1%|  | {i // 100}/50 [00:{i // 100:02d}<1:00,  1.00s/it]\r")
    path = tmp_path / "bar.log"
    path.write_text("".join(states), newline="")
    assert read_steps(path).step_time_s == pytest.approx(2.0)


def test_of_very_many_steps_some_are_looked_at_and_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("trnbench.evidence.readers.readings.MOST_KEPT", 100)
    path = tmp_path / "run.log"
    path.write_text("".join(f"step time: {1 + i % 7 / 100:.2f} s\n" for i in range(1000)))
    found = read_steps(path)
    assert found.step_time_s == pytest.approx(1.03)
    assert 50 < found.used <= 100
    assert found.lines == 1000
    assert "of 1,000 steps one in 16 is looked at" in found.remarks
    csv = tmp_path / "run.csv"
    csv.write_text("step_time_s\n" + "".join(f"{1 + i % 7 / 100:.2f}\n" for i in range(1000)))
    assert "of 1,000 steps one in 16 is looked at" in read_steps(csv).remarks
    numbered = tmp_path / "numbered.log"
    lines = (
        f"step {i} step_time {1 + i % 7 / 100:.2f}s throughput 4.0 seq/s\n" for i in range(300)
    )
    numbered.write_text("".join(lines))
    assert read_steps(numbered).used == 300, "numbered steps are all kept"


def _compiling(again: int) -> str:
    compiled = "2026-09-08 INFO ||NEURON_CC_WRAPPER||: Compiler status PASS\n"
    steps = [f"step {number} | step time: 2.4 s\n" for number in range(1, 21)]
    # Four graphs before the first step, two for the second; then one before each of the last ones.
    early = [compiled * 4, steps[0], compiled * 2, *steps[1 : 20 - again]]
    return "".join([*early, *(compiled + one for one in steps[20 - again :])])


@pytest.mark.parametrize(("again", "block_bytes"), [(0, 0), (9, 0), (9, 100)])
def test_compilations_between_steps_are_counted(tmp_path, again, block_bytes):
    log = tmp_path / "run.log"
    log.write_text(_compiling(again))
    found = read_steps(log, block_bytes=block_bytes)
    assert found.recompilations == again
    told = [one for one in found.remarks if "compiles 9 times more after its first steps" in one]
    assert len(told) == (again > 0)
