"""What `info` is asked: the installation, a matrix of what runs where, or a file of defaults."""

from __future__ import annotations

from trnbench.errors import InputError
from trnbench.verbs.asking.question import Question, option


class InfoQuestion(Question):
    """Which of the facts about the installation are shown; `init` writes a file instead."""

    support: bool = option(
        "Which kinds of models run with which stack on which instance, and how that is known.",
        default=False,
    )
    jobs: bool = option("Which jobs run with which stack, and who refuses what.", default=False)
    init: bool = option(
        "Write a trnbench.toml of all defaults, as remarks, for you.", default=False
    )
    force: bool = option("Let --init replace a file that is there.", default=False)

    def __post_init__(self) -> None:
        """Refuse options that do not go together."""
        if self.force and not self.init:
            raise InputError("--force goes with --init")
        if self.support and self.jobs and not self.init:
            raise InputError("--support and --jobs are two tables; give one of them")
