"""What commands that read measured steps share: options for what a file lacks, and what it has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from trnbench.cli.names import completes

if TYPE_CHECKING:
    from trnbench.cli.output import Output

MeasuredModel: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Of a log, or a file without a column of it: the model.",
        autocompletion=completes(("models",)),
    ),
]
MeasuredOn: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="INSTANCE[:NODES]",
        help="Of a log, or a file without columns of it: where.",
        autocompletion=completes(("instances",)),
    ),
]


def name_unread_columns(out: Output, files: Iterable[Path]) -> None:
    """Say which columns of files of steps mean nothing here."""
    from trnbench.evidence.rows import unread_columns

    for path in files:
        if columns := unread_columns(path):
            out.narrate(
                f"{path}: not read: {', '.join(map(repr, columns))}; "
                "`trnbench validate --template` has the columns that are"
            )
