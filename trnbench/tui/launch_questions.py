"""The questions of the launch screen, answered in a process of their own; without textual."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.facts.records import Record
from trnbench.show.row import Row

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.tui.work_process import WorkHooks


class LaunchFiles(Record):
    """The files that start a row, by name; without any, the reasons.

    `written` is the folder they were written to, `empty` the values that the user fills in there.
    """

    texts: Mapping[str, str]
    reasons: tuple[str, ...]
    empty: tuple[str, ...]
    command: str
    written: str = ""


class LaunchWays(Record):
    """Frameworks and schedulers for a row; `framework` is that of its training stack."""

    framework: str | None
    frameworks: tuple[str, ...]
    schedulers: tuple[str, ...]


def launch_ways(catalog: Catalog, row: Row, hooks: WorkHooks) -> LaunchWays:
    """The frameworks and schedulers that can start a row."""
    from trnbench.verbs.launch.folders import launch_choices

    found = launch_choices(catalog, row)
    return LaunchWays(
        framework=found.stack, frameworks=found.frameworks, schedulers=found.schedulers
    )


def launch_files(
    catalog: Catalog, row: Row, how: tuple[str, str], folder: Path | None, hooks: WorkHooks
) -> LaunchFiles:
    """The files for a framework and a scheduler; with a folder, write them there."""
    from trnbench.launch.folder import PREDICTION
    from trnbench.show.formats import render
    from trnbench.show.text_table import PLAIN
    from trnbench.verbs.asking.command_lines import command_question
    from trnbench.verbs.launch.folders import launch_row, write_launch
    from trnbench.verbs.launch.text import launch_report

    framework, scheduler = how
    answer, question = launch_row(
        catalog, row, stack=framework, scheduler=scheduler, progress=hooks.progress
    )
    inputs = question.inputs()
    if answer.folder is None:
        return LaunchFiles(texts={}, reasons=answer.step.reasons, empty=(), command="")
    if folder is not None:
        write_launch(folder, answer, inputs)
    prediction = render(launch_report(answer, inputs), "json", PLAIN).decode()
    return LaunchFiles(
        texts={**dict(sorted(answer.folder.texts.items())), PREDICTION: prediction},
        reasons=(),
        empty=tuple(value.name for value in answer.folder.empty),
        command=command_question("launch", question).line,
        written="" if folder is None else str(folder),
    )
