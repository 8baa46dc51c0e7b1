"""Lines about nothing are refused, and titles stand in Markdown as they are."""

from __future__ import annotations

import pytest

from trnbench.facts.calibration.supports import SupportLine
from trnbench.facts.terminal_text import markdown_text


def test_a_line_about_nothing_is_refused():
    with pytest.raises(ValueError, match="names one or more"):
        SupportLine(status="runs", features=())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script>alert(1)&lt;/script>"),
        ("one\ntwo | three", "one two \\| three"),
        ("[a](javascript:b)", "[a]\\(javascript:b)"),
        ("R&D, 80 % (of 5)", "R&D, 80 % (of 5)"),
    ],
)
def test_a_title_stands_in_markdown_as_it_is(text, shown):
    assert markdown_text(text) == shown
