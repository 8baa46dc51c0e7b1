"""Kept runs are found by what people remember of them, and forgotten when old or too many."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from trnbench.errors import InputError
from trnbench.facts.catalog.search import Catalog, Folder
from trnbench.store import content, snapshot
from trnbench.store import runs as store
from trnbench.store.content import WrongContent, digest, inflated, masked, squeezed
from trnbench.store.database import opened
from trnbench.store.place import Damaged
from trnbench.store.recovery import findings
from trnbench.store.runs import KeptAnswer, KeptRun
from trnbench.store.schema import transaction
from trnbench.store.studies import KeptCell, keep_cells
from trnbench.verbs.runs.run import read_run


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
    ((path, _, content),) = store.inputs_of(connection, run)
    assert (path, content) == (str(given), b"a,b\n")


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
        return [run.id[-1] for run in store.listed(connection, wanted)[0]]

    assert ids() == ["3", "2", "1"]
    assert ids(verb="compare") == ["2"]
    assert ids(model="llama2-7b") == ["3", "2", "1"]
    assert ids(model="mixtral-8x7b") == ["2"]
    assert ids(instance="p5.48xlarge") == ["3"]
    assert ids(tag="a") == ["2"]
    assert ids(since="2026-01-02") == ["3"]
    assert ids(until="2026-01-02") == ["2", "1"]


def day(number: int) -> str:
    return f"{2020 + number // 360}-{number % 360 // 30 + 1:02}-{number % 30 + 1:02}T00:00:00Z"


def ids(connection):
    return [int(run.id, 16) for run in store.listed(connection, {})[0]]


def pruned(connection, now: str, monkeypatch):
    monkeypatch.setattr(store, "utc_now", lambda: now)
    with transaction(connection):
        store.prune(connection)


def test_old_runs_go_a_few_at_a_time_with_what_only_they_used(connection, tmp_path, monkeypatch):
    given = tmp_path / "rows.csv"
    given.write_text("a")
    add(connection, kept(0, started_at=day(0)), inputs=[given])
    add(connection, kept(1, started_at=day(1), tag="keep"))
    add(connection, *(kept(n, started_at=day(n)) for n in range(2, 10)))
    add(connection, *(kept(n, started_at=day(1000 + n)) for n in range(10, 100)))
    pruned(connection, day(1200), monkeypatch)
    assert ids(connection) == [*range(99, 3, -1), 1]
    assert connection.execute("SELECT count(*) FROM blob").fetchone() == (0,)
    for _ in range(5):
        pruned(connection, day(1200), monkeypatch)
    assert ids(connection) == [*range(99, 9, -1), 1]
    monkeypatch.setattr(store, "MOST_RUNS", 89)
    monkeypatch.setattr(store, "_SLACK", 0)
    pruned(connection, day(1200), monkeypatch)
    assert ids(connection) == [*range(99, 10, -1), 1]
    store.remove(connection, [kept(99)])
    assert connection.execute("SELECT count(*) FROM answer").fetchone() == (89,)


def test_runs_with_a_tag_push_no_other_out(connection, monkeypatch):
    monkeypatch.setattr(store, "MOST_RUNS", 20)
    monkeypatch.setattr(store, "_SLACK", 5)
    add(connection, *(kept(n, started_at=day(n), tag="many") for n in range(60)))
    add(connection, *(kept(n, started_at=day(n)) for n in range(60, 80)))
    pruned(connection, day(100), monkeypatch)
    assert ids(connection) == [*range(79, -1, -1)]
    add(connection, *(kept(n, started_at=day(n)) for n in range(80, 86)))
    pruned(connection, day(100), monkeypatch)
    assert ids(connection) == [*range(85, 61, -1), *range(59, -1, -1)]


def test_a_limit_reads_no_run_behind_the_last_and_seals_are_computed_once(connection):
    add(connection, *(kept(n, tag=f"t{n % 2}", models=(f"m{n % 3}",)) for n in range(12)))
    connection.execute("UPDATE run SET models = '[', tag = 't9' WHERE id = ?", (kept(8).id,))
    counts: list[int] = []  # seals; that of the damaged run may be computed twice

    def sealed(*values: object) -> str:
        counts.append(1)
        return content.sealed(*values)

    connection.create_function("sealed", -1, sealed, deterministic=True)
    for wanted, limit, found, damaged, seals in (
        ({}, None, [11, 10, 9, 7, 6, 5, 4, 3, 2, 1, 0], [8], 12),
        ({}, 2, [11, 10], [], 4),
        ({"tag": "t1"}, None, [11, 9, 7, 5, 3, 1], [8], 13),
        ({"model": "m0", "tag": "t1"}, 2, [9, 3], [8], 13),
        ({"since": "2026-01-01T00:00:10Z"}, None, [11, 10], [8], 13),
    ):
        counts.clear()
        runs, told = store.listed(connection, wanted, limit)
        assert [int(run.id, 16) for run in runs] == found
        assert told == [kept(number).id for number in damaged]
        assert len(counts) <= seals


def test_no_clock_decides_what_goes(connection, monkeypatch):
    add(connection, *(kept(n, started_at=day(n)) for n in range(100)))
    add(connection, kept(100, started_at="2036-01-01T00:00:00Z"))
    pruned(connection, "2036-01-01T00:00:00Z", monkeypatch)
    add(connection, kept(101, started_at="2037-01-01T00:00:00Z"))
    pruned(connection, day(101), monkeypatch)
    assert len(ids(connection)) == 102
    monkeypatch.setattr(store, "utc_now", lambda: day(101))
    assert store.found(connection, "last").id == kept(99).id


def test_a_changed_cell_of_any_table_is_told(connection, tmp_path):
    given = tmp_path / "rows.csv"
    given.write_text("a,b\n")
    changes = {
        "run": ("verb = 'matrix'", "headline = 'x'", "seconds = 2", "models = '[\"a'"),
        "answer": ("content = x'00'", "inputs_bytes = 9", "seal = ''", "content_bytes = 1e8"),
        "input_file": ("path = 'other'", "kept = ''", "bytes = 1"),
        "blob": ("content = x'00'", "bytes = 3"),
        "cell": ("content = x'00'", "state = 'failed'", "seal = 'x'"),
    }
    run = kept(1)
    add(connection, run, inputs=[given])
    keep_cells(connection, "s", [KeptCell(key="k", rows=({"a": 1},))], "2026")
    assert not [*findings(connection)]
    for table, ways in changes.items():
        for way in ways:
            connection.execute("BEGIN")
            connection.execute(f"UPDATE {table} SET {way}")
            found = [*findings(connection)]
            assert [one.kind for one in found] == ["cell" if table == "cell" else "run"], way
            connection.execute("ROLLBACK")
    connection.execute("UPDATE run SET verb = 'matrix'")
    assert store.listed(connection, {}) == ([], [run.id])
    with pytest.raises(Damaged, match=f"run {run.id} is damaged"):
        store.found(connection, "last")


def test_a_content_is_never_unpacked_beyond_its_size():
    content, size_bytes = squeezed(b"0" * 10_000_000)
    assert len(inflated(content, size_bytes)) == size_bytes
    for wrong in (-1, 0, 100, size_bytes - 1, size_bytes + 1, 2**40):
        with pytest.raises(WrongContent):
            inflated(content, wrong)


def test_names_of_any_bytes_are_kept_and_found(connection, tmp_path):
    name = os.fsdecode(b"m\xe4rz")
    given = tmp_path / f"{name}.csv"
    given.write_text("a")
    run = kept(1, tag=name, command=name, options={"evidence": str(given)})
    add(connection, run, inputs=[given])
    found = store.found(connection, name)
    assert (found.tag, found.command) == ("m\\udce4rz", "m\\udce4rz")
    ((path, _, _),) = store.inputs_of(connection, found)
    assert path == found.options["evidence"]
    assert [one.id for one in store.listed(connection, {"tag": name})[0]] == [run.id]


SECRET = "hf_0123456789"


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        (f"export HF_TOKEN={SECRET}\n", True),
        (f'wandb_api_key: "{SECRET}"', True),
        (f'{{"AWS_SECRET_ACCESS_KEY": "{SECRET}", "tp": 8}}', True),
        (f"[hub]\ntoken = '{SECRET}'\n", True),
        (f'password = """\n{SECRET}\n"""', True),
        (f"trnbench --api-key {SECRET}", True),
        (f"Authorization: Bearer {SECRET}", True),
        ("db_password = 12345", True),
        ('tokens = "300B"', False),
        ("tokens_per_s = 1.5e3", False),
        ('key = "step_time_s"', False),
        ("id,tokens,seq\na,1,2\n", False),
    ],
)
def test_what_is_assigned_to_a_secret_name_is_masked(text, gone):
    told = masked(text.encode()).decode()
    assert (SECRET not in told and "12345" not in told) or not gone
    assert (told == text) is not gone


def test_of_scripts_configurations_and_logs_a_digest_alone_is_kept(connection, tmp_path):
    names = {"job.sh": False, "c.yaml": False, "run.log": False, "mine.toml": False, "s.toml": True}
    for name in names:
        (tmp_path / name).write_text("x = 1\n")
    run = kept(1)
    with transaction(connection):
        paths = [tmp_path / name for name in names]
        store.add(connection, run, ANSWER, paths, [tmp_path / "mine.toml"])
    read = store.inputs_of(connection, run)
    assert {Path(path).name: content is not None for path, _, content in read} == names
    assert {sha256 for _, sha256, _ in read} == {digest(b"x = 1\n")}


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


def test_a_run_that_is_replaced_while_it_is_read_is_read_whole(connection, tmp_path):
    add(connection, kept(1))
    with opened(tmp_path / "runs.db") as writer:

        def replace(statement: str) -> None:
            if "FROM answer" in statement:
                connection.set_trace_callback(None)
                with transaction(writer):
                    store.remove_one(writer, kept(1).id)

        connection.set_trace_callback(replace)
        found = read_run(connection, "last")
    assert found.answer.rows == ANSWER.rows
    assert store.counted(connection) == 0
