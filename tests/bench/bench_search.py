"""How fast layouts are searched: whole calls, everything from the lowering to the ranking."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from functools import partial

from tests.bench.figure import best_of, show
from trnbench.facts.catalog.search import open_catalog
from trnbench.predict.search.result import SearchResult
from trnbench.verbs.search_layouts.run import search_layouts

CATALOG = open_catalog()
POWERS = tuple(2**power for power in range(10))
UP_TO_512 = "1 to 512"
MANY, LARGE_BATCH = tuple(range(8, 513, 8)), 720_720
"""More than ten million legal layouts."""
ALL_TO_128 = ("llama3.1-70b", "trn2.48xlarge", range(1, 129), 1920, 8192)
CASES: tuple[tuple[str, str, str, Sequence[int], int, int], ...] = (
    ("llama3.1-70b", "trn2.48xlarge", "64", (64,), 1024, 8192),
    ("llama3.1-405b", "trn2.48xlarge", "256", (256,), 1024, 8192),
    ("gpt3-175b", "p5.48xlarge", "64", (64,), 1536, 2048),
    ("llama3.1-70b", "trn2.48xlarge", "60", (60,), 960, 8192),
    ("mixtral-8x7b", "trn2.48xlarge", "16", (16,), 1024, 8192),
    ("llama3.1-70b", "trn2.48xlarge", UP_TO_512, POWERS, 1024, 8192),
    ("llama3.1-70b", "p5.48xlarge", UP_TO_512, POWERS, 1024, 8192),
    ("mixtral-8x7b", "trn2.48xlarge", UP_TO_512, POWERS, 2048, 8192),
    (*ALL_TO_128[:2], "each to 128", *ALL_TO_128[2:]),
)
COMPARED = (
    *("trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge"),
    *("p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge"),
)


def searched(
    model: str,
    instance: str,
    nodes: Sequence[int],
    global_batch: int,
    sequence: int,
    best: int | None = None,
) -> SearchResult:
    """Return one search, of all layouts or of the best."""
    return search_layouts(
        model=model,
        instance=instance,
        nodes=nodes,
        global_batch=global_batch,
        sequence=sequence,
        precision="bf16-master",
        best=best,
        catalog=CATALOG,
    )


def main() -> None:
    """Print each figure beside its bar: what a search costs at once, and each further layout."""
    found: dict[str, tuple[int, float]] = {}
    for model, instance, text, nodes, global_batch, sequence in CASES:
        result, cpu_s = best_of(partial(searched, model, instance, nodes, global_batch, sequence))
        found[f"{model} {text}"] = result.legal, cpu_s
        what = f"{model}, {instance}:{text}, {result.legal:,}"
        show(what, result.legal / cpu_s, "layouts/s")
    _, fixed_s = found["llama3.1-405b 256"]
    show("fixed cost of one cluster size", fixed_s, "s", 0.04, "at most")
    legal, cpu_s = found["llama3.1-70b each to 128"]
    show("marginal rate over 128", legal / (cpu_s - fixed_s), "layouts/s", 4e6, "at least")
    few, cpu_s = best_of(partial(searched, *ALL_TO_128, best=20))
    show(f"best 20 of {few.legal:,} layouts", few.legal / cpu_s, "layouts/s", 15e6, "at least")
    many, cpu_s = best_of(
        partial(searched, "llama3.1-70b", "trn2.48xlarge", MANY, LARGE_BATCH, 8192), 1
    )
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    show(f"each of {many.legal:,} layouts", many.legal / cpu_s, "layouts/s", 1e8 / 120, "at least")
    show("largest memory", used, "GB", 1.5, "at most")
    _, cpu_s = best_of(lambda: [searched("llama3.1-70b", i, POWERS, 1024, 8192) for i in COMPARED])
    show("llama3.1-70b, six instance types, 1 to 512 nodes", cpu_s, "s")


if __name__ == "__main__":
    main()
