"""Rules for stages and MTP depths drawn by hand that fit no pipeline or not the model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray
from trnbench.facts.workload.choices import DEPTHS_TRAINED
from trnbench.facts.workload.model import Model, Transformer
from trnbench.facts.workload.pipeline_layout import depths_of
from trnbench.program.grid import Grid
from trnbench.program.reasons import Reason


def depth_reasons(model: Model, grid: Grid) -> Iterator[Reason]:
    """Rules on MTP depths: jobs and models without them, and where they may be drawn."""
    asked, depths = grid.mtp_depths, model.mtp_depths
    drawn = depths_of(grid.pipeline_layout) if grid.pipeline_layout is not None else ()
    at = next((i for i, here in enumerate(drawn) if here), len(drawn) - 1)
    shared = model.vocabulary is not None and model.vocabulary.tied
    jobs = " or ".join(DEPTHS_TRAINED)
    early = (grid.pp > 1) & ((at % grid.pp == 0) | (at < len(drawn) - grid.pp))
    rules: tuple[tuple[bool | BoolArray, str], ...] = (
        (asked not in (None, depths), f"mtp_depths={asked}: {model.without_depths}"),
        (
            depths > 0 and grid.job not in DEPTHS_TRAINED,
            f"job {grid.job} trains no MTP depths; try mtp_depths=0, or job {jobs}",
        ),
        (
            bool(drawn) and sum(drawn) != depths,
            f"pipeline_layout draws {sum(drawn)} MTP depths (m), and {depths} are trained; "
            f"try mtp_depths={sum(drawn)}",
        ),
        (
            early & (sum(drawn) > 0),
            f"pipeline_layout draws MTP depths (m) on stage {at + 1} of {len(drawn)}: they stand "
            "in the last chunk of a rank that is not the first; try mL",
        ),
        (
            shared and sum(drawn) > 0 and at < len(drawn) - 1,
            "MTP depths (m) apart from the loss (L) need output weights of their own, and "
            f"{model.name} shares those of the embedding; try mL",
        ),
    )
    for broken, words in rules:
        yield Reason("MTP depths", np.asarray(broken), words)


def drawn_reasons(
    transformer: Transformer, drawn: tuple[int, ...], parts: FloatArray
) -> Iterator[Reason]:
    """Rules on stages drawn by hand: their number, and the layers they hold."""
    yield Reason(
        "stages drawn",
        parts != len(drawn),
        lambda at: (
            f"pipeline_layout draws {len(drawn)} stages, and pp={at['pp']} x vpp={at['vpp']} "
            f"are {at['pp'] * at['vpp']}; try {len(drawn)} of them"
        ),
    )
    yield Reason(
        "layers",
        np.asarray(sum(drawn) != transformer.layers),
        f"pipeline_layout draws {sum(drawn)} layers (t), and the model has "
        f"{transformer.layers}; try as many",
    )
