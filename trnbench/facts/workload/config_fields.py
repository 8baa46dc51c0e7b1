"""Typed fields of a foreign configuration, with every fault collected."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trnbench.errors import Fault, did_you_mean
from trnbench.facts.catalog.quantity import kind_of
from trnbench.facts.records import MAX_SIZE

_STAND_IN = 1
"""Value in place of a faulty number, so that one pass finds every fault."""


class Fields:
    """Fields of one configuration; `faults` collects the errors of the fields read.

    A null value counts as absent, as in the libraries that write these files.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._config = config
        self.faults: list[Fault] = []

    def fault(self, key: str, message: str) -> None:
        self.faults.append(Fault(path=key, message=message))

    def has(self, key: str) -> bool:
        return self._config.get(key) is not None

    def mentions(self, key: str) -> bool:
        return key in self._config

    def whole(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        """A whole number; without a default the key is required."""
        value = self._present(key, default)
        if value is None:
            return _STAND_IN
        if type(value) is not int:
            self.fault(key, f"expected a whole number, found {kind_of(value)}")
        elif not minimum <= value < MAX_SIZE:
            self.fault(key, f"must be from {minimum} to {MAX_SIZE - 1}")
        else:
            return value
        return _STAND_IN

    def real(self, key: str, default: float) -> float:
        """A positive number, or the default."""
        value = self._present(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fault(key, f"expected a number, found {kind_of(value)}")
        elif not 0 < value < MAX_SIZE or not math.isfinite(value):
            self.fault(key, f"must be above 0 and below {MAX_SIZE}")
        else:
            return float(value)
        return default

    def flag(self, key: str, *, default: bool) -> bool:
        """A boolean, or the default."""
        value = self._present(key, default)
        if isinstance(value, bool):
            return value
        self.fault(key, f"expected true or false, found {kind_of(value)}")
        return default

    def text(self, key: str, default: str) -> str:
        """A text, or the default."""
        value = self._present(key, default)
        if isinstance(value, str):
            return value
        self.fault(key, f"expected a text, found {kind_of(value)}")
        return default

    def choice(self, key: str, known: Mapping[str, str], default: str) -> str:
        """The value in `known` for the text under the key, or for the default."""
        value = self.text(key, default)
        if value not in known:
            hint = did_you_mean(value, known)
            self.fault(key, f"{kind_of(value)} is not one of {', '.join(sorted(known))}{hint}")
            return known[default]
        return known[value]

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty if the key is absent."""
        value = self._present(key, [])
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.fault(key, f"expected a list of texts, found {kind_of(value)}")
        return ()

    def items(self, key: str) -> list[object]:
        """A list of texts or numbers; empty if the key is absent."""
        value = self._present(key, [])
        if isinstance(value, list) and all(isinstance(item, str | int) for item in value):
            return value
        self.fault(key, f"expected a list of texts or numbers, found {kind_of(value)}")
        return []

    def table(self, key: str) -> Mapping[str, object]:
        """A table; empty if the key is absent."""
        value = self._present(key, {})
        if isinstance(value, Mapping):
            return value
        self.fault(key, f"expected a table, found {kind_of(value)}")
        return {}

    def only(self, key: str, value: bool | int | str, why: str) -> None:
        found = self._config.get(key)
        if found is not None and (type(found) is not type(value) or found != value):
            self.fault(key, f"only {value!r} can be imported, found {kind_of(found)}: {why}")

    def share(self, of: str, key: str) -> int:
        """The number under `of` divided by the number under `key`, which must divide it."""
        known = len(self.faults)
        whole, parts = self.whole(of), self.whole(key)
        if len(self.faults) == known and whole % parts:
            self.fault(key, f"{parts} does not divide `{of}` {whole}")
        return max(whole // parts, _STAND_IN)

    def _present(self, key: str, default: object) -> object:
        value = self._config.get(key)
        if value is not None:
            return value
        if default is None:
            near = did_you_mean(key, (name for name in self._config if isinstance(name, str)))
            self.fault(key, f"missing{near}")
        return default
