"""Write the published steps with typed columns: `python workloads/published/convert.py`.

`gpu_training.csv` and `trainium_training.csv` are as they were collected and are never edited. What
their words mean is said in `trnbench.evidence.older_columns`; this writes what that makes of them
into `gpu_steps.csv` and `trainium_steps.csv`, which everything else reads. The other files of steps
here were collected with typed columns.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from trnbench.catalog.search import BUILT_IN, Catalog, Folder, built_in_folder
from trnbench.evidence.columns import COLUMNS
from trnbench.evidence.older_columns import steps_of
from trnbench.evidence.rows import EvidenceRow, read_evidence

HERE = Path(__file__).parent
CONVERTED = {"gpu_training.csv": "gpu_steps.csv", "trainium_training.csv": "trainium_steps.csv"}
"""The files that are converted -> what of them is written."""


def steps_csv(rows: Sequence[EvidenceRow]) -> str:
    """Return rows as the text of a CSV file: the columns that any of them fills, in table order."""
    filled = {name for row in rows for name in row.cells if row.text(name)}
    columns = [column.name for column in COLUMNS if column.name in filled]
    out = io.StringIO()
    lines = ([row.text(name) for name in columns] for row in rows)
    csv.writer(out, lineterminator="\n").writerows([columns, *lines])
    return out.getvalue()


def converted(original: str) -> str:
    """Return the text of a file with typed columns, made of one with older ones."""
    catalog = Catalog((Folder(built_in_folder(), BUILT_IN),))
    return steps_csv(steps_of(catalog, read_evidence(HERE / original)).rows)


if __name__ == "__main__":
    for original, typed in CONVERTED.items():
        (HERE / typed).write_text(converted(original), encoding="utf-8")
