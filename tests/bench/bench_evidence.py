"""How long files of measured steps take to score and to fit, cold, in processor time."""

from __future__ import annotations

import csv
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.figure import processor_s, show

SWEEP = Path(__file__).parents[1] / "user_files" / "eager_sweep.csv"
SCORED, FITTED = 2_000, 600
SEQUENCES = (4096, 2048, 8192, 1024, 16384)
RUNS = 3


def sweeps(path: Path, rows: int) -> Path:
    """Write the rows of the sweep that ran, at more and more lengths of a sequence."""
    with SWEEP.open() as file:
        known = [row for row in csv.DictReader(file) if row["outcome"] == "measured"]
    made = [
        {
            **row,
            "id": f"{row['id']}-{sequence}",
            "use": "",
            "seq": str(sequence),
            "memory_gb": row["memory_gb"] if sequence == SEQUENCES[0] else "",
            "step_time_s": str(float(row["step_time_s"]) * sequence / SEQUENCES[0]),
        }
        for sequence in SEQUENCES
        for row in known
    ]
    made = (made * -(-rows // len(made)))[:rows]
    with path.open("w") as file:
        writer = csv.DictWriter(file, list(made[0]))
        writer.writeheader()
        writer.writerows({**row, "id": f"{row['id']}-{place}"} for place, row in enumerate(made))
    return path


def main() -> None:
    """Print what a few files take."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        many, some = sweeps(folder / "many.csv", SCORED), sweeps(folder / "some.csv", FITTED)
        fit = ("--stack", "mine", "-o", str(folder / "mine.toml"))
        for what, bar_s, arguments in (
            ("validate", 2.5, ("validate",)),
            (f"validate of {SCORED:,} rows", 8.0, ("validate", "--evidence", str(many))),
            ("calibrate of 24 rows", 4.0, ("calibrate", str(SWEEP), *fit)),
            (f"calibrate of {FITTED} rows", 50.0, ("calibrate", str(some), *fit)),
        ):
            show(what, min(processor_s(*arguments) for _ in range(RUNS)), "s", bar_s, "at most")


if __name__ == "__main__":
    main()
