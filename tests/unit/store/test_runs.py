"""Kept runs are found by what people remember of them, and forgotten when old or too many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trnbench.catalog.search import Catalog, Folder
from trnbench.errors import InputError
from trnbench.store import runs as store
from trnbench.store import snapshot
from trnbench.store.database import opened
from trnbench.store.runs import KeptAnswer, KeptRun, RunFilter
from trnbench.store.schema import transaction


@pytest.fixture
def connection(tmp_path):
    with opened(tmp_path / "runs.db", say=print) as connection:
        yield connection


def kept(number: int, **changes) -> KeptRun:
    given: dict[str, Any] = {
        "id": f"{number:010x}",
        "verb": "train",
        "started_at": f"2026-01-01T00:00:{number:02}Z",
        "seconds": 1.0,
        "version": "1",
        "machine": "m",
        "tag": None,
        "headline": "step 1 s",
        "models": ("llama2-7b",),
        "instances": ("trn1.32xlarge",),
        "exit_code": 0,
        "options": {"model": "llama2-7b"},
        "command": "trnbench train llama2-7b",
        "snapshot": "s",
    }
    return KeptRun(**(given | changes))


ANSWER = KeptAnswer(
    inputs={"a": None}, rows=({"step_time_s": 1.5, "reasons": ["no"]},), summary={}, columns=("x",)
)


def add(connection, *runs, inputs=()):
    with transaction(connection):
        for run in runs:
            store.add(connection, run, ANSWER, inputs)


def test_an_answer_comes_back_as_it_was(connection, tmp_path):
    given = tmp_path / "rows.csv"
    given.write_text("a,b\n")
    run = kept(1)
    add(connection, run, inputs=[given, tmp_path / "none"])
    assert store.found(connection, "0000000001") == run
    assert store.answer_of(connection, run) == ANSWER
    (read,) = store.inputs_of(connection, run)
    assert (read.path, read.content) == (str(given), b"a,b\n")


def test_runs_are_found_by_beginning_tag_and_last(connection):
    add(connection, kept(0x10), kept(0x11, tag="base"), kept(0x12, tag="base"))
    assert store.found(connection, "0000000010").id == "0000000010"
    assert store.found(connection, "base").id == "0000000012"
    assert store.found(connection, "last").id == "0000000012"
    with pytest.raises(InputError, match="begins the ids of several"):
        store.found(connection, "00000000")
    with pytest.raises(InputError, match="did you mean 'base'"):
        store.found(connection, "bass")


def test_a_tag_wins_over_the_beginning_of_an_id_and_a_whole_id_over_a_tag(connection):
    add(connection, kept(0xBA5 << 28), kept(1, tag="000ba5"), kept(2, tag=kept(3).id), kept(3))
    assert store.found(connection, kept(0xBA5 << 28).id[:5]).id == kept(0xBA5 << 28).id
    assert store.found(connection, "000ba5").id == kept(1).id
    assert store.found(connection, kept(3).id) == kept(3)


def test_filters_agree_with_what_runs_say(connection):
    add(
        connection,
        kept(1),
        kept(2, verb="compare", models=("mixtral-8x7b", "llama2-7b"), tag="a"),
        kept(3, instances=("p5.48xlarge",), started_at="2026-02-01T00:00:00Z"),
    )

    def ids(**wanted):
        return [run.id[-1] for run in store.listed(connection, RunFilter(**wanted))]

    assert ids() == ["3", "2", "1"]
    assert ids(verb="compare") == ["2"]
    assert ids(model="llama2-7b") == ["3", "2", "1"]
    assert ids(model="mixtral-8x7b") == ["2"]
    assert ids(instance="p5.48xlarge") == ["3"]
    assert ids(tag="a") == ["2"]
    assert ids(since="2026-01-02") == ["3"]
    assert ids(until="2026-01-02") == ["2", "1"]


def test_old_and_surplus_runs_go_with_what_only_they_used(connection, tmp_path, monkeypatch):
    given = tmp_path / "rows.csv"
    given.write_text("a")
    old = kept(1, started_at="2020-01-01T00:00:00Z")
    tagged = kept(2, started_at="2020-01-01T00:00:00Z", tag="keep")
    add(connection, old, tagged, inputs=[given])
    add(connection, *(kept(n) for n in range(3, 10)))
    with transaction(connection):
        store.prune(connection, "2021")
    assert [run.id[-1] for run in store.listed(connection, RunFilter())] == [*"98765432"]
    monkeypatch.setattr(store, "MOST_RUNS", 3)
    monkeypatch.setattr(store, "_SLACK", 0)
    with transaction(connection):
        store.prune(connection, "2021")
    assert [run.id[-1] for run in store.listed(connection, RunFilter())] == [*"982"]
    assert connection.execute("SELECT count(*) FROM blob").fetchone() == (1,)
    store.remove(connection, [tagged])
    assert connection.execute("SELECT count(*) FROM blob").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM answer").fetchone() == (2,)


def catalog_of(folder: Path, **prices: str) -> Catalog:
    for name, text in prices.items():
        (folder / "prices").mkdir(parents=True, exist_ok=True)
        (folder / "prices" / f"{name}.toml").write_text(text)
    return Catalog((Folder(folder, "test"),))


def test_a_snapshot_is_named_by_content_and_comes_back(connection, tmp_path):
    with transaction(connection):
        first = snapshot.take(connection, catalog_of(tmp_path / "1", a="x = 1", b="y = 1"))
        again = snapshot.take(connection, catalog_of(tmp_path / "2", a="x = 1", b="y = 1"))
        other = snapshot.take(connection, catalog_of(tmp_path / "3", a="x = 2", b="y = 1"))
    assert first == again != other
    assert connection.execute("SELECT count(*) FROM blob").fetchone() == (3,)
    one, two = (snapshot.files_of(connection, name) for name in (first, other))
    assert snapshot.changed(one, two) == {"prices": ("a",)}
    restored = snapshot.restore(connection, two, tmp_path / "back")
    assert restored is not None
    assert {e.name: e.path.read_text() for e in restored.entries("prices")} == {
        "a": "x = 2",
        "b": "y = 1",
    }


def test_names_of_a_foreign_file_of_runs_lead_nowhere_else(connection, tmp_path):
    with transaction(connection):
        name = snapshot.put_blob(connection, b"x = 1")
    planted = snapshot.KeptFile(section="prices", name="../../out", sha256=name)
    assert snapshot.restore(connection, (planted,), tmp_path / "back") is None
    assert not list(tmp_path.rglob("out.toml"))
