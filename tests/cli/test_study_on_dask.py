"""A study on a Dask cluster, one of whose workers is lost midway, has the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.fuzz.store_kills import prepare, table_of

CLUSTER = """
import sys, time
from distributed import LocalCluster
if __name__ == "__main__":
    options = dict(processes=True, dashboard_address=None, silence_logs=50)
    with LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster:
        pids = [worker.pid for worker in cluster.workers.values()]
        print(cluster.scheduler_address, *pids, flush=True)
        sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_study_on_dask_survives_a_lost_worker_and_has_the_same_bytes(tmp_path):
    (tmp_path / "cluster.py").write_text(CLUSTER)
    (tmp_path / "alone").mkdir()
    cells = 400
    whole = table_of(tmp_path / "alone", cells)
    cluster = subprocess.Popen(
        [sys.executable, str(tmp_path / "cluster.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert cluster.stdout is not None
    try:
        address, first, _ = cluster.stdout.readline().split()
        home = {"XDG_DATA_HOME": str(tmp_path / "data"), "TRNBENCH_KEEP": "1"}
        study = subprocess.Popen(
            [
                *(sys.executable, "-m", "trnbench", "study", "run"),
                *(str(prepare(tmp_path, cells)), "--scheduler", address, "--json"),
            ],
            env={**os.environ, **home},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert study.stderr is not None
        study.stderr.readline()  # says how many cells: they begin now
        with pytest.raises(subprocess.TimeoutExpired):
            study.wait(1.0)
        os.kill(int(first), signal.SIGKILL)
        out, told = study.communicate(timeout=240)
        assert study.returncode == 0, told[-800:]
        assert out == whole
    finally:
        cluster.communicate("\n", timeout=60)


@pytest.mark.slow
def test_no_cluster_is_one_line(run, tmp_path):
    path = prepare(tmp_path, 2)
    outcome = run("study", "run", path, "--scheduler", "tcp://127.0.0.1:9")
    assert outcome.code == 3
    assert "no Dask scheduler at tcp://127.0.0.1:9" in outcome.err
