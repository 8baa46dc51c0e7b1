"""Arguments of a command in a shell script: flags with their values, as people write them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from itertools import takewhile

from trnbench.errors import InputError
from trnbench.records import Record, field

_ASSIGNED = re.compile(
    r"(?m)^\s*(?:export\s+)?([A-Za-z_]\w*)=(\"[^\"\n]*\"|'[^'\n]*'|[^\s#;|&()]*)"
)
_NAMED = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")
_ARRAY = re.compile(r"(?ms)^\s*\w+=\((.*?)\)\s*$")
_BATCH = re.compile(r"(?m)^\s*#SBATCH\s+(?:--nodes[= ]|-N\s*)(\d+)")
_KEY = re.compile(r"[a-z_][\w.]*")
_DEEP = 5
"""Variables that name variables, so many times."""


class Flags(Record):
    """Flags by name, dashes and underscores alike; `settings` are the words KEY=VALUE."""

    of: str
    values: Mapping[str, str | None]
    settings: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        """Whether a flag is given."""
        return name in self.values

    def text(self, name: str) -> str | None:
        """Return the value of a flag, None where it is not given."""
        return self.values.get(name)

    def whole(self, name: str, otherwise: int | None = None) -> int:
        """Return the value of a flag that is a whole number."""
        return whole(self.of, f"--{name}", self.values.get(name), otherwise)

    def true(self, name: str, *, otherwise: bool = False) -> bool:
        """Return whether a switch is on; alone it is."""
        if name not in self.values:
            return otherwise
        return (self.values[name] or "true").lower() not in ("false", "0", "no")


def whole(of: str, what: str, text: object, otherwise: int | None = None) -> int:
    """Return a whole number above 0; without a text what stands in for it."""
    if text is None and otherwise is not None:
        return otherwise
    if isinstance(text, int) and not isinstance(text, bool) and text > 0:
        return text
    if isinstance(text, str) and re.fullmatch(r"[1-9]\d{0,11}", text):
        return int(text)
    raise InputError(
        f"{of}: {what}: expected a whole number above 0, found {text!s:.40}",
        hint="give the knob as an option beside --config, and take it out of the file",
    )


LISTS = ("recompute_modules", "hierarchical_context_parallel_sizes")
"""Flags with several words behind them."""


def read_flags(of: str, text: str) -> Flags:
    """Return the flags in a script, its variables put in their places.

    Nothing is run: what a command would print stays as it stands.
    """
    text = re.sub(r"\\\n", " ", text)
    variables = {
        # NAME=${NAME:-default} is what it is where nobody says otherwise.
        name: re.sub(rf"\$\{{{name}:-([^}}]*)\}}", r"\1", value.strip("\"'"))
        for name, value in _ASSIGNED.findall(text)
    }
    text = _ARRAY.sub(lambda found: found[1], text)
    values: dict[str, str | None] = {}
    settings: dict[str, str] = {}
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            continue
        words = _words(line, variables)
        for place, word in enumerate(words):
            name, equals, value = word.partition("=")
            if word.startswith("--"):
                after = words[place + 1] if place + 1 < len(words) else None
                own = after if after is not None and not after.startswith("--") else None
                name = name[2:].replace("-", "_")
                if own is not None and name in LISTS:
                    own = " ".join(takewhile(lambda one: one[:2] != "--", words[place + 1 :]))
                values[name] = value if equals else own
            elif equals and _KEY.fullmatch(name):
                settings[name] = value
    if (batch := _BATCH.search(text)) and "nnodes" not in values:
        values["nnodes"] = batch[1]
    return Flags(of=of, values=values, settings=settings)


def _words(line: str, variables: Mapping[str, str]) -> list[str]:
    for _ in range(_DEEP):
        line = _NAMED.sub(
            lambda found: variables.get(found[1] or found[3], found[2] or found[0]), line
        )
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()
