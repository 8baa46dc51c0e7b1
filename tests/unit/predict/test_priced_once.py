"""A step's samples and its common draws: priced in one pass, they are what each is alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.prices import priced_step
from trnbench.predict.settled import with_habits
from trnbench.predict.setup import SetupMemo, train_setup
from trnbench.predict.step import drawn_times_s, predict

CATALOG = open_catalog(environment={})
DRAWS = CommonDraws()
TOGETHER = {"dense", "experts", "pipeline", "no layout"}
ROOM: dict[str, Any] = {"zero": 1, "recompute": "full", "sequence": 2048}
CASES: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "dense": ("llama3.1-8b", "trn1.32xlarge", 4, {"tp": 8}),
    "experts": ("mixtral-8x7b", "p5.48xlarge", 8, {"tp": 2, "ep": 8}),
    "pipeline": ("llama3.1-70b", "trn2.48xlarge", 8, {"tp": 8, "pp": 8}),
    "no layout": ("llama3.1-70b", "trn2.48xlarge", 4, {"tp": 48, "pp": 3}),
    "states on the host": (
        *("llama3.1-8b", "p5.48xlarge", 4),
        {"tp": 8, "optimizer_offload": "host"},
    ),
    "answers": ("llama3.1-8b", "p5.48xlarge", 4, {"tp": 8, "job": "grpo"}),
}


@pytest.mark.parametrize("case", CASES)
def test_one_pass_gives_what_two_give(case: str) -> None:
    model, instance, nodes, given = CASES[case]
    apart = train_setup(CATALOG, model, instance, nodes, assume_supported=True)
    together = replace(apart, draws=DRAWS, memo=SetupMemo())
    layout, _ = with_habits(apart.model, apart.stack, PartialLayout(**ROOM, **given), apart.ranks)
    shards = layout.degree("tp") * layout.degree("pp")
    layout = layout.changed(dp=apart.ranks // shards, micro_batch=1)
    asked = layout.complete()
    assert predict(together, asked) == predict(apart, asked)
    if case != "no layout":
        assert predict(apart, asked).step is not None
        drawn = drawn_times_s(together, asked, DRAWS, row="one")
        assert np.array_equal(drawn, drawn_times_s(apart, asked, DRAWS, row="one"))
        other = CommonDraws(count=33)
        assert np.array_equal(
            drawn_times_s(together, asked, other, row="one"),
            drawn_times_s(apart, asked, other, row="one"),
        )
        # Rates of hosts and engines are drawn in another order: those steps stay two passes.
        assert (priced_step(together, asked).drawn_s is not None) == (case in TOGETHER)
