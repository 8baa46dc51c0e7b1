"""Rows of collectives and kernels: what ran, and why some rows say nothing."""

from __future__ import annotations

import pytest

from trnbench.evidence.collectives import compare_collectives, fitted
from trnbench.evidence.comparison import Comparison
from trnbench.evidence.kernels import compare_kernels
from trnbench.evidence.rows import EvidenceFile, EvidenceRow
from trnbench.facts.catalog.search import open_catalog

GPU = {
    "platform": "p5.48xlarge (AWS Batch)",
    "gpu": "H100",
    "nodes": "1",
    "gpus": "8",
    "collective": "all_reduce",
    "size_bytes": "1073741824",
    "busbw_GBps": "350",
}
KERNEL = {
    "hardware": "trn2",
    "kernel": "matmul fully blocked (M,N,K)",
    "shape": "M4096 K8192 N8192",
    "dtype": "fp32",
    "latency_ms": "28.3",
}


def exchange(**cells: str) -> Comparison:
    row = EvidenceRow(id="row", line=2, cells=GPU | cells)
    (found,) = compare_collectives(
        open_catalog(), EvidenceFile(name="rows.csv", set="gpu_collectives", rows=(row,))
    )
    return found


def kernels(*rows: dict[str, str]) -> tuple[Comparison, ...]:
    read = tuple(EvidenceRow(id=f"r{i}", line=i, cells=KERNEL | r) for i, r in enumerate(rows))
    file = EvidenceFile(name="rows.csv", set="trainium_kernels", rows=read)
    return compare_kernels(open_catalog(), file)


def test_a_bus_bandwidth_gives_the_time():
    # 2^30 B x 2 x 7/8 / 350e9 B/s = 5.369 ms; in algbw the factor is missing.
    assert exchange().measured_s == pytest.approx(2**30 * 1.75 / 350e9)
    assert exchange(busbw_GBps="", algbw_GBps="200").measured_s == pytest.approx(2**30 / 200e9)
    assert exchange(time_us="5000").measured_s == pytest.approx(5e-3)


def test_the_prediction_names_instance_and_stack():
    found = exchange()
    assert found.platform == "p5.48xlarge"
    assert found.stack == "collective-nccl-hopper"
    assert found.predicted_s is not None
    assert found.size_bytes == 2**30


def test_a_version_with_a_stack_of_its_own_is_used():
    assert exchange(nccl="2.18.5", nodes="2", gpus="16").stack == "collective-nccl-2.18-hopper"
    assert exchange(nccl="2.27.7").stack == "collective-nccl-hopper"


def test_a_forced_ring_is_slower_than_adding_in_the_switch():
    ring, chosen = exchange(algo="Ring"), exchange()
    assert ring.predicted_s is not None
    assert chosen.predicted_s is not None
    assert ring.predicted_s > chosen.predicted_s


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"platform": "abacus"}, "unknown system 'abacus'"),
        ({"gpus": "seven"}, "gpus: 'seven' is not a number"),
        ({"gpus": "16"}, "8 ranks per node"),
        ({"gpus": "9", "nodes": "2"}, "do not spread evenly"),
        ({"size_bytes": ""}, "size_bytes: not given"),
        ({"collective": "gossip"}, "not a collective that is modelled"),
        ({"algo": "nvlstree"}, "is not modelled"),
        ({"busbw_GBps": ""}, "algbw_GBps: not given"),
        ({"time_stat": "p50 host-timed"}, "timed on the host"),
    ],
)
def test_an_exchange_that_cannot_be_predicted_says_why(cells, reason):
    found = exchange(**cells)
    assert found.predicted_s is None
    assert reason in str(found.reason)


def test_rows_of_a_calibration_are_known_by_pattern():
    entries = ("P5-[48]n-AR-* X-1: ring, from 1 MiB", "Y-*: floor")
    assert fitted(entries, "P5-4n-AR-1024")
    assert fitted(entries, "X-1")
    assert fitted(entries, "Y-anything")
    assert not fitted(entries, "P5-2n-AR-1024")
    assert not fitted((), "X-1")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"kernel": "conv1d depthwise"}, "kernel type not modelled"),
        ({"kernel": "matmul_scan"}, "kernel type not modelled"),
        ({"shape": "see harness"}, "does not give M, K and N"),
        ({"latency_ms": ""}, "latency_ms: not given"),
        ({"latency_stat": "host wall clock"}, "timed on the host"),
        ({"hardware": "abacus"}, "unknown chip 'abacus'"),
        ({"dtype": "int3"}, "unknown number format"),
        ({"kernel": "adamw"}, "no row tells how many bytes"),
    ],
)
def test_a_kernel_that_cannot_be_predicted_says_why(cells, reason):
    (found,) = kernels(cells)
    assert found.predicted_s is None
    assert reason in str(found.reason)


def test_the_last_step_of_a_search_has_the_full_blocking():
    first, last, naive = kernels(
        {"kernel": "matmul, search step 1"},
        {"kernel": "matmul, search step 2"},
        {"kernel": "matmul, search step 0 (naive)"},
    )
    assert "intermediate result of a kernel search" in str(first.reason)
    (blocked,) = kernels({})
    assert last.predicted_s == blocked.predicted_s
    assert naive.predicted_s is not None
    assert blocked.predicted_s is not None
    assert naive.predicted_s > blocked.predicted_s


def test_a_stream_moves_the_bytes_counted_for_its_operator_and_shape():
    counted = {"kernel": "adamw (one)", "shape": "{M: 8 N: 4}", "hbm_read_MB": "300"}
    own, other, unlike = kernels(
        counted | {"hbm_write_MB": "100"},
        {"kernel": "adamw (two)", "shape": "M8 N4"},
        {"kernel": "adamw (two)", "shape": "M8 N5"},
    )
    assert own.predicted_s == other.predicted_s
    assert other.assumed == ("memory traffic as counted for r0",)
    assert unlike.predicted_s is None
