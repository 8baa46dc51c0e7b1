"""Requests -> questions of the command line that ask the same, on any day and to the last digit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from trnbench.facts.catalog.search import BUILT_IN, USER, Catalog
from trnbench.facts.parsing import number_text
from trnbench.facts.records import Record, field
from trnbench.verbs.asking.question import Question

Value = str | int | float | bool | None
ARGUMENTS: Mapping[str, str] = {
    "matrix": "shapes",
    "collective": "op",
    "claims": "claim",
    **dict.fromkeys(("calibrate", "explain"), "measurements"),
    "measure": "kind",
    "fleet": "file",
    "launch": "model",
    **dict.fromkeys(("train", "compare", "plan"), "model"),
}
"""The option of a verb that is written without its name."""


class CommandQuestion(Record):
    """A verb and its options by name; an option of None is not given.

    `spelled`: what the command line calls those that have another name there.
    """

    verb: str
    options: Mapping[str, Value | Sequence[str]]
    spelled: Mapping[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        named = {self.spelled.get(name, name): value for name, value in self.options.items()}
        first = named.pop(ARGUMENTS.get(self.verb, ""), None) or ()
        return command_line(self.verb, *_texts(first), **named)

    @property
    def given(self) -> dict[str, Any]:
        """The options that are given, as kept runs have them: texts, switches, lists of texts."""
        return {
            name: value if isinstance(value, str | bool) else _plain(value)
            for name, value in self.options.items()
            if value not in (None, (), [])
        }


def command_line(verb: str, *arguments: str, **options: Value | Sequence[str]) -> str:
    """Return a command line; an option of None is left out, one of several values repeated.

    True is the bare option, False its opposite.
    """
    words = ["trnbench", verb, *arguments]
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        elif isinstance(value, str | int | float):
            words += [option, value if isinstance(value, str) else number_text(value)]
        else:
            for item in value or ():
                words += [option, item]
    return shlex.join(words)


def with_folders(line: str, catalog: Catalog) -> str:
    """Return a command line with the folders that its catalogue was asked to look in.

    Those of the environment and of defaults are among them: another shell has others.
    """
    asked = [folder.path for folder in catalog.folders if folder.origin not in (USER, BUILT_IN)]
    return line + "".join(f" --spec-dir {shlex.quote(str(path.resolve()))}" for path in asked)


def _texts(value: Value | Sequence[str]) -> Sequence[str]:
    return value if isinstance(value, list | tuple) else (str(value),)


def _plain(value: Value | Sequence[str]) -> str | list[str]:
    return number_text(value) if isinstance(value, int | float) else [*_texts(value)]


def command_question(verb: str, question: Question) -> CommandQuestion:
    spelled = {
        option.name: option.spelled for option in question.options().values() if option.spelled
    }
    return CommandQuestion(verb=verb, options=question.said(), spelled=spelled)
