"""Streaming JSON reader: files of any size in little memory.

    reader = JsonReader(file, name)
    for key in reader.members():            # of the next object
        if key == "products": ...           # descend, or:
        else: reader.value()                # every member has to be read, wanted or not

The standard library decodes each member in one go; only a piece of the file is in memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import JSONDecodeError
from pathlib import Path
from typing import Any, TextIO

from trnbench.facts.catalog.text_file import refused

PIECE = 1 << 20
"""Characters per read."""
LONGEST = 1 << 26
"""Characters of the longest member; a longer one is not a price list."""
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class JsonReader:
    """Reader of the members of objects and lists, in file order."""

    def __init__(self, file: TextIO, path: Path) -> None:
        self._file, self._path = file, path
        self._text, self._at, self._over = "", 0, False

    def members(self) -> Iterator[str]:
        """Yield the keys of the next object; the caller reads each member before the next key.

        Yields nothing, and skips the value, if the next value is not an object.
        """
        if not self._enter("{"):
            return
        while self._peek() != "}":
            key = self.value()
            if self._peek() != ":":
                raise self._wrong("expected :")
            self._at += 1
            if not isinstance(key, str):
                raise self._wrong("expected a key")
            yield key
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != "}":
                raise self._wrong("expected , or }")
        self._at += 1

    def items(self) -> Iterator[Any]:
        """Yield the values of the next list; nothing if the next value is not a list."""
        if not self._enter("["):
            return
        while self._peek() != "]":
            yield self.value()
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != "]":
                raise self._wrong("expected , or ]")
        self._at += 1

    def skip(self, levels: int) -> None:
        """Skip the next value, whose members `levels` deep fit into memory."""
        if levels == 0 or self._peek() != "{":
            self.value()
            return
        for _ in self.members():
            self.skip(levels - 1)

    def value(self) -> Any:  # noqa: ANN401
        """The whole next value."""
        self._peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except JSONDecodeError as error:
                # A cut member and a broken member fail alike: only the end of the file tells them
                # apart, or a length that no member of a price list has.
                if self._over or len(self._text) - self._at > LONGEST:
                    raise self._wrong(error.msg, error.pos) from None
            except RecursionError:
                raise self._wrong("nested too deeply") from None
            else:
                # A number that reaches the end of what is held may go on.
                if end < len(self._text) or self._over:
                    self._at = end
                    return value
            self._more()

    def _enter(self, bracket: str) -> bool:
        if self._peek() != bracket:
            self.value()
            return False
        self._at += 1
        return True

    def _peek(self) -> str:
        """The next non-blank character; raise at the end of the file."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if self._over:
                raise self._wrong("the file ends too early")
            self._more()

    def _more(self) -> None:
        rest = self._text[self._at :]
        # Twice as much each time, so that a long member is not begun anew too often.
        piece = self._file.read(max(PIECE, len(rest)))
        self._text, self._at, self._over = rest + piece, 0, not piece

    def _wrong(self, what: str, at: int | None = None) -> Exception:
        place = self._at if at is None else at
        near = self._text[place : place + 20]
        return refused(self._path, f"not valid JSON near {near!r}: {what}")
