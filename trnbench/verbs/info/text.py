"""The installation, and what runs with which stack where: a matrix for people, cells for machines.

Of the matrix people see a line for each stack and the instances on which it stands alike, and what
is refused with who says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from trnbench.facts.records import Record
from trnbench.show.report import Report, columns
from trnbench.show.row import Row
from trnbench.show.row import cells as row
from trnbench.show.text_table import Style, TextTable, draw, text_table

SupportStatus = Literal["fitted", "modelled", "untested", "refused"]
"""From the most that is known to the least."""


class SupportCell(Record):
    """A kind of model with a stack on an instance, or a job with a stack on any of its instances.

    `fitted`: the stack's numbers were fitted to some of the `measured_rows`; `modelled`: it runs
    them, and its numbers come from elsewhere; `untested`: nobody says that it runs them; `refused`:
    its makers say that it does not, in `reason`.
    """

    stack: str
    status: SupportStatus
    measured_rows: int
    reason: str | None = None
    family: str = ""
    instance: str = ""
    job: str = ""


MEANINGS = {
    "fitted": "the stack's numbers were fitted to measured rows of such models there; a number "
    "behind a word counts the measured rows that are shipped",
    "modelled": "it runs them, and its numbers come from other models, instances or assumptions",
    "untested": "predicted, with a wider range: nobody says that it runs them",
    "refused": "its makers say that it does not run them",
}


OF_JOBS = {
    "fitted": "the stack's numbers were fitted to measured rows of the job; a number behind a word "
    "counts the measured rows that are shipped",
    "modelled": "it runs the job, and its numbers come from other jobs or assumptions",
    **{word: MEANINGS[word].replace("them", "the job") for word in ("untested", "refused")},
}


def support_report(cells: Sequence[SupportCell]) -> Report:
    """Return the report of a support matrix, a row a cell."""
    return Report(
        verb="info-support",
        inputs={},
        rows=tuple(
            row(cell, "family stack instance status measured_rows reason") for cell in cells
        ),
        columns=columns("stack", "instance", "family", "status", "measured_rows", "reason"),
        summary={"meanings": MEANINGS},
        people=lambda _, style: _draw(cells, style),
    )


def support_table(cells: Sequence[SupportCell]) -> TextTable:
    """Return the matrix: lines of stacks and instances, columns of kinds of models."""
    families = tuple(dict.fromkeys(cell.family for cell in cells))
    rows: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    grid: dict[tuple[str, str], dict[str, str]] = {}
    for cell in cells:
        said = f"{cell.status} {cell.measured_rows}" if cell.measured_rows else cell.status
        grid.setdefault((cell.stack, cell.instance), {})[cell.family] = said
    for (stack, instance), by_family in grid.items():
        said_of = tuple(by_family[family] for family in families)
        rows.setdefault((stack, said_of), []).append(instance)
    return text_table(
        ("stack", *families, "instances"),
        ((stack, *said, ", ".join(of)) for (stack, said), of in rows.items()),
    )


def jobs_report(cells: Sequence[SupportCell]) -> Report:
    """Return the report of jobs by stack, a row a cell."""
    return Report(
        verb="info-jobs",
        inputs={},
        rows=tuple(row(cell, "stack job status measured_rows reason") for cell in cells),
        columns=columns("stack", "job", "status", "measured_rows", "reason"),
        summary={"meanings": OF_JOBS},
        people=lambda _, style: _draw_jobs(cells, style),
    )


def jobs_table(cells: Sequence[SupportCell]) -> TextTable:
    """Return the matrix: lines of stacks that run all jobs alike, columns of jobs."""
    groups: dict[str, list[str]] = {}
    for cell in cells:
        said = f"{cell.status} {cell.measured_rows}" if cell.measured_rows else cell.status
        groups.setdefault(cell.stack, []).append(said)
    rows: dict[tuple[str, ...], list[str]] = {}
    for stack, said_of in groups.items():
        rows.setdefault(tuple(said_of), []).append(stack)
    return text_table(
        (*dict.fromkeys(cell.job for cell in cells), "stacks"),
        ((*said, ", ".join(stacks)) for said, stacks in rows.items()),
    )


def _draw(cells: Sequence[SupportCell], style: Style) -> str:
    refused = (f"{cell.stack}, {cell.family}: {cell.reason}" for cell in cells if _refused(cell))
    return _drawn(support_table(cells), MEANINGS, refused, style)


def _draw_jobs(cells: Sequence[SupportCell], style: Style) -> str:
    jobs: dict[tuple[str, str | None], list[str]] = {}
    for cell in filter(_refused, cells):
        jobs.setdefault((cell.stack, cell.reason), []).append(cell.job)
    refused = (f"{stack}, {', '.join(of)}: {reason}" for (stack, reason), of in jobs.items())
    return _drawn(jobs_table(cells), OF_JOBS, refused, style)


def _refused(cell: SupportCell) -> bool:
    return cell.status == "refused"


def _drawn(
    table: TextTable, meanings: Mapping[str, str], refused: Iterable[str], style: Style
) -> str:
    words = [style.wrap(f"{word}: {text}") for word, text in meanings.items()]
    reasons = [style.wrap(reason, "  ") for reason in dict.fromkeys(refused)]
    lines = ["", style.strong("Refused"), *reasons] if reasons else []
    return "\n".join([draw(table, style), "", *words, *lines])


def info_report(facts: Mapping[str, object]) -> Report:
    """Return the report of an installation, one row a fact."""
    rows: list[Row] = []
    for key, value in facts.items():
        parts: dict[str, object] = {key: value}
        if isinstance(value, Mapping):
            parts = {f"{key}.{name}": item for name, item in value.items()}
        elif isinstance(value, list):
            parts = {f"{key}[{i}]": item for i, item in enumerate(value)}
        rows += [{"key": name, "value": _text(item)} for name, item in parts.items()]
    return Report(
        verb="info", inputs={}, rows=tuple(rows), columns=columns("key", "value"), summary=facts
    )


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{value['path']} ({value['origin']})"
    return "not installed" if value is None else str(value)
