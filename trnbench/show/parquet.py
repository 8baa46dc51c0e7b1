"""Rows as a Parquet file, for tools that read columns."""

from __future__ import annotations

from pathlib import Path

from trnbench.errors import EnvironmentFault
from trnbench.facts.catalog.whole_file import put_whole
from trnbench.show.formats import finite
from trnbench.show.report import Report


def write_parquet(path: Path, report: Report) -> None:
    """Write the rows of a report; the file appears whole or not at all."""
    try:
        from pyarrow import Table, parquet
    except ImportError:
        raise EnvironmentFault(
            f"{path}: writing Parquet needs pyarrow",
            hint="pip install 'trnbench[parquet]', or write .csv",
        ) from None
    table = Table.from_pylist([finite(row) for row in report.rows])
    put_whole(path, lambda file: parquet.write_table(table, file))
