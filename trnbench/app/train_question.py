"""What a search is asked for a training step of which some settings are open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from trnbench.answers.train import Setting
from trnbench.app.train_setting import choices_of
from trnbench.app.train_setup import TrainSetup
from trnbench.plan.search_question import Fixed, Question


def question_of(
    setup: TrainSetup, setting: Setting, nodes: Sequence[int], *, headroom: float = 0.0
) -> Question:
    """Return what a search is asked for a setting: whatever is open is looked for."""
    batch, sequence, precision = setting.global_batch, setting.sequence, setting.precision
    assert batch
    assert sequence
    assert precision
    return Question(
        model=setup.model,
        platform=setup.platform,
        efficiency=setup.efficiency,
        collectives=setup.collectives,
        nodes=tuple(nodes),
        global_batch=batch,
        sequence=sequence,
        precision=precision,
        fixed=Fixed(**{one.name: getattr(setting, one.name) for one in fields(Fixed)}),
        headroom=headroom,
        logical_size=setup.logical_size,
        # With replicas fixed too, a layout says itself how many ranks it wants.
        whole_nodes=setting.dp is None,
        choices=choices_of(setting),
    )
