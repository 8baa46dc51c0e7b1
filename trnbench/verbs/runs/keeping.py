"""Keeping an answer that was given: what was asked, on which data, and what came of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from trnbench import __version__
from trnbench.errors import TrnbenchError
from trnbench.facts.catalog.kept import modules_digest
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record
from trnbench.show.formats import headline, json_of
from trnbench.show.report import Report
from trnbench.store.database import Say, written
from trnbench.store.place import store_path
from trnbench.store.runs import UTC_FORMAT, KeptAnswer, KeptRun, add, new_id, prune, remove_one
from trnbench.store.snapshot import take

_LENGTHS = 12, 8
"""Digits of the commit, and of the digest of the modules."""


@cache
def code_version() -> str:
    """Return the version of the program, and of a checkout the commit and a digest of its code."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / "pyproject.toml").is_file():
        return __version__
    return version_of(checkout)


def version_of(checkout: Path) -> str:
    parts = _commit(checkout / ".git") or "", modules_digest(checkout / "trnbench")
    local = ".".join(part[:most] for part, most in zip(parts, _LENGTHS, strict=True) if part)
    return f"{__version__}+{local}"


def _commit(git: Path) -> str | None:
    """Return the commit that is checked out, read without running git."""
    try:
        if git.is_file():  # a linked working tree
            git = Path(git.read_text().partition("gitdir:")[2].strip())
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        common = git / "commondir"
        shared = git / common.read_text().strip() if common.is_file() else git
        for place in (git / name, shared / name):
            if place.is_file():
                return place.read_text().strip()
        for line in (shared / "packed-refs").read_text().splitlines():
            if line.endswith(f" {name}"):
                return line.partition(" ")[0]
    except OSError:
        return None
    return None


KEPT_VERBS = (
    *("matrix", "collective", "train", "compare", "plan", "fleet"),
    *("validate", "calibrate", "numerics", "measure", "study", "verify"),
)
"""Verbs whose answers are kept."""
DATED = "price_date"
"""An option whose default is today: kept as it was then."""


class GivenAnswer(Record):
    """An answer as it was given: the question, when, and how long it took.

    Of the files `inputs` the text is kept where they are data; of `digested` a digest alone.
    """

    report: Report
    options: Mapping[str, Any]
    command: str
    started_at: datetime
    seconds: float
    exit_code: int
    inputs: Sequence[Path] = ()
    digested: Sequence[Path] = ()
    tag: str | None = None
    id: str | None = None
    """Given to the run, in place of one that has it; a new one where None."""
    replaces: tuple[str, ...] = ()
    """Ids of runs in whose place this one stands."""


def keep(catalog: Catalog, given: GivenAnswer, *, say: Say) -> str:
    """Keep an answer, forget what is too old, and return the id of the run."""
    answer = kept_answer(given.report)

    def put(connection: Connection) -> str:
        run = KeptRun(
            id=given.id or new_id(connection),
            verb=given.report.verb,
            started_at=given.started_at.strftime(UTC_FORMAT),
            seconds=given.seconds,
            version=code_version(),
            machine=_machine(),
            tag=given.tag,
            headline=headline(given.report),
            models=named_in(given.report, catalog, "models", "model", "models"),
            instances=named_in(given.report, catalog, "instances", "instance", "instances")
            or named_in(given.report, catalog, "chips", "chip", "chips"),
            exit_code=given.exit_code,
            options=_dated(given),
            command=given.command,
            snapshot=take(connection, catalog),
        )
        for name in (run.id, *given.replaces):
            remove_one(connection, name)
        add(connection, run, answer, given.inputs, given.digested)
        prune(connection)
        return run.id

    return written(store_path(), put, say=say)


def kept_or_said(keep_it: Callable[[], object], say: Say, what: str = "this answer is") -> bool:
    """Keep something; what stands in the way is one line, and never an error."""
    try:
        keep_it()
    except (TrnbenchError, OSError) as error:
        hint = getattr(error, "hint", None)
        say(f"{what} not kept: {error}{f'; {hint}' if hint else ''}")
    except Exception as error:  # whatever it is: the answer was given
        say(f"{what} not kept: {type(error).__name__}: {error}")
    else:
        return True
    return False


def kept_answer(report: Report) -> KeptAnswer:
    """Return a report as plain data, as its JSON has it."""
    told = {"inputs": report.inputs, "rows": report.rows, "summary": report.summary}
    # Paths, dates and the like are texts from here on.
    plain: Any = json.loads(json_of(told, str))
    return KeptAnswer(
        inputs=plain["inputs"],
        rows=tuple(plain["rows"]),
        summary=plain["summary"],
        columns=tuple(column.key for column in report.columns),
    )


def named_in(report: Report, catalog: Catalog, section: str, *keys: str) -> tuple[str, ...]:
    """Return names of a section in rows and inputs under any of some keys, once each."""
    names = {entry.name for entry in catalog.entries(section)}
    named: dict[str, None] = {}
    for part in (report.inputs, *report.rows):
        for key in keys:
            value = part.get(key)
            values = value if isinstance(value, list | tuple) else (value,)
            named |= {name: None for name in values if isinstance(name, str) and name in names}
    return tuple(named)


def _machine() -> str:
    host = os.uname()
    return f"{host.nodename} {host.sysname} {host.machine}, {os.cpu_count()} processors"


def _dated(given: GivenAnswer) -> Mapping[str, Any]:
    """Return the options, with the day of the prices that were taken."""
    day = given.report.inputs.get(DATED)
    if DATED in given.options or not isinstance(day, str):
        return given.options
    return {**given.options, DATED: day}
