"""Answers of the terminal UI are kept as those of the command line are; without textual.

Kept once they are on their way to the screen, by the process that found them: no key waits for
it. One that was replaced at once, as by a number half typed, is replaced in the file of runs too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from trnbench.facts.records import Record

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.show.report import Report
    from trnbench.verbs.asking.command_lines import CommandQuestion

STOOD_S = 2.0
"""An answer that stood for less is replaced by the next."""


class AskedAnswer(Record):
    """An answer to a question of the command line; `good`: the command would exit with 0."""

    catalog: Catalog
    question: CommandQuestion
    report: Report
    good: bool


class AnswerKeeper:
    """Keeps the answers of a topic, question by question."""

    def __init__(self) -> None:
        self._ids: tuple[str, ...] = ()
        self._last: list[object] = []
        self._told: set[str] = set()

    def keep(
        self, answers: Sequence[AskedAnswer], began: datetime, seconds: float, *, stood: bool
    ) -> Iterator[str]:
        """Keep the answer to a question, unless kept last; yield the messages for the user.

        `stood`: the answer before is kept beside it.
        """
        from trnbench.store.place import keeps
        from trnbench.verbs.runs.keeping import kept_answer, kept_or_said

        if not keeps():
            return
        content: list[object] = [(one.question, kept_answer(one.report)) for one in answers]
        if content == self._last:
            return
        said: list[str] = []

        def keep_them() -> None:
            self._ids = self._kept(answers, began, seconds, () if stood else self._ids, said)
            self._last = content

        kept_or_said(keep_them, said.append, "answers are")
        yield from (text for text in said if text not in self._told)
        self._told.update(said)

    def _kept(
        self,
        answers: Sequence[AskedAnswer],
        began: datetime,
        seconds: float,
        replaced: tuple[str, ...],
        said: list[str],
    ) -> tuple[str, ...]:
        """Keep answers in place of some runs, and return their ids."""
        from trnbench.verbs.asking.command_lines import with_folders
        from trnbench.verbs.runs.keeping import GivenAnswer, keep

        ids: list[str] = []
        for one in answers:
            given = GivenAnswer(
                report=one.report,
                options=one.question.given,
                command=with_folders(one.question.line, one.catalog),
                started_at=began,
                seconds=seconds,
                exit_code=0 if one.good else 1,
                replaces=() if ids else replaced,
            )
            ids.append(keep(one.catalog, given, say=said.append))
        return tuple(ids)
