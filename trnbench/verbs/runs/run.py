"""Use cases about kept runs: list, show, hand out, forget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from trnbench.errors import InputError
from trnbench.facts.catalog.foreign import read_object
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, asdict, replace
from trnbench.show.redaction import (
    OWN_MONEY,
    REDACTED,
    money_told,
    redacted_cells,
    tells_own_money,
    without_money,
    without_own_options,
)
from trnbench.store import runs as store
from trnbench.store.database import Say, begin_anew, opened, read
from trnbench.store.place import Damaged, identity, store_path
from trnbench.store.recovery import Recovered, RunFault, findings, put_aside, recover, salvaged
from trnbench.store.runs import KeptAnswer, KeptRun
from trnbench.store.schema import one_view
from trnbench.verbs.runs.question import RunsListQuestion

_MOST_NAMED = 4


class AnsweredRun(Record):
    """A kept run with its answer."""

    run: KeptRun
    answer: KeptAnswer


def list_runs(catalog: Catalog, question: RunsListQuestion, *, say: Say) -> list[KeptRun]:
    """Return the runs looked for, newest first; models and instances by name or alias.

    `say` is told of runs that are damaged: they are in no list.
    """
    asked = {
        **question.filter,
        "model": _known(catalog, "models", question.model),
        "instance": _known(catalog, "instances", question.instance),
    }
    # Answers are not read, and may be a gigabyte.
    with read(store_path(), "run") as connection:
        runs, damaged = store.listed(connection, asked, question.limit)
    if damaged:
        named = ", ".join(damaged[:_MOST_NAMED])
        say(f"trnbench: not listed, for they are damaged: {named}; `trnbench runs check` says more")
    return runs


def answered_run(name: str) -> AnsweredRun:
    with read(store_path()) as connection:
        return read_run(connection, name)


def read_run(connection: Connection, name: str) -> AnsweredRun:
    """Return a kept run, or the one in a file: an export of one, or the JSON of an answer."""
    if name.endswith(".json"):
        return _run_of_file(Path(name))
    # Another process may put a new answer in place of a run between the two reads.
    with one_view(connection):
        run = store.found(connection, name)
        return AnsweredRun(run=run, answer=store.answer_of(connection, run))


def export_runs(names: Sequence[str], *, redact: bool) -> list[Mapping[str, Any]]:
    """Return runs with their answers as plain data."""
    with read(store_path()) as connection:
        exported = [read_run(connection, name) for name in names]
    return [
        {
            "run": asdict(answered.run),
            "answer": asdict(answered.answer),
            "own_prices": tells_own_money(answered.run.options, answered.answer.inputs),
        }
        for answered in (map(redacted, exported) if redact else exported)
    ]


def remove_runs(names: Sequence[str]) -> list[KeptRun]:
    """Forget runs and return them; all are found before one is forgotten."""
    if not names:
        raise InputError("which runs? give ids; `trnbench runs list` shows them")
    with read(store_path()) as connection:
        runs = {run.id: run for run in (store.found(connection, name) for name in names)}
    with opened(store_path()) as connection:
        store.remove(connection, [*runs.values()])
    return [*runs.values()]


def check_runs() -> tuple[int, list[RunFault]]:
    """Return the number of kept runs, and the faults of all that is kept."""
    path = store_path()
    try:
        with read(path) as connection:
            return store.counted(connection), [*findings(connection)]
    except Damaged as damage:
        return 0, [RunFault(kind="file", name=str(path), reason=damage.message)]


def recover_runs(named: Path | None, *, say: Say) -> tuple[Path, Recovered]:
    """Bring what can be read of a damaged file into the file of kept runs; return which it was.

    Without a name it is the file of kept runs itself, or what was put aside of it last.
    """
    path = store_path()
    if named is None or identity(named) == identity(path):
        begin_anew(path, say, lambda connection: not any(findings(connection)))
        aside = put_aside(path)
        if not aside:
            raise InputError(
                f"{path} is sound, and no damaged file was put aside", hint="name one: recover FILE"
            )
        named = aside[-1]
    with salvaged(named) as (source, names), opened(path) as target:
        return named, recover(source, names, target)


def redacted(answered: AnsweredRun) -> AnsweredRun:
    """Return a run without money: no price, discount or bill, and no ratio that tells one."""
    run, answer = answered.run, answered.answer
    sums = money_told(answer.inputs, *answer.rows, answer.summary)
    options = {
        name: REDACTED if name in OWN_MONEY else value for name, value in run.options.items()
    }
    return AnsweredRun(
        run=replace(
            run,
            options=options,
            command=without_own_options(run.command),
            headline=without_money(run.headline, sums),
        ),
        answer=KeptAnswer(
            inputs=redacted_cells(answer.inputs, sums),
            rows=tuple(redacted_cells(row, sums) for row in answer.rows),
            summary=redacted_cells(answer.summary, sums),
            columns=answer.columns,
        ),
    )


def _run_of_file(path: Path) -> AnsweredRun:
    document: Mapping[str, Any] = read_object(path)
    exported = document.get("runs")
    if isinstance(exported, list) and len(exported) == 1:
        document = exported[0]
    try:
        if "answer" in document:
            run = {**document["run"]}
            run |= {key: tuple(run[key]) for key in ("models", "instances")}
            answer = {**document["answer"]}
            answer |= {key: {**answer[key]} for key in ("inputs", "summary")}
            answer |= {"rows": tuple(map(dict, answer["rows"])), "columns": (*answer["columns"],)}
            return AnsweredRun(run=KeptRun(**run), answer=KeptAnswer(**answer))
        rows = tuple(map(dict, document["rows"]))
        return AnsweredRun(
            run=_unknown_run(path, str(document["schema"]), str(document["version"])),
            answer=KeptAnswer(
                inputs={**document["inputs"]},
                rows=rows,
                summary={**document["summary"]},
                columns=tuple(dict.fromkeys(key for row in rows for key in row)),
            ),
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        raise InputError(
            f"{path} is neither the JSON of an answer nor an export of one run",
            hint="`trnbench runs export RUN -o FILE.json`, or any verb's --json, writes one",
        ) from None


def _unknown_run(path: Path, schema: str, version: str) -> KeptRun:
    """Return the record of a run of which only the JSON is left."""
    return KeptRun(
        id=path.stem,
        verb=schema.removeprefix("trnbench.").partition("/")[0],
        started_at="",
        seconds=0.0,
        version=version,
        machine="",
        tag=None,
        headline="",
        models=(),
        instances=(),
        exit_code=0,
        options={},
        command=str(path),
        snapshot="",
    )


def _known(catalog: Catalog, section: str, name: str | None) -> str | None:
    if name is None or name not in catalog.names(section):
        return name
    return catalog.find(section, name).name
