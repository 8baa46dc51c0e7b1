"""Reports about data files: lists, comparisons, validation, and the installation."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from trnbench.catalog.listing import FileCheck, Listed
from trnbench.report.report import Column, Report, Row
from trnbench.report.sheet import figure_text
from trnbench.report.text_table import Style, TextTable, draw
from trnbench.spec.figures import Compared


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
    columns = ("section", "name", "title", "aliases", "origin")
    return Report(
        verb=verb,
        inputs={},
        rows=rows,
        columns=tuple(Column(key=key, title=key) for key in columns),
        notes=tuple(
            f"{file.entry.name} from {file.entry.path} hides {hidden}"
            for file in files
            for hidden in file.entry.hides
        ),
    )


def diff_report(names: Sequence[str], compared: Sequence[Compared]) -> Report:
    """Return the report of several specs side by side, with ratios to the first."""
    rows: tuple[Row, ...] = tuple(
        {
            "figure": line.key,
            **dict(zip(names, line.values, strict=True)),
            **{
                f"{name}_ratio": ratio
                for name, ratio in zip(names[1:], line.ratios[1:], strict=True)
            },
        }
        for line in compared
    )
    return Report(
        verb="spec-diff",
        inputs={"names": list(names)},
        rows=rows,
        columns=(
            Column(key="figure", title="figure"),
            *(
                Column(key=key, title=key)
                for name in names
                for key in ([name] if name == names[0] else [name, f"{name}_ratio"])
            ),
        ),
        people=functools.partial(_draw_diff, tuple(names), tuple(compared)),
    )


def _draw_diff(names: tuple[str, ...], compared: tuple[Compared, ...], style: Style) -> str:
    headings = ["", names[0]]
    for name in names[1:]:
        headings += [name, "ratio"]
    rows = []
    for line in compared:
        first, *others = ["-" if v is None else _text_of(line, v) for v in line.values]
        cells = [line.label, first]
        for value, ratio in zip(others, line.ratios[1:], strict=True):
            cells += [value, "" if ratio is None else f"{ratio:.2f}x"]
        rows.append(tuple(cells))
    right = (False,) + (True,) * (len(headings) - 1)
    return draw(TextTable(headings=tuple(headings), rows=tuple(rows), right=right), style)


def _text_of(line: Compared, value: float) -> str:
    return figure_text(value, line.dimension, line.key)


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
        columns=tuple(Column(key=key, title=key) for key in ("file", "section", "key", "fault")),
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
        columns=(Column(key="key", title="what"), Column(key="value", title="value")),
        summary=facts,
    )


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{value['path']} ({value['origin']})"
    return "not installed" if value is None else str(value)
