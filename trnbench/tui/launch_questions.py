"""The questions of the launch screen, answered in a process of their own; without textual."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.facts.records import Record
from trnbench.facts.workload.layout import KNOBS
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
    from trnbench.app.launching import launch_choices

    found = launch_choices(catalog, row)
    return LaunchWays(
        framework=found.stack, frameworks=found.frameworks, schedulers=found.schedulers
    )


def launch_files(
    catalog: Catalog, row: Row, how: tuple[str, str], folder: Path | None, hooks: WorkHooks
) -> LaunchFiles:
    """The files for a framework and a scheduler; with a folder, write them there."""
    from trnbench.app.launching import launch_row, write_launch
    from trnbench.launch.folder import PREDICTION
    from trnbench.report.launch import launch_report
    from trnbench.show.formats import render
    from trnbench.show.text_table import PLAIN

    framework, scheduler = how
    ran = launch_row(catalog, row, stack=framework, scheduler=scheduler, progress=hooks.progress)
    answer = ran.answer
    if answer.folder is None:
        return LaunchFiles(texts={}, reasons=answer.step.reasons, empty=(), command="")
    if folder is not None:
        write_launch(folder, answer, ran.inputs)
    prediction = render(launch_report(answer, ran.inputs), "json", PLAIN).decode()
    return LaunchFiles(
        texts={**dict(sorted(answer.folder.texts.items())), PREDICTION: prediction},
        reasons=(),
        empty=tuple(value.name for value in answer.folder.empty),
        command=_line(ran.inputs),
        written="" if folder is None else str(folder),
    )


def _line(inputs: Mapping[str, object]) -> str:
    """The command line that writes the same files."""
    from trnbench.app.command_lines import command_line
    from trnbench.facts.parsing import count_text, time_text

    def given(name: str) -> object:
        return inputs.get(name)

    tokens, interval_s = given("tokens"), given("checkpoint_interval_s")
    plain = {name: given(name) for name in ("on", "stack", "with", *KNOBS, "lnc", "purchase")}
    options = {
        name: value if isinstance(value, bool | int | float) else str(value)
        for name, value in plain.items()
        if value is not None
    }
    if isinstance(tokens, float):
        options["tokens"] = count_text(tokens)
    if isinstance(interval_s, float):
        options["checkpoint_interval"] = time_text(interval_s)
    return command_line("launch", str(inputs["model"]), **options)
