"""What is written to start a layout: the files, and the prediction they go with."""

from __future__ import annotations

from trnbench.facts.records import Record, replace
from trnbench.launch.folder import LaunchFolder
from trnbench.launch.software import Framework, Scheduler
from trnbench.show.row import Row, cells
from trnbench.verbs.train.answer import TrainAnswer


class Launched(Record, eq=False):
    """A folder of files; None where the answer is no, for the reasons of `step`."""

    step: TrainAnswer
    framework: Framework
    scheduler: Scheduler
    checkpoint_interval_s: float | None = None
    compile_s: float | None = None
    folder: LaunchFolder | None = None

    @property
    def feasible(self) -> bool:
        """Whether there are files to write."""
        return self.folder is not None

    def refused(self, reasons: tuple[str, ...]) -> Launched:
        """Return it with reasons why nothing is written."""
        return replace(self, folder=None, step=replace(self.step, reasons=reasons))

    def row(self) -> Row:
        """Return the step that is launched, with how."""
        how = "framework=framework.name scheduler=scheduler.name checkpoint_interval_s compile_s"
        return {**self.step.row(), **cells(self, how)}


class LaunchPair(Record):
    """A framework on an instance, and the schedulers that can start it there."""

    instance: str
    framework: str
    versions: str
    schedulers: tuple[str, ...]
    jobs: tuple[str, ...]

    def row(self) -> Row:
        """Return it as a row."""
        return cells(self, "instance framework schedulers jobs versions")
