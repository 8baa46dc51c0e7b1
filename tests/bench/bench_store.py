"""What keeping an answer adds, and how fast kept ones are listed, in processor seconds."""

from __future__ import annotations

import os
import tempfile
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta

from tests.bench.figure import REPEATS, best_of, processor_s, show
from trnbench.cli.main import ask
from trnbench.cli.main import main as trnbench
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.store.database import opened
from trnbench.store.place import FILE_VARIABLE, KEEP_VARIABLE, store_path
from trnbench.store.runs import MOST_RUNS, UTC_FORMAT, add, answer_of, found, listed
from trnbench.store.schema import transaction
from trnbench.verbs.runs.keeping import GivenAnswer, keep

QUESTION = ("matrix", {"shapes": ["512x512x512"], "on": "trainium1"})
LIST = ("runs", "list", "-q")
LIST_BAR_S = 0.4
KEEP_BAR_S = 0.02
MANY = 100_000


def main() -> None:
    """Print what keeping and listing take, in a file of its own."""
    with tempfile.TemporaryDirectory(prefix="trnbench-bench-") as folder:
        os.environ[FILE_VARIABLE] = os.path.join(folder, "runs.db")
        os.environ[KEEP_VARIABLE] = "1"
        catalog = open_catalog()
        report, code = ask(*QUESTION)
        assert report is not None
        given = GivenAnswer(
            report=report,
            options=QUESTION[1],
            command="trnbench matrix 512x512x512 --on trainium1",
            started_at=datetime.now(tz=UTC),
            seconds=0.1,
            exit_code=code,
        )
        keep(catalog, given, say=print)
        _fill(1, MOST_RUNS, None)
        _, seconds = best_of(lambda: keep(catalog, given, say=print))
        show("keep an answer beside 10,000", seconds, "s", KEEP_BAR_S, "at most")
        _, seconds = best_of(_list)
        show("runs list of 10,000, warm", seconds, "s", LIST_BAR_S, "at most")
        show("runs list of 10,000, cold process", _cold_s(*LIST), "s", LIST_BAR_S, "at most")
        # Of runs without a tag, no more are kept.
        _fill(MOST_RUNS, MANY, "many")
        _, seconds = best_of(lambda: keep(catalog, given, say=print))
        show("keep an answer beside 100,000", seconds, "s")
        show("runs list of 100,000", _cold_s(*LIST), "s")
        for more in (("--limit", "20"), ("--model", "llama2-7b"), ("--tag", "few")):
            show(f"runs list of 100,000 {' '.join(more)}", _cold_s(*LIST, *more), "s")


def _cold_s(*arguments: str) -> float:
    """Return the least processor time of some processes."""
    return min(processor_s(*arguments) for _ in range(REPEATS))


def _fill(first: int, end: int, tag: str | None) -> None:
    """Keep the newest run many times, a minute apart."""
    with opened(store_path(), say=print) as connection, transaction(connection):
        run = found(connection, "last")
        answer = answer_of(connection, run)
        ((newest,), _) = listed(connection, {}, 1)
        at = datetime.strptime(newest.started_at, UTC_FORMAT)
        for number in range(first, end):
            earlier = (at - timedelta(minutes=number)).strftime(UTC_FORMAT)
            again = replace(run, id=f"{number:010x}", started_at=earlier, tag=tag)
            add(connection, again, answer, ())


def _list() -> None:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        assert trnbench(["runs", "list"]) == 0


if __name__ == "__main__":
    main()
