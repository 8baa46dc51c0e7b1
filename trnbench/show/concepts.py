"""Concepts and words as people read them."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.catalog.concepts import Concept
from trnbench.facts.workload.layout import Knob
from trnbench.show.text_table import GAP, wrap


def concept_text(found: Concept, width: int) -> str:
    """Return a concept: paragraphs, its words, commands to try."""
    blocks = [found.title]
    blocks += [wrap(one, width, "") for one in found.text.strip().split("\n\n")]
    blocks += [_defined(found.terms, width)] if found.terms else []
    blocks += ["\n".join(f"  {command}" for command in found.commands)] if found.commands else []
    return "\n\n".join(blocks)


def knob_text(knob: Knob, width: int) -> str:
    """Return a knob of a layout: its option, what that says, and for which jobs it is."""
    said = [f"{knob.option}: {knob.help}"]
    if knob.choices and knob.kind is not bool:
        said.append(f"values: {', '.join(map(str, knob.choices))}")
    if knob.of_jobs:
        said.append(f"with --job {', '.join(knob.of_jobs)}")
    return "\n".join(wrap(line, width, "") for line in said)


def list_text(topics: Mapping[str, str], terms: Mapping[str, str], width: int) -> str:
    words = wrap(f"words: {', '.join(terms)}", width, "")
    return f"trnbench help TOPIC explains:\n\n{_defined(topics, width)}\n\n{words}"


def _defined(words: Mapping[str, str], width: int) -> str:
    """Return words with their meanings behind them, in two columns."""
    first = max(map(len, words)) + 2 * len(GAP)
    return "\n".join(
        f"{GAP}{word}".ljust(first) + wrap(meaning, width, " " * first).lstrip()
        for word, meaning in words.items()
    )
