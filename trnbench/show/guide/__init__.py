"""Pages of the guide: text files beside this module, one for each topic."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

_ORDER = (
    *(
        "quickstart",
        "commands",
        "purchase",
        "uncertainty",
        "tui",
        "layout",
        "knobs",
        "jobs",
        "precision",
    ),
    *("engines", "numerics", "measure", "calibration", "launch", "history", "defaults", "claims"),
    *("own-cluster", "own-chip", "data-files", "accuracy", "support"),
)
"""Names of the pages, in the order in which a newcomer reads them."""


def pages() -> Mapping[str, str]:
    """Title of each page, by its name."""
    return {name: page(name).splitlines()[0].removeprefix("# ") for name in _ORDER}


def page(name: str) -> str:
    """Text of a page."""
    text = (resources.files(__name__) / f"{name}.md").read_text(encoding="utf-8")
    # Marks of generated tables are for tests.
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("<!--"))


def whole_guide() -> str:
    """Text of all pages and of the glossary, as one file."""
    from trnbench.facts.catalog.concepts import glossary

    words = "\n".join(f"- **{word}**: {meaning}" for word, meaning in glossary().items())
    return "\n".join([*(page(name) for name in _ORDER), f"# Words\n\n{words}\n"])
