"""Layout searches beside Calculon's: `python -m tests.bench.beside_calculon FOLDER [EVERY]`.

FOLDER is a checkout of github.com/calculon-ai/calculon (whose own requirements have to be there).
Both look for GPT-3 175B on 512 A100 of 80 GB, 8 a node, batch 512, sequence 2,048; Calculon without
overlap options and second memory, of every EVERY-th of its splits (unasked 40; 1 takes minutes).
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

from tests.bench.figure import best_of, show
from trnbench.verbs.search_layouts.run import search_layouts

RANKS, BATCH, EVERY = 512, 512, 40
SYSTEM, MODEL = "a100_80g.json", "gpt3-175B.json"


def main() -> None:
    """Print evaluations per processor second and the best layout of each."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if folder is None or not (folder / "calculon").is_dir():
        print("Calculon: not run (name the folder of a checkout)")
    else:
        _calculon(folder.resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else EVERY)
    found, cpu_s = best_of(
        lambda: search_layouts(
            model="gpt3-175b",
            instance="hgx-a100-80gb",
            nodes=RANKS // 8,
            global_batch=BATCH,
            sequence=2048,
            precision="bf16-master",
        )
    )
    assert found.best is not None
    best = found.best.layout
    show(f"trnbench, {found.legal:,} legal layouts", found.legal / cpu_s, "layouts/s")
    print(
        f"  best: tp {best.tp} pp {best.pp} dp {best.dp} vpp {best.vpp} micro-batch "
        f"{best.micro_batch} recompute {best.recompute}: {found.best.step_time_s:.2f} s"
    )


def _calculon(folder: Path, every: int) -> None:
    sys.path.insert(0, str(folder))
    llm: Any = importlib.import_module("calculon.llm.llm").Llm
    search: Any = importlib.import_module("calculon.llm.optimal_execution").OptimalExecution.search
    system_of: Any = importlib.import_module("calculon.system").System
    model = llm.Application(_json(folder / "models", MODEL))
    system = system_of(_json(folder / "systems", SYSTEM))
    splits = [
        (tp, pp, llm.get_data_parallelism(RANKS, tp, pp), vpp)
        for tp in llm.get_all_tensor_parallelisms(RANKS, model.hidden, model.attn_heads)
        for pp in llm.get_all_pipeline_parallelisms(RANKS, tp, model.num_blocks)
        for vpp in llm.get_valid_pipeline_interleavings(model.num_blocks, pp)
    ]
    modes = product(("full", "attn_only", "none"), (True, False), ("ar", "p2p_rs_ag", "rs_ag"))
    asked = [
        (split, mode)
        for split, mode in product(splits, tuple(modes))
        if BATCH % split[2] == 0 and (split[2] > 1 or not mode[1])
    ][::every]
    looked, best = 0, None
    start = time.process_time()
    for split, mode in asked:
        found, count, *_ = search(
            *(False, 1, False, RANKS, BATCH, "float16", model, system),
            *(*split, BATCH, *mode, [True], False, False, False),
        )
        looked += count
        if found and (best is None or found[0][0] > best[0]):
            best = found[0]
    rate = looked / (time.process_time() - start)
    show(f"Calculon, {looked:,} configurations", rate, "configurations/s")
    if best is not None:
        per_s, one, _ = best
        names = ("tensor_par", "pipeline_par", "data_par", "pipeline_interleaving")
        told = " ".join(f"{name} {one[name]}" for name in (*names, "microbatch_size"))
        print(f"  best of these: {told}: {BATCH / per_s:.2f} s")


def _json(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


if __name__ == "__main__":
    main()
