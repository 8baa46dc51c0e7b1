"""The glossary and the topics of `trnbench help`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

from trnbench.errors import UnknownNameError
from trnbench.facts.catalog.toml_file import read_toml
from trnbench.facts.records import Record, shaped


class Concept(Record):
    """A topic: its text, the terms used with their definitions, and commands to try."""

    name: str
    title: str
    text: str
    terms: Mapping[str, str]
    commands: tuple[str, ...] = ()


def concept(name: str) -> Concept:
    """The topic or glossary term with this name."""
    explanation = explained(name)
    if explanation is None:
        titles = [*topic_titles(), *glossary()]
        raise UnknownNameError("topic", name, titles, lists="trnbench help")
    return explanation


def explained(name: str) -> Concept | None:
    """The topic or glossary term with this name; None for an unknown name."""
    topics, terms = topic_titles(), glossary()
    wanted = name.strip().lstrip("-").casefold()
    if wanted in topics:
        table = _topics()[wanted]
        used = {word: terms[word] for word in table["terms"]}
        return shaped({**table, "name": wanted, "terms": used}, Concept)
    for word, meaning in terms.items():
        if _plain(word) == _plain(wanted):
            return Concept(name=word, title=word, text=meaning, terms={})
    return None


def _plain(word: str) -> str:
    return word.casefold().replace("-", " ").removesuffix("s")


def topic_titles() -> Mapping[str, str]:
    return {name: table["title"] for name, table in _topics().items()}


def _topics() -> Mapping[str, Mapping[str, Any]]:
    return cast("Mapping[str, Mapping[str, Any]]", _file()["topics"])


def glossary() -> Mapping[str, str]:
    return cast("Mapping[str, str]", _file()["terms"])


@cache
def _file() -> Mapping[str, object]:
    return read_toml(Path(str(resources.files("trnbench"))) / "facts" / "catalog" / "concepts.toml")
