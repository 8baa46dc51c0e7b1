"""The README and the pages of the guide, whose captures and tables are real output."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCUMENTS = (README, *sorted((ROOT / "trnbench" / "show" / "guide").glob("*.md")))


def text_of_all() -> str:
    """Text of all documents."""
    return "\n".join(path.read_text() for path in DOCUMENTS)


def check(old: str, new: str) -> None:
    """A part of a document is as it must be; an update of golden files makes it so."""
    if not os.environ.get("TRNBENCH_UPDATE_GOLDEN"):
        assert old == new
        return
    for path in DOCUMENTS:
        text = path.read_text()
        if old in text:
            path.write_text(text.replace(old, new, 1))
