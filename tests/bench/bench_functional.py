"""How fast tiny-gpt trains with real numbers on 16 emulated ranks, and in how much memory."""

from __future__ import annotations

import resource

from tests.bench.figure import best_of, show
from trnbench.engines.execute.draws import text_of
from trnbench.engines.execute.optimizer import AdamW
from trnbench.engines.execute.trainer import Trainer, TrainingRun
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.program.step import training_step

STEPS = 5
CASES = (("fp32", 8.0), ("bf16-master", 6.0), ("bf16-sr", 6.0))
KIBIBYTE, GIGABYTE = 1024, 1e9


def trainer(precision: str) -> Trainer:
    """Return tiny-gpt on tp 4, pp 2, dp 2: 16 ranks, 1,024 tokens a step."""
    layout = Layout(
        tp=4,
        pp=2,
        dp=2,
        sequence_parallel=True,
        zero=1,
        global_batch=8,
        sequence=128,
        precision=precision,
    )
    model = load_model(open_catalog(), "tiny-gpt")
    text = text_of("markov", 256, seed=0)
    return Trainer(training_step(model, layout), TrainingRun(text=text, optimizer=AdamW()))


def main() -> None:
    """Print each figure beside its bar."""
    for precision, bar in CASES:
        made = trainer(precision)
        made.step()

        def work(made: Trainer = made) -> None:
            for _ in range(STEPS):
                made.step()

        _, cpu_s = best_of(work)
        show(f"tiny-gpt on 16 ranks, {precision}", STEPS / cpu_s, "steps/s", bar, "at least")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIBIBYTE / GIGABYTE
    show("memory of the process at most", used, "GB", 2.0, "at most")


if __name__ == "__main__":
    main()
