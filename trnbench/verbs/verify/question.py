"""Question of `verify`: the first line of what `explain` says of a launched job and its logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.errors import InputError
from trnbench.verbs.asking.command_lines import command_question, with_folders
from trnbench.verbs.asking.question import Question, option
from trnbench.verbs.explain.question import ExplainQuestion, launched

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog


class VerifyQuestion(Question):
    """The folder of a launched job, and what its run has logged."""

    folder: Path = option(
        "What `trnbench launch` has written.",
        default=Path(),
        argument=True,
        required=True,
        metavar="FOLDER",
    )
    logs: tuple[Path, ...] = option(
        "Logs of its run, or CSV files of steps.",
        default=(),
        argument=True,
        required=True,
        several="repeated",
        metavar="LOG...",
    )

    def settled(self, catalog: Catalog) -> VerifyQuestion:
        """The question; refuse a folder that was not launched."""
        if not self.folder.is_dir():
            raise InputError(
                f"{self.folder}: is not a folder; name the folder that `launch` wrote, then logs"
            )
        launched(self.folder)
        return self

    def asked_of_explain(self, catalog: Catalog) -> ExplainQuestion:
        """The same question, as `explain` is asked it."""
        return ExplainQuestion.asked(catalog, {"measurements": (self.folder, *self.logs)})

    def why(self, catalog: Catalog) -> str:
        """The command that asks why the run went as it did."""
        asked = ExplainQuestion(measurements=(self.folder, *self.logs))
        return with_folders(command_question("explain", asked).line, catalog)

    def inputs(self) -> dict[str, object]:
        """The question as plain data."""
        return {"folder": str(self.folder), "logs": [str(path) for path in self.logs]}
