"""Arguments of a command in a shell script: flags with their values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from trnbench.errors import InputError
from trnbench.facts.records import Record, field

_ASSIGNED = re.compile(
    r"(?m)^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=(\"[^\"\n]*\"|'[^'\n]*'|[^\s#;|&()]*)"
)
_NAMED = re.compile(r"\$(?:\{(\w+)(?::-([^}\n]{0,400}))?\}|(\w+))")
_OPENS = re.compile(r"(?m)^[ \t]*\w+=\(")
_CLOSES = re.compile(r"(?m)\)[ \t]*$")
_BATCH = re.compile(r"(?m)^[ \t]*#SBATCH[ \t]+(?:--nodes[= ]|-N[ \t]*)(\d{1,7})\b")
_KEY = re.compile(r"[a-z_][\w.]*")
_DEEP = 5
"""Depth of variables that refer to variables."""
MOST_CHARACTERS = 1 << 21
"""Limit for a script with its variables replaced; usual ones have some thousand."""
_LONGEST_LINE = 1 << 14
"""Longer lines are split without regard to quotes: parsing takes quadratic time in a word."""
_MOST = 10**12
"""Upper limit of whole numbers: no knob is near it."""


class Flags(Record):
    """Flags of a script by name, with dashes as underscores."""

    of: str
    """Name of the script, for messages."""
    values: Mapping[str, str | None]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Words KEY=VALUE."""

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str) -> str | None:
        """Value of a flag; None where the flag or its value is missing."""
        return self.values.get(name)

    def whole(self, name: str, otherwise: int | None = None) -> int:
        return whole(self.of, f"--{name}", self.values.get(name), otherwise)

    def true(self, name: str, *, otherwise: bool = False) -> bool:
        """True where a switch is on; a switch without a value is on."""
        if name not in self.values:
            return otherwise
        return (self.values[name] or "true").lower() not in ("false", "0", "no")


BESIDE = "give the knob as an option with --config, and take it out of the file"
"""Remedy for a setting of a file that is not understood."""


def whole(of: str, what: str, text: object, otherwise: int | None = None) -> int:
    """A whole number above 0; `otherwise` where there is no text."""
    if text is None and otherwise is not None:
        return otherwise
    if isinstance(text, int) and not isinstance(text, bool) and 0 < text < _MOST:
        return text
    if isinstance(text, str) and re.fullmatch(r"[1-9]\d{0,11}", text):
        return int(text)
    huge = isinstance(text, int) and abs(text) >= _MOST
    given = "one of more than 12 digits" if huge else f"{text!s:.40}"
    raise InputError(f"{of}: {what}: expected a whole number above 0, found {given}", hint=BESIDE)


def number(of: str, what: str, text: str) -> float:
    if re.fullmatch(r"\d{1,12}(\.\d{0,12})?|\.\d{1,12}", text) and float(text) > 0:
        return float(text)
    raise InputError(f"{of}: {what}: expected a number above 0, found {text:.40}", hint=BESIDE)


LISTS = ("recompute_modules", "hierarchical_context_parallel_sizes")
"""Flags followed by several words."""


def read_flags(of: str, text: str) -> Flags:
    """Flags in a script, with its variables replaced; command substitutions stay as they are."""
    # Continued lines first, so that a flag and its value on the next line stand together.
    text = re.sub(r"\\\n", " ", text)
    variables = {
        name: _defaulted(name, value.strip("\"'")) for name, value in _ASSIGNED.findall(text)
    }
    text = _filled(of, _unwrapped(text), variables)
    values: dict[str, str | None] = {}
    settings: dict[str, str] = {}
    for line in text.splitlines():
        if line.lstrip().startswith("#") or ("--" not in line and "=" not in line):
            continue
        words = _words(line)
        for place, word in enumerate(words):
            name, equals, value = word.partition("=")
            if word.startswith("--"):
                name = name[2:].replace("-", "_")
                # The next word is a value unless a flag; a flag without value is a switch.
                behind = _behind(words, place)
                own = " ".join(behind) if name in LISTS else next(behind, None)
                values[name] = value if equals else own or None
            elif equals and _KEY.fullmatch(name):
                settings[name] = value
    # Lines of #SBATCH are comments to the shell, so the loop above has passed them over.
    if (batch := _BATCH.search(text)) and "nnodes" not in values:
        values["nnodes"] = batch[1]
    return Flags(of=of, values=values, settings=settings)


def _behind(words: Sequence[str], place: int) -> Iterator[str]:
    following = (words[n] for n in range(place + 1, len(words)))
    return takewhile(lambda word: not word.startswith("--"), following)


def _defaulted(name: str, value: str) -> str:
    # NAME=${NAME:-x} is x, as the environment is not known.
    return _NAMED.sub(
        lambda variable: variable[0] if variable[1] != name or variable[2] is None else variable[2],
        value,
    )


def _unwrapped(text: str) -> str:
    """A script with the content of its arrays in place of NAME=( ... )."""
    parts, at = [], 0
    while (opens := _OPENS.search(text, at)) and (closes := _CLOSES.search(text, opens.end())):
        parts += [text[at : opens.start()], text[opens.end() : closes.start()]]
        at = closes.end()
    return "".join((*parts, text[at:]))


def _filled(of: str, text: str, variables: Mapping[str, str]) -> str:
    """A script with its variables replaced; an error where that makes it too large."""
    # Round by round, as values name other variables; the bound on rounds ends circles, and that on
    # characters ends variables that double in every round.
    for _ in range(_DEEP):
        parts, size, at = list[str](), 0, 0
        for assignment in _NAMED.finditer(text):
            value = variables.get(assignment[1] or assignment[3], assignment[2] or assignment[0])
            parts += (text[at : assignment.start()], value)
            size += assignment.start() - at + len(value)
            at = assignment.end()
            if size > MOST_CHARACTERS:
                raise InputError(
                    f"{of}: its variables, put in their places, make more than "
                    f"{MOST_CHARACTERS:,} characters; leave out those that repeat others"
                )
        if not parts:
            break
        text = "".join((*parts, text[at:]))
    return text


def _words(line: str) -> list[str]:
    if len(line) > _LONGEST_LINE:
        return line.split()
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()
