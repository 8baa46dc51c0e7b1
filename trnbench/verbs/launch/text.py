"""Files that start a layout, as people and machines read of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.facts.units import Dimension, show
from trnbench.show.report import Report, columns
from trnbench.show.row import Row
from trnbench.show.text_table import Style
from trnbench.verbs.launch.run import Launched


def launch_report(answer: Launched, inputs: Mapping[str, object]) -> Report:
    """Return the report of a folder: its step as a row, its files and values as summary."""
    folder = answer.folder
    return Report(
        verb="launch",
        inputs=inputs,
        rows=(answer.row(),),
        columns=(
            *columns("model", "instance", "nodes", "tp", "pp", "dp"),
            *columns("step_time_s", interval=True),
            *columns("tokens_per_s", "memory_bytes", spare=True),
        ),
        summary={
            "framework": answer.framework.versions,
            "files": sorted(folder.texts) if folder else [],
            "values": [
                {"name": value.name, "help": value.help, "default": value.default}
                for value in (folder.values if folder else ())
            ],
            "to_fill_in": [value.name for value in folder.empty] if folder else [],
            "assumes": folder.assumes if folder else (),
        },
        people=lambda report, style: _draw(report, answer, style),
    )


def _draw(report: Report, answer: Launched, style: Style) -> str:
    from trnbench.show.report import draw_rows

    where = f"{answer.framework.title} ({answer.framework.versions}), {answer.scheduler.title}"
    if answer.folder is None:
        reasons = style.lines(answer.step.reasons, "  ")
        head = style.wrap(f"Nothing is written for {where}:")
        return f"{style.strong(head)}\n{reasons}"
    assumed = style.lines(answer.folder.assumes, "  ")
    files = style.wrap(", ".join(sorted(answer.folder.texts)), "  ")
    memory = answer.step.memory
    held = ""
    if memory is not None:
        of = show(memory.available_bytes, Dimension.BYTES, digits=3)
        held = f" Memory is of a rank, which may use {of}."
    note = style.wrap(f"Intervals hold 80 % of cases.{held}")
    warned = [style.wrap(text) for text in answer.step.warnings]
    return "\n\n".join(
        [
            style.strong(style.wrap(where)),
            draw_rows(report, style),
            note,
            *warned,
            f"{style.strong('Files')}\n{files}",
            f"{style.strong('Assumes')}\n{assumed}",
        ]
    )


def pairs_report(pairs: Sequence[Row], inputs: Mapping[str, object]) -> Report:
    """Return a table of frameworks, their instances and schedulers."""
    return Report(
        verb="launch",
        inputs=inputs,
        rows=tuple(pairs),
        columns=(
            *columns("instance", "framework", "schedulers"),
            *columns("jobs", "versions", spare=True),
        ),
    )
