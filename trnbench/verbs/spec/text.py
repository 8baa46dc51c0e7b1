"""Reports about data files: lists, validation, specs side by side, and new clusters."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from trnbench.facts.catalog.search import FileCheck, Listed
from trnbench.facts.hardware.figures import Compared
from trnbench.facts.prices.owned import RateTerm
from trnbench.facts.records import asdict
from trnbench.facts.units import counted, significant
from trnbench.show.figures import Figure
from trnbench.show.report import Column, Report, columns
from trnbench.show.row import Row
from trnbench.show.sheet import figure_text
from trnbench.show.text_table import Style

_OF_MODELS = ("family", "parameters", "active", "context")


def list_report(
    verb: str, files: Sequence[Listed], facts: Mapping[str, Row] | None = None
) -> Report:
    """Return the report of a list of data files; files hidden by others are named below it.

    `facts` are those of models, by name.
    """
    rows: tuple[Row, ...] = tuple(
        {
            "section": file.entry.section,
            "name": file.entry.name,
            "title": file.title,
            **_facts(file, facts),
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
            *(columns("section") if len({row["section"] for row in rows}) > 1 else ()),
            *columns("name", "title"),
            *columns(*(_OF_MODELS if facts else ())),
            *columns("aliases", "origin", spare=True),
        ),
        notes=tuple(
            f"{file.entry.name} from {file.entry.path} overrides {hidden}"
            for file in files
            for hidden in file.entry.hides
        ),
    )


def _facts(file: Listed, facts: Mapping[str, Row] | None) -> Row:
    if facts is None:
        return {}
    own = facts.get(file.entry.name) if file.entry.section == "models" else None
    return own or dict.fromkeys(_OF_MODELS)


def check_report(verb: str, checks: Sequence[FileCheck]) -> Report:
    """Return the report of validated files: a row a fault, and one for each good file."""
    rows: list[Row] = []
    for check in checks:
        head = {"file": str(check.path), "section": check.section}
        rows += [{**head, "key": f.path, "fault": f.message} for f in check.faults]
        if not check.faults:
            rows.append({**head, "key": "", "fault": None, "notes": check.notes})
    faulty = sum(bool(check.faults) for check in checks)
    return Report(
        verb=verb,
        inputs={"files": [str(check.path) for check in checks]},
        rows=tuple(rows),
        columns=columns("file", "section", "key", "fault"),
        summary={"files": len(checks), "faulty": faulty},
        people=lambda _, style: _draw_checks(checks, style),
    )


def _draw_checks(checks: Sequence[FileCheck], style: Style) -> str:
    lines = []
    for check in checks:
        lines += [style.strong(str(check.path)) + ":" for _ in check.faults[:1]]
        lines += [f"  {fault}" for fault in check.faults]
        lines += [style.wrap(f"{check.path.name}: {note}") for note in check.notes]
    faults = sum(len(check.faults) for check in checks)
    faulty = sum(bool(check.faults) for check in checks)
    verdict = f"{len(checks) - faulty} of {counted(len(checks), 'file')} good"
    if faulty:
        verdict += f", {counted(faults, 'fault')} in {counted(faulty, 'file')}"
    return "\n".join([*lines, verdict])


def new_cluster_report(
    name: str,
    paths: Sequence[Path],
    spec_dir: Path | None,
    terms: Sequence[RateTerm],
    usd_per_hour: float | None,
) -> Report:
    """Return the report of a new cluster: a row a term of its rate; the files in the summary.

    `spec_dir`: the folder of a file that is not among the user's own.
    """
    show = ["trnbench", "spec", "show", name]
    show += [] if spec_dir is None else ["--spec-dir", str(spec_dir)]
    return Report(
        verb="spec-new",
        inputs={"name": name},
        rows=tuple(asdict(term) for term in terms),
        columns=columns("name", "usd_per_hour", "note"),
        summary={"files": [str(path) for path in paths], "usd_per_hour": usd_per_hour},
        people=lambda _, style: _draw_new(shlex.join(show), paths, terms, usd_per_hour, style),
    )


def _draw_new(
    show: str,
    paths: Sequence[Path],
    terms: Sequence[RateTerm],
    usd_per_hour: float | None,
    style: Style,
) -> str:
    lines = [f"written: {path}" for path in paths]
    if usd_per_hour is not None:
        rows = [(term.name, significant(term.usd_per_hour), term.note) for term in terms]
        rows.append(("an hour", significant(usd_per_hour), "of one instance, used or not"))
        lines += ["", style.table(("term", ">USD/h", ""), rows)]
    return "\n".join([*lines, "", f"try: {show}"])


def diff_report(names: Sequence[str], compared: Sequence[Compared]) -> Report:
    """Return the report of several specs side by side, with ratios to the first."""
    ratios = [f"{name}_ratio" for name in names]
    rows: tuple[Row, ...] = tuple(
        {
            "figure": line.key,
            **dict(zip(names, line.values, strict=True)),
            **dict(zip(ratios[1:], line.ratios[1:], strict=True)),
        }
        for line in compared
    )
    keys = [key for pair in zip(names, ratios, strict=True) for key in pair if key != ratios[0]]
    return Report(
        verb="spec-diff",
        inputs={"names": list(names)},
        rows=rows,
        columns=(*columns("figure"), *(Column(figure=Figure(key=key, title=key)) for key in keys)),
        people=lambda _, style: _draw_diff(names, compared, style),
    )


def _draw_diff(names: Sequence[str], compared: Sequence[Compared], style: Style) -> str:
    headings = [
        "",
        f">{names[0]}",
        *(head for name in names[1:] for head in (f">{name}", ">ratio")),
    ]
    rows = []
    for line in compared:
        first, *others = (
            "-" if value is None else figure_text(value, line.dimension, line.key)
            for value in line.values
        )
        cells = [line.label, first]
        for value, ratio in zip(others, line.ratios[1:], strict=True):
            cells += [value, "" if ratio is None else f"{ratio:.2f}x"]
        rows.append(cells)
    return style.table(headings, rows)
