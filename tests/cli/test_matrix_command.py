"""`trnbench matrix`: what it answers, draws, traces and refuses."""

from __future__ import annotations

import json

import pytest

KEYS = {
    *("m", "k", "n", "batch", "chip", "dtype", "engine", "kernel", "cores", "time_s", "cycles"),
    *("flop", "flop_per_s", "utilization", "bytes", "binds", "evidence", "feasible", "reasons"),
}


def test_rows_have_the_documented_keys_and_agree_with_themselves(run):
    done = run("matrix", "1024x2048x512", "--on", "trainium1,trn2", "--dtype", "bf16,fp8", "--json")
    assert done.code == 0
    assert done.json["schema"] == "trnbench.matrix/1"
    rows = done.json["rows"]
    assert [(r["chip"], r["dtype"]) for r in rows] == [
        ("trainium1", "bf16"),
        ("trainium1", "fp8_e4m3"),
        ("trainium2", "bf16"),
        ("trainium2", "fp8_e4m3"),
    ]
    for row in rows:
        assert set(row) >= KEYS
        assert row["flop"] == 2 * 1024 * 2048 * 512
        assert row["flop_per_s"] == pytest.approx(row["flop"] / row["time_s"])
        assert row["utilization"] == pytest.approx(row["flop_per_s"] / row["peak_flop_per_s"])
        assert 0 < row["utilization"] < 1
        assert row["flop_per_s"] <= row["roofline_flop_per_s"] <= row["peak_flop_per_s"]


def test_both_engines_stand_beside_each_other(run):
    rows = run("matrix", "512x1024x2048", "--on", "trainium2", "--engine", "both", "--json").json
    closed, played = rows["rows"]
    assert (closed["engine"], played["engine"]) == ("analytic", "emulate")
    assert played["time_s"] == pytest.approx(closed["time_s"], rel=0.05)
    # A busy tensor engine multiplies at 0.87 of its rate.
    busy = played["engine_utilization"]["tensor"]
    assert 0.87 * busy == pytest.approx(played["utilization"], rel=0.01)
    text = run("matrix", "512x1024x2048", "--on", "trainium2", "--engine", "emulate").out
    assert "tensor engine waits for" in text


def test_kernels_get_better_step_by_step(run):
    times = [
        run("matrix", "2048x2048x2048", "--on", "trn1", "--kernel", kernel, "--json").json["rows"][
            0
        ]
        for kernel in ("naive", "hoisted", "blocked-free", "blocked")
    ]
    seconds = [row["time_s"] for row in times]
    assert seconds == sorted(seconds, reverse=True)


def test_all_cores_are_faster_than_one(run):
    def time_s(*options):
        return run("matrix", "4096x4096x4096", "--on", "trn2", "--json", *options).json["rows"][0][
            "time_s"
        ]

    assert time_s("--cores", "all") < time_s("--cores", "2") < time_s()


def test_kernels_have_the_level_of_their_software(run):
    def row(*options):
        return run("matrix", "16384x16384x16384", "--json", *options).json["rows"][0]

    pair = ("--on", "trainium2", "--cores", "2")
    by_hand, compiled = row(*pair), row(*pair, "--kernels", "compiled")
    assert (by_hand["kernels"], compiled["kernels"]) == ("nki", "compiled")
    # Measured with torch.compile: 63.6 and 65.4 ms.
    assert compiled["time_low_s"] < 63.6e-3 < 65.4e-3 < compiled["time_high_s"]
    # 2 x 16,384^3 / (2 x 128 x 128 x 2 x 2.4 GHz) = 55.92 ms at the peak, and 0.87 of it reached.
    assert by_hand["time_s"] == pytest.approx(55.92e-3 / 0.87, rel=0.002)
    assert compiled["time_low_s"] >= 55.92e-3
    # 173 us, 55.92 ms / 0.97, and 1.61 GB at 164 GB/s.
    assert compiled["time_s"] == pytest.approx(0.173e-3 + 57.65e-3 + 9.82e-3, rel=0.001)
    # Four pairs at once reached 455 TFLOP/s a chip.
    for engine in ("analytic", "emulate"):
        chip = row("--on", "trainium2", "--cores", "all", "--engine", engine)
        assert chip["flop_per_s"] == pytest.approx(455e12, rel=0.03)
    assert row("--on", "trainium2", "--kernels", "traced")["flop_per_s"] < 0.6 * 68e12


def test_what_is_unknown_of_software_is_no(run):
    played = run(
        "matrix", "512x512x512", "--on", "trn2", "--kernels", "traced", "--engine", "emulate"
    )
    assert played.code == 1
    assert "not published" in played.out
    on_gpu = run("matrix", "512x512x512", "--on", "h100", "--kernels", "compiled")
    assert on_gpu.code == 1
    assert "h100 has no compiled kernels" in on_gpu.out
    both = run("matrix", "8x8x8", "--on", "trn2", "--kernels", "traced", "--kernel", "naive")
    assert both.code == 2


def test_gpus_say_that_no_efficiency_is_applied(run):
    done = run("matrix", "4096x4096x4096", "--on", "h100", "--dtype", "fp8")
    assert done.code == 0
    assert "fp8_e4m3fn" in done.out
    assert "as kernels timed alone reach it" in done.out


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp32"])
def test_check_computes_the_product_in_the_format(run, dtype):
    arguments = ("matrix", "96x256x64", "--on", "trn2", "--dtype", dtype, "--check", "--json")
    row = run(*arguments).json["rows"][0]
    assert row["check"] == "ok"
    assert 0 < row["bound_use"] <= 1
    stochastic = (*arguments, "--rounding", "sr", "--seed", "7")
    assert run(*stochastic).out == run(*stochastic).out
    assert "of bound" in run(*arguments[:-1]).out


def test_sparsity_is_faster_and_checked(run):
    dense = run("matrix", "2048x4096x2048", "--on", "trn2", "--json").json["rows"][0]
    arguments = ("matrix", "2048x4096x2048", "--on", "trn2", "--sparsity", "4:16", "--json")
    sparse = run(*arguments).json["rows"][0]
    assert sparse["time_s"] < dense["time_s"] / 2
    assert sparse["flop"] == dense["flop"] / 4
    small = ("matrix", "64x256x32", "--on", "trn2", "--sparsity", "4:16", "--check", "--json")
    assert run(*small).json["rows"][0]["check"] == "ok"


def test_a_trace_is_written_for_one_play(run, tmp_path):
    target = tmp_path / "trace.json"
    done = run("matrix", "256x256x512", "--on", "trn1", "--engine", "emulate", "--trace", target)
    assert done.code == 0
    assert "ui.perfetto.dev" in done.err
    events = [e for e in json.loads(target.read_text())["traceEvents"] if e["ph"] == "X"]
    assert {"load a", "load b"} <= {event["name"] for event in events}
    end_s = max(event["ts"] + event["dur"] for event in events) * 1e-6
    time_s = run("matrix", "256x256x512", "--on", "trn1", "--engine", "emulate", "--json").json
    assert end_s == pytest.approx(time_s["rows"][0]["time_s"], rel=1e-6)


def test_what_cannot_run_leaves_no_trace(run, tmp_path):
    target = tmp_path / "trace.json"
    arguments = ("128x130x64", "--on", "trn2", "--sparsity", "4:16", "--engine", "emulate")
    done = run("matrix", *arguments, "--trace", target)
    assert done.code == 1
    assert "trace" not in done.err
    assert not target.exists()


def test_waits_of_the_tensor_engine_are_its_own(run):
    # Copies wait for output rows most of the time, which is not the tensor engine's wait.
    done = run("matrix", "200000x1x1", "--on", "trn2", "--engine", "emulate")
    waits = next(line for line in done.out.splitlines() if "tensor engine waits" in line)
    assert "output room" not in waits
    assert "copies out of PSUM wait for room in SBUF" in done.out


def test_a_plot_draws_rooflines(run):
    done = run("matrix", "256x256x256", "4096x4096x4096", "--on", "trn1,trn2", "--plot")
    assert "ridge at" in done.out
    assert "FLOP per byte" in done.out


def test_a_suite_runs_on_its_own_chips_and_on_others(run):
    rows = run("matrix", "--suite", "kernels", "--json").json["rows"]
    assert {row["chip"] for row in rows} == {"trainium1", "trainium2"}
    assert rows[0]["label"] == "NKI tutorial matmul"
    other = run("matrix", "--suite", "kernels", "--on", "trainium3", "--dtype", "bf16", "--json")
    assert {(r["chip"], r["dtype"]) for r in other.json["rows"]} == {("trainium3", "bf16")}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("128x128x64", "--on", "trainium1", "--dtype", "mxfp4"), "trainium1 has no mxfp4 product"),
        (("128x128x64", "--on", "trainium1", "--sparsity", "4:16"), "has no structured sparsity"),
        (("128x130x64", "--on", "trainium2", "--sparsity", "4:16"), "k=130, try 128 or 144"),
        (("128x128x64", "--on", "trainium2", "--cores", "9"), "trainium2 has 8 cores, not 9"),
        (("128x128x64", "--on", "h100", "--engine", "emulate"), "no NeuronCores to emulate"),
        (("128x128x64", "--on", "trn1", "--precision", "fast"), "no fast mode for bf16"),
        (("128x128x64", "--on", "h100", "--kernel", "naive"), "h100 has no kernel naive"),
    ],
)
def test_no_is_an_answer_with_reasons(run, arguments, said):
    done = run("matrix", *arguments)
    assert done.code == 1
    assert said in done.out
    assert done.err == ""
    row = run("matrix", *arguments, "--json").json["rows"][0]
    assert (row["feasible"], row["time_s"]) == (False, None)
    assert any(said in reason for reason in row["reasons"])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "give products (such as 4096x8192x8192) or --suite"),
        (("128x128x64", "--suite", "square", "--on", "trn2"), 2, "one of the two"),
        (("128x128x64",), 2, "on which chip?"),
        (("128x128", "--on", "trn2"), 2, "'128x128' is not a product"),
        (("-1x128x64", "--on", "trn2"), 2, "matrix has no -1"),
        (("0x128x64", "--on", "trn2"), 2, "`m` must be from 1"),
        (("9999999999999x1x1", "--on", "trn2"), 2, "is not a product"),
        (("999999999999x1x1", "--on", "trn2"), 2, "`m` must be from 1"),
        (("8x8x8", "--on", "trn9"), 2, "unknown chip 'trn9'"),
        (("8x8x8", "--on", "trn2,"), 2, "an empty name"),
        (("8x8x8", "--on", "trn2", "--dtype", "bf17"), 2, "did you mean 'bf16'?"),
        (("8x8x8", "--on", "trn2", "--sparsity", "4:15"), 2, "4:15"),
        (("8x8x8", "--on", "trn2", "--sparsity", "x"), 2, "'x'"),
        (("8x8x8", "--on", "trn2", "--cores", "0"), 2, "--cores"),
        (("8x8x8", "--on", "trn2", "--cores", "some"), 2, "--cores"),
        (("8x8x8", "--on", "trn2", "--seed", "1"), 2, "they need --check"),
        (("8x8x8", "--on", "trn2", "--check", "--seed", "-1"), 2, "seed"),
        (("8x8x8", "--on", "trn2", "--plot", "--json"), 2, "needs --format table"),
        (("8x8x8", "--on", "trn2", "--trace", "x.json"), 2, "played by --engine emulate"),
        (("--suite", "sqare"), 2, "did you mean 'square'?"),
        (("200000x200000x200000", "--on", "trn2", "--check"), 3, "is available"),
    ],
)
def test_malformed_requests_are_one_line(run, arguments, code, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("matrix", *arguments)
    assert done.code == code
    assert said in done.err
    assert done.out == ""
    assert len([line for line in done.err.splitlines() if "hint:" not in line]) == 1


def test_a_trace_that_nobody_could_open_is_refused(run, tmp_path):
    arguments = ("matrix", "65536x65536x65536", "--on", "trn2", "--engine", "emulate", "--trace")
    done = run(*arguments, tmp_path / "t.json")
    assert done.code == 2
    assert "take a smaller product" in done.err
    assert not (tmp_path / "t.json").exists()


def test_a_bare_array_counts_as_the_published_simulator_does(run):
    # 256^3 on 128 x 128, weights stay: 4 folds of 128 + 256 + 254 cycles, counted from 0.
    done = run("matrix", "256x256x256", "--array", "128x128:ws")
    assert done.code == 0
    assert "2,551" in done.out
    row = run("matrix", "100x77x300", "--array", "128x128:os", "--json").json["rows"][0]
    assert (row["folds"], row["cycles_per_fold"], row["cycles"]) == (3, 331, 992)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("8x8x8", "--array", "128:ws"), "--array: cannot read"),
        (("8x8x8", "--array", "0x128:ws"), "--array: cannot read"),
        (("8x8x8", "--array", "8x8:rs"), "--array: cannot read"),
        (("--array", "8x8:ws"), "give products"),
        (("8x8x8", "--array", "8x8:ws", "--on", "trn2"), "--array takes products"),
        (("8x8x8", "--array", "8x8:ws", "--kernel", "naive"), "--array takes products"),
    ],
)
def test_an_array_stands_alone(run, arguments, said):
    done = run("matrix", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_both_engines_say_how_closely_they_agree(run):
    options = ("--on", "trainium3", "--dtype", "fp32", "--engine", "both", "--kernel")
    close = run("matrix", "2048x2944x1152", *options, "blocked")
    assert "the engines agree within " in close.out
    apart = run("matrix", "2048x2944x1152", "1024x1024x1024", *options, "blocked-free")
    found = [line for line in apart.out.splitlines() if "do not agree" in line]
    assert len(found) == 1
    assert found[0].startswith("the engines do not agree on 2048x2944x1152 fp32 on trainium3: ")
    assert "agree within" not in apart.out
    assert "agree" not in run("matrix", "1024x1024x1024", "--on", "trainium3").out
