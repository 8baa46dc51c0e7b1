"""Memoised answers inside frozen records. Layer 0: imports nothing of the package.

A frozen record may keep derived values: each depends on its key and the record alone, so the order
of the questions never shows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from trnbench.facts.records import Record, field

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Memo(Record, Generic[Key, Answer], kw_only=False, eq=False):
    """Answers by key, each computed at its first use."""

    _answers: dict[Key, Answer] = field(default_factory=dict)

    def of(self, key: Key, make: Callable[[], Answer]) -> Answer:
        """The answer for a key, computed once; `make` may depend on the key and the record only."""
        try:
            return self._answers[key]
        except KeyError:
            answer = self._answers[key] = make()
            return answer

    def __contains__(self, key: object) -> bool:
        return key in self._answers

    def items(self) -> Iterable[tuple[Key, Answer]]:
        return self._answers.items()

    def __len__(self) -> int:
        return len(self._answers)
