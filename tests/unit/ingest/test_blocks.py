"""A file comes as blocks of whole lines, each with the number of its first."""

from __future__ import annotations

import pytest

from trnbench.evidence.readers import blocks as module
from trnbench.evidence.readers.blocks import blocks
from trnbench.evidence.readers.step_formats import EXACT


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_blocks_are_whole_lines_of_the_file_in_order(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(module, "BLOCK_BYTES", 100)
    monkeypatch.setattr(module, "_PART_BYTES", 25)
    lines = [b"x" * (i * 7 % 20) for i in range(60)]
    text = ending.join([*lines, b"the last has no end"])
    path = tmp_path / "run.log"
    path.write_bytes(text)
    found = list(blocks(path))
    assert b"".join(block.text for block in found) == text
    sizes = [len(block.text) for block in found]
    assert sizes[0] > 60 > max(sizes[2:])
    before = b""
    for block in found:
        assert not before or before.endswith((b"\n", b"\r"))
        assert block.line == 1 + before.count(b"\n")
        before += block.text


def test_a_number_is_that_of_the_first_words_that_have_one():
    titan = next(form for form in EXACT if form.name == "torchtitan")
    pattern = titan.compiled(titan.pattern)
    text = b"step:  7  tps: none total: t tps: 1,234.5 tps: 9\nstep: 8 \ntps: 3\nstep: 9 tps: 4e2"
    assert pattern.findall(text) == [(b"7", b"1,234.5"), (b"9", b"4e2")]
