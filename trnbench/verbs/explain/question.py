"""Question of `explain`: measured steps, or a launched job and its logs, and what ran."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnbench.errors import InputError
from trnbench.facts.workload.layout import KNOBS
from trnbench.verbs.asking.given_run import GivenRun
from trnbench.verbs.asking.option import Given
from trnbench.verbs.asking.question import Question, group, option

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog

_PREDICTION = "prediction.json"
_SCHEMA = "trnbench.launch/1"
_NEEDED = ("model", "instance", "nodes", "stack")


class ExplainQuestion(Question):
    """Files of measured steps of one cluster; `given` says of logs and tables what they do not.

    The first may be the folder of a launched job, which says all of it; options win.
    """

    measurements: tuple[Path, ...] = option(
        "A folder of `trnbench launch`, then logs of its job. Or CSV files of measured steps of "
        "one cluster. Or logs and folders of them, with --model and --on. Files of neuron-monitor, "
        "neuron-profile and nvidia-smi may follow.",
        default=(),
        metavar="MEASUREMENTS...",
        several="repeated",
        argument=True,
        required=True,
    )
    stack: str | None = option(
        "The training stack to predict with; default: that of the rows, or the usual one.",
        default=None,
        completes=("stacks",),
    )
    given: GivenRun = group(GivenRun)

    @classmethod
    def filled(cls, given: Given, catalog: Catalog) -> Given:
        """The options, and those that the folder of a job says."""
        files = given.get("measurements") or [Path()]
        first = Path(files if isinstance(files, str | Path) else files[0])
        if not is_job(first):
            return given
        said = {name: value for name, value in given.items() if value is not None}
        return {**options_of_job(first), **said}

    def settled(self, catalog: Catalog) -> ExplainQuestion:
        """The question; refuse the folder of a job without logs, or behind them."""
        for path in self.files:
            if is_job(path):
                raise InputError(f"{path}: is a launched job; name it first, then its logs")
        if not self.files:
            raise InputError(f"{self.job}: give what its run has logged too: {self.job} LOG")
        return self

    @property
    def job(self) -> Path | None:
        """The folder of the launched job, if there is one."""
        return self.measurements[0] if is_job(self.measurements[0]) else None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of measurements."""
        return self.measurements[self.job is not None :]

    @property
    def as_launched(self) -> bool:
        """True when nothing is asked otherwise than the folder of the job says."""
        if self.job is None:
            return False
        said = options_of_job(self.job)
        return said.pop("stack") == self.stack and GivenRun.read(said) == self.given

    def inputs(self) -> dict[str, object]:
        """The question as plain data."""
        return super().inputs() | {"measurements": [str(path) for path in self.measurements]}


def is_job(path: Path) -> bool:
    """True when `trnbench launch` wrote a folder."""
    return (path / _PREDICTION).is_file()


def options_of_job(folder: Path) -> dict[str, Any]:
    """Contents of a launched job's folder: model, place, software and layout."""
    row, _ = launched(folder)
    return {
        "model": str(row["model"]),
        "on": f"{row['instance']}:{row['nodes']}",
        "stack": str(row["stack"]),
        "lnc": None if row.get("lnc") is None else str(row["lnc"]),
        **{name: row[name] for name in KNOBS if row.get(name) is not None},
    }


def launched(folder: Path) -> tuple[Mapping[str, Any], str]:
    """The row of the prediction in the folder of a launched job, and the version that wrote it."""
    from trnbench.facts.catalog.foreign import read_object
    from trnbench.facts.catalog.text_file import refused
    from trnbench.verbs.launch.rows import with_plain_cells

    path = folder / _PREDICTION
    told = read_object(path)
    rows = told.get("rows")
    row = rows[0] if isinstance(rows, list) and len(rows) == 1 else None
    if (
        told.get("schema") != _SCHEMA
        or not isinstance(row, dict)
        or any(row.get(key) is None for key in _NEEDED)
        or not isinstance(row.get("step_time_s"), float)
    ):
        raise refused(path, f"is not a prediction of `trnbench launch` ({_SCHEMA})")
    return with_plain_cells(path, 1, row), str(told.get("version"))
