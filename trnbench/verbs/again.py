"""A question as the command line that asks it again, on any day and to the last digit."""

from __future__ import annotations

from trnbench.app.command_lines import CommandQuestion
from trnbench.asking.question import Question


def command_question(verb: str, question: Question) -> CommandQuestion:
    """Return the options of the command line that asks a verb a settled question."""
    spelled = {one.name: one.spelled for one in question.options().values() if one.spelled}
    return CommandQuestion(verb=verb, options=question.said(), spelled=spelled)
