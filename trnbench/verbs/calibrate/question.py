"""Question of `calibrate`: files of measurements, and the stacks that are fitted to them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.verbs.asking.given_run import GivenRun
from trnbench.verbs.asking.option import Given
from trnbench.verbs.asking.question import Question, group, option

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog


class CalibrateQuestion(Question):
    """Files of measured steps to fit, and the date that the calibrations bear.

    One training stack, whose chips keep their numbers, or all that rows name, with their chips.
    A stack that is not known, or any with `start`, begins as the stack named so, or as software of
    a kind: eager, compiled, graph. `all_rows`: those that a file keeps for validation too; `also`
    single ones of these, by id.
    """

    measurements: tuple[Path, ...] = option(
        "CSV files of measured steps. Or a folder of `launch` or `plan --pilot`, then logs "
        "of its job. Or logs and folders of them, with --model and --on. Or what nccom-test and "
        "nccl-tests print, with --on, and CSV files of collectives.",
        metavar="MEASUREMENTS...",
        several="repeated",
        argument=True,
        required=True,
    )
    stack: str | None = option(
        "The one training stack to fit, known or new; default: all that rows name, and "
        "their chips.",
        parse=parsing.file_name,
        completes=("stacks",),
    )
    start: str | None = option(
        "What the stack begins as; a new one: as what its software is nearest to.",
        spelled="from",
        metavar="STACK|eager|compiled|graph",
        completes=("stacks",),
    )
    all_rows: bool = option("Also rows that a file keeps for validation.")
    also: tuple[str, ...] = option(
        "Single rows that a file keeps for validation.", metavar="ID,..."
    )
    date: datetime.date | None = option(
        "Date that the files bear; default: today.", read=parsing.date
    )
    given: GivenRun = group(GivenRun)

    def __post_init__(self) -> None:
        if self.stack is None and self.start is not None:
            raise InputError("--from says how one stack begins: name it with --stack")

    @classmethod
    def filled(cls, given: Given, catalog: Catalog) -> Given:
        """The options, with those that the folder of a job says of its logs."""
        from trnbench.verbs.explain.question import is_job, options_of_job

        files = given.get("measurements") or ()
        folder, *logs = map(Path, [files] if isinstance(files, str | Path) else files or [Path()])
        if not is_job(folder):
            return given
        if not logs:
            raise InputError(f"{folder}: give what its run has logged too: {folder} LOG")
        said = {name: value for name, value in given.items() if value is not None}
        return {**options_of_job(folder), **said, "measurements": tuple(logs)}

    @property
    def day(self) -> datetime.date:
        return self.date or datetime.datetime.now(tz=datetime.UTC).date()

    def settled(self, catalog: Catalog) -> CalibrateQuestion:
        """Return the question with its date; logs do not say which stack they are of."""
        from trnbench.evidence.readers.collectives import is_sweep
        from trnbench.evidence.rows import is_table

        files = [path for path in self.measurements if path.is_file()]
        named = all(is_table(path) or is_sweep(path) for path in files)
        if self.stack is None and self.given.cells and not named:
            raise InputError("a log does not name its software: give --stack")
        return self.but(date=self.day)

    def inputs(self) -> dict[str, object]:
        plain = super().inputs()
        del plain["date"]
        return plain | {"measurements": [str(path) for path in self.measurements]}


class CalibrateShowing(Question):
    """Folders of the written files."""

    into: Path | None = option(
        "Write the files of these chips and stacks, and of heirs.", metavar="FOLDER"
    )
    force: bool = option("Let --into, or your own data files, replace files that are there.")
