"""Reports about data files as files: lists, validation, and the installation."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from trnbench.answers.row import Row
from trnbench.catalog.listing import FileCheck, Listed
from trnbench.report.report import Report, columns
from trnbench.report.text_table import Style


def list_report(verb: str, files: Sequence[Listed]) -> Report:
    """Return the report of a list of data files; files hidden by others are named below it."""
    rows: tuple[Row, ...] = tuple(
        {
            "section": file.entry.section,
            "name": file.entry.name,
            "title": file.title,
            "aliases": file.aliases,
            "origin": file.entry.origin,
            "path": str(file.entry.path),
            "hides": tuple(map(str, file.entry.hides)),
        }
        for file in files
    )
    return Report(
        verb=verb,
        inputs={},
        rows=rows,
        columns=(
            *columns("section", "name", "title"),
            *columns("aliases", "origin", spare=True),
        ),
        notes=tuple(
            f"{file.entry.name} from {file.entry.path} hides {hidden}"
            for file in files
            for hidden in file.entry.hides
        ),
    )


def check_report(verb: str, checks: Sequence[FileCheck]) -> Report:
    """Return the report of validated files: a row a fault, and one for each good file."""
    rows: list[Row] = []
    for check in checks:
        head = {"file": str(check.path), "section": check.section}
        rows += [{**head, "key": f.path, "fault": f.message} for f in check.faults]
        if not check.faults:
            rows.append({**head, "key": "", "fault": None})
    faulty = sum(bool(check.faults) for check in checks)
    return Report(
        verb=verb,
        inputs={"files": [str(check.path) for check in checks]},
        rows=tuple(rows),
        columns=columns("file", "section", "key", "fault"),
        summary={"files": len(checks), "faulty": faulty},
        people=functools.partial(_draw_checks, tuple(checks)),
    )


def _draw_checks(checks: tuple[FileCheck, ...], style: Style) -> str:
    lines = []
    for check in checks:
        lines += [style.strong(str(check.path)) + ":" for _ in check.faults[:1]]
        lines += [f"  {fault}" for fault in check.faults]
    faults = sum(len(check.faults) for check in checks)
    faulty = sum(bool(check.faults) for check in checks)
    good = len(checks) - faulty
    verdict = f"{good} of {len(checks)} files good"
    return "\n".join([*lines, verdict + (f", {faults} faults in {faulty}" if faulty else "")])


def info_report(facts: Mapping[str, object]) -> Report:
    """Return the report of an installation, one row a fact."""
    rows: list[Row] = []
    for key, value in facts.items():
        match value:
            case Mapping():
                rows += [
                    {"key": f"{key}.{name}", "value": _text(item)} for name, item in value.items()
                ]
            case list():
                rows += [
                    {"key": f"{key}[{i}]", "value": _text(item)} for i, item in enumerate(value)
                ]
            case _:
                rows.append({"key": key, "value": _text(value)})
    return Report(
        verb="info",
        inputs={},
        rows=tuple(rows),
        columns=columns("key", "value"),
        summary=facts,
    )


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{value['path']} ({value['origin']})"
    return "not installed" if value is None else str(value)
