"""How long logs take to read, by format: processor seconds and memory of a gigabyte."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench.figure import best_of, show
from trnbench.evidence.readers.steps import RunSize, read_steps

MEGABYTES = 100
BAR_S, BAR_MB = 15.0, 200.0


def _clock(step: int) -> str:
    passed = step * 5 // 4
    return f"{passed // 3600:02d}:{passed // 60 % 60:02d}:{passed % 60:02d}"


FORMATS: dict[str, Callable[[int], str]] = {
    "plain": lambda i: f"step {i} loss 2.{i % 1000:03d} step time: 1.2{i % 97:02d} s\n",
    "NxD": lambda i: (
        f"step {i} step_time 243.{i % 9973:04d}69110489s throughput 3.98{i % 97:02d}6862016 seq/s "
        "loss 13.412860887125134 grad norm 1.9788274765014648\n"
    ),
    "NxD ZeRO-1": lambda i: (
        f"LOG Mon Jan  5 10:11:12 2026 - (0, {i}) step_loss : 9.8765 learning_rate : 1.80e-05 "
        f"throughput : 12.{i % 97:02d} seq/s grad-norm : 2.1234567\n"
    ),
    "NxDT bar": lambda i: (
        f"\rEpoch 0:   0%|          | {i}/9000000 [{_clock(i)}<41:14:33,  1.25s/it, v_num=3-16, "
        f"reduced_train_loss=7.560, global_step={i}.0, consumed_samples={i * 128}.0]"
    ),
    "Megatron-LM": lambda i: (
        f" [2026-08-20 07:01:02.123456] iteration {i:8d}/ 2000000 | consumed samples: "
        f"{i * 128:12d} | elapsed time per iteration (ms): 51{i % 97:02d}.4 | learning rate: "
        "1.500000E-05 | global batch size:   128 | lm loss: 8.123456E+00 | loss scale: 1.0 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    ),
    "torchtitan": lambda i: (
        f"[rank0]:[titan] 2026-08-20 07:01:02,123 - root - INFO - step: {i:2d}  loss:  8.12345  "
        f"grad_norm:  1.2345  memory: 48.87GiB(61.62%)  tps: 6,7{i % 97:02d}  tflops: 393.12  "
        "mfu: 39.75%\n"
    ),
    "Optimum Neuron": lambda i: (
        "{'loss': 1.956, 'learning_rate': 0.0001, 'train/tokens_per_sec': 1437.7, "
        f"'train/step_time': 11.{i % 97:02d}, 'train/mfu': 85.6}}\n"
    ),
    "NeMo": lambda i: (
        f"Training epoch 0, iteration {i}/1999999 | lr: 3e-05 | global_batch_size: 128 | "
        f"global_step: {i} | train_step_timing in s: 4.3{i % 97:02d} | consumed_samples: {i}\n"
    ),
}


def main() -> None:
    """Print the processor time that a gigabyte of each format takes, and the memory of each log."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        for name, line in FORMATS.items():
            with path.open("w", newline="") as log:
                step = written = 0
                while written < MEGABYTES * 1e6:
                    step += 1
                    written += log.write(line(step))
            run = RunSize(
                global_batch=None if name in ("Megatron-LM", "NeMo", "NxDT bar") else 128,
                sequence=4096,
                ranks=64,
            )
            _, took_s = best_of(lambda run=run: read_steps(path, run))  # type: ignore[misc]
            show(f"a log of {name}", took_s * 1000 / MEGABYTES, "s a GB", BAR_S, "at most")
            show("  most memory", memory_mb(path, run), "MB", BAR_MB, "at most")


READ = """
import resource, sys
from pathlib import Path
from trnbench.evidence.readers.steps import RunSize, read_steps
told = [None if text == "None" else int(text) for text in sys.argv[2:]]
read_steps(Path(sys.argv[1]), RunSize(global_batch=told[0], sequence=told[1], ranks=told[2]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def memory_mb(path: Path, run: RunSize) -> float:
    """Return the most memory of a process that reads one log: this one has held all benchmarks."""
    told = [str(one) for one in (run.global_batch, run.sequence, run.ranks)]
    # Begun by a shell: a process counts what the one held from which it was copied.
    line = shlex.join([sys.executable, "-c", READ, str(path), *told])
    done = subprocess.run(["sh", "-c", f"{line}; true"], capture_output=True, text=True, check=True)
    return float(done.stdout)


if __name__ == "__main__":
    main()
