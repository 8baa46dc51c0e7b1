"""Parts of a run as they are written, and back."""

from __future__ import annotations

import pytest

from trnbench.errors import InputError
from trnbench.facts.parsing import count_text
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.verbs.asking.run_parts import Part, part_text, parts_of


def test_shares_of_the_tokens_are_tokens():
    first, last = parts_of("2T", None, ("90%@4k", "10%@128k,cp=8,global-batch=256"))
    assert first == Part(tokens=1.8e12, sequence=4096)
    own = PartialLayout(cp=8, global_batch=256)
    assert last == Part(tokens=2e11, sequence=131_072, layout=own)


def test_modules_of_recompute_keep_their_comma():
    (part,) = parts_of(None, None, ("1B@8k,recompute=norms,activations,sequence-parallel=off",))
    assert part.layout.given == {"recompute": "norms,activations", "sequence_parallel": False}


@pytest.mark.parametrize(
    "text",
    ["1.9T@8192", "100B@131072,cp=8,recompute=full:4,sequence-parallel=on", "5B@1024,zero=0"],
)
def test_a_part_is_written_as_it_is_read(text):
    (part,) = parts_of(None, None, (text,))
    assert parts_of(None, None, (part_text(part, count_text(part.tokens or 0)),)) == (part,)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ((None, None, ()), "give one of"),
        (("1T", "5K", ()), "give one of"),
        (("1T", None, ("1T@8k",)), "parts in % need --tokens"),
        ((None, "5K", ("50%@8k",)), "give one of"),
        ((None, None, ("50%@8k",)), "share of --tokens"),
        (("1T", None, ("50%@8k", "1B@8k")), "every part"),
        (("1T", None, ("50%@8k", "40%@8k")), "90 %"),
        ((None, None, ("1B@8k,cp",)), "KNOB=VALUE"),
        ((None, None, ("1B",)), "TOKENS@SEQUENCE"),
        ((None, None, ("1B@8k,cp=2,cp=4",)), "twice"),
        ((None, None, ("1B@8k,sequence=4k",)), "behind the @"),
        ((None, None, ("1B@8k,job=dpo",)), "whole run"),
        ((None, None, ("1B@8k,adapter-rank=8",)), "whole run"),
        ((None, None, ("1B@8k,cpp=8",)), "did you mean"),
        ((None, None, ("1B@8k,schedule=lifo",)), "schedule"),
    ],
)
def test_what_is_no_part_is_refused(asked, says):
    with pytest.raises(InputError, match=says):
        parts_of(*asked)
