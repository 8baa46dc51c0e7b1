"""Answers kept inside records that never change. Layer 0: imports nothing of the package.

A frozen record may remember what it has worked out: each answer follows from its key and from the
record alone, so whoever asks first or twice gets the same, and nothing else can be seen to change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from trnbench.facts.records import Record, field

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Memo(Record, Generic[Key, Answer], kw_only=False, eq=False):
    """Answers by key, each made when it is first asked for."""

    _answers: dict[Key, Answer] = field(default_factory=dict)

    def of(self, key: Key, make: Callable[[], Answer]) -> Answer:
        """Return the answer for a key; `make` must depend on the key and the record only."""
        try:
            return self._answers[key]
        except KeyError:
            answer = self._answers[key] = make()
            return answer

    def __contains__(self, key: Key) -> bool:
        """Return whether the answer for a key is there already."""
        return key in self._answers

    def items(self) -> Iterable[tuple[Key, Answer]]:
        """Return the answers so far, by key."""
        return self._answers.items()

    def __len__(self) -> int:
        """Return how many answers there are so far."""
        return len(self._answers)
