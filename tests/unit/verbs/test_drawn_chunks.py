"""Stages drawn with unlike chunks: how far the closed form lies from the played step."""

from typing import Any

import pytest

from trnbench.verbs.train.run import train


@pytest.mark.parametrize(
    ("drawn", "below", "above"),
    [
        ("Et*9|(t*10|)*4(t*11|)*2t*9L", 0.024, 0.023),
        ("Et*9|(t*10|)*6t*11L", 0.024, 0.023),
        # Every other chunk is three times as heavy.
        ("Et*5|t*15|t*5|t*15|t*15|t*5|t*15|t*5L", 0.29, 0.023),
    ],
)
def test_chunks_drawn_unlike_are_as_far_from_the_played_step_as_the_note_says(drawn, below, above):
    given: dict[str, Any] = {"on": "p5.48xlarge:16", "stack": "nemo-hopper", "tp": 8, "cp": 1}
    given |= {"pp": 4, "vpp": 2, "schedule": "interleaved", "pipeline_layout": drawn, "zero": 1}
    given |= {"micro_batch": 1, "recompute": "full", "global_batch": 64, "sequence": 8192}
    closed, played = train("llama3.1-70b", engine="both", **given)
    assert closed.step is not None
    assert played.step is not None
    ratio = closed.step.step_time_s / played.step.step_time_s
    assert 1 - below < ratio < 1 + above
    assert any("priced as if alike" in note for note in closed.notes)
    assert not any("priced as if alike" in note for note in played.notes)


def test_chunks_that_are_alike_need_no_note():
    given: dict[str, Any] = {"on": "p5.48xlarge:16", "stack": "nemo-hopper", "tp": 8, "cp": 1}
    given |= {"pp": 4, "schedule": "interleaved", "zero": 1, "micro_batch": 1, "recompute": "full"}
    given |= {"vpp": 2, "pipeline_layout": "Et*10|(t*10|)*6t*10L", "global_batch": 64}
    (answer,) = train("llama3.1-70b", sequence=8192, **given)
    assert answer.step is not None
    assert not any("priced as if alike" in note for note in answer.notes)
