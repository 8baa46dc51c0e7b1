"""Loading a data file: every kind of fault, all of them at once, and where numbers come from."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Literal

import pytest

from trnbench.errors import DataFileError
from trnbench.facts.catalog.document import load, load_named
from trnbench.facts.catalog.provenance import Kind, Sourced
from trnbench.facts.catalog.quantity import Bytes, BytesPerS, Ratio, Seconds
from trnbench.facts.catalog.search import Catalog, Folder
from trnbench.facts.catalog.toml_file import read_toml
from trnbench.facts.records import Record, field


class Ring(Record, tag_field="topology", tag="ring"):
    length: int
    latency_s: Seconds


class Star(Record, tag_field="topology", tag="star"):
    ports: int


class Inner(Record):
    capacity_bytes: Bytes
    rates_bytes_per_s: dict[str, BytesPerS] = field(default_factory=dict)
    share: Ratio | None = None


class Thing(Sourced):
    name: str
    mode: Literal["a", "b"]
    count: int
    scale: float
    sizes: tuple[int, ...]
    on: bool = False
    since: datetime.date | None = None
    inner: Inner
    parts: tuple[Ring | Star, ...] = ()

    def __post_init__(self) -> None:
        if self.count == 13:
            raise ValueError("13 is unlucky")


GOOD = """
name = "thing"
source = "book"
kind = "vendor"
mode = "a"
count = 3
scale = 1.5
sizes = [1, 2]
since = 2024-01-31

[sources]
book = { title = "The book", date = 2024-01-31 }
lab = { title = "The lab", date = 2025-01-31, url = "example.org/lab" }

[inner]
capacity = { value = "4 GiB", source = "lab", kind = "measured", low = "3 GiB", high = "5 GiB" }
rates = { up = "1 GB/s", down = "8 Gbit/s" }
share = 0.5

[[parts]]
topology = "ring"
length = 4
latency = { value = "1 us", kind = "assumed", low = "0 s", high = "2 us", note = "a guess" }

[[parts]]
topology = "star"
ports = 8

[[conflict]]
field = "inner.capacity"
used = "4 GiB"
why = "measured beats told"
values = [{ value = "4 GiB", source = "lab" }, { value = "4 GB", source = "book" }]

[[claim]]
text = "the best thing"
source = "book"
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "thing.toml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def faults(path) -> list[str]:
    with pytest.raises(DataFileError) as caught:
        load(path, Thing)
    assert caught.value.file == str(path)
    assert all("\n" not in str(fault) for fault in caught.value.faults)
    return [str(fault) for fault in caught.value.faults]


def test_a_good_file_becomes_a_record_in_base_units(write):
    thing = load(write(GOOD), Thing)
    assert thing.inner.capacity_bytes == 4 * 2**30
    assert thing.inner.rates_bytes_per_s == {"up": 1e9, "down": 1e9}
    assert thing.parts == (Ring(length=4, latency_s=1e-6), Star(ports=8))
    assert thing.sizes == (1, 2)
    assert thing.since == datetime.date(2024, 1, 31)


def test_every_number_has_its_evidence_own_or_inherited(write):
    provenance = load(write(GOOD), Thing).provenance
    assert set(provenance.evidence) == {
        *("count", "scale", "sizes[0]", "sizes[1]", "inner.capacity", "inner.rates.up"),
        *("inner.rates.down", "inner.share", "parts[0].length", "parts[0].latency"),
        "parts[1].ports",
    }
    capacity = provenance.evidence["inner.capacity"]
    assert (capacity.text, capacity.source, capacity.kind) == ("4 GiB", "lab", Kind.MEASURED)
    assert (capacity.low, capacity.high) == (3 * 2**30, 5 * 2**30)
    inherited = provenance.evidence["parts[0].latency"]
    assert (inherited.source, inherited.kind, inherited.note) == ("book", Kind.ASSUMED, "a guess")
    assert provenance.weakest() is Kind.ASSUMED
    assert provenance.sources["lab"].url == "example.org/lab"
    assert [c.field for c in provenance.conflicts] == ["inner.capacity"]
    assert [c.text for c in provenance.claims] == ["the best thing"]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("count = 3", "", "count: missing"),
        ("count = 3", "count = 3\ncuont = 4", "cuont: unknown key; did you mean 'count'?"),
        ("count = 3", 'count = "3"', "count: expected a whole number, found the text '3'"),
        ("count = 3", "count = 3.5", "count: expected a whole number, found the number 3.5"),
        ("count = 3", "count = true", "count: expected a whole number, found true"),
        ("count = 3", "count = -3", "count: must be a whole number"),
        ("count = 3", "count = 99999999999999999999", "count: must be a whole number"),
        ("count = 3", "count = 13", "13 is unlucky"),
        ("scale = 1.5", "scale = nan", "scale: must be a finite number"),
        ("scale = 1.5", "scale = -1.0", "scale: must be a finite number"),
        ("scale = 1.5", "scale = inf", "scale: must be a finite number"),
        ('mode = "a"', 'mode = "c"', "mode: expected one of a, b; found the text 'c'"),
        ('mode = "a"', "mode = 1", "mode: expected one of a, b; found the number 1"),
        ('mode = "a"', "mode = []", "mode: expected one of a, b; found a list"),
        ("sizes = [1, 2]", "sizes = 1", "sizes: expected a list, found the number 1"),
        ("sizes = [1, 2]", 'sizes = [1, "2"]', "sizes[1]: expected a whole number"),
        ("since = 2024-01-31", 'since = "May"', "since: expected a date, found the text 'May'"),
        ("since = 2024-01-31", "on = 1", "on: expected true or false, found the number 1"),
        ('"4 GiB", source', '"4", source', "inner.capacity: '4' has no unit"),
        ('"4 GiB", source', "4, source", "inner.capacity: expected a quantity with unit such as"),
        ('"4 GiB", source', '"4 GHz", source', "inner.capacity: '4 GHz': unknown unit 'GHz'"),
        ('"4 GiB", source', '"0 GiB", source', "inner.capacity: must be positive, found '0 GiB'"),
        ('"4 GiB", source', '"-4 GiB", source', "inner.capacity: must be positive"),
        ('"4 GiB", source', '"nan GiB", source', "inner.capacity: 'nan GiB' is not a quantity"),
        ('up = "1 GB/s"', 'up = "1 Gbps"', "inner.rates.up: '1 Gbps': 'Gbps' does not say bit"),
        ("rates = {", "rates = 4 #", "inner.rates: expected a table, found the number 4"),
        (
            'topology = "star"',
            'topology = "tree"',
            "parts[1]: `topology` must be one of ring, star",
        ),
        ('topology = "star"', "", "parts[1]: `topology` must be one of ring, star; found nothing"),
        ("ports = 8", "ports = 8\nlength = 1", "parts[1].length: unknown key"),
        ('kind = "vendor"', "", "count: a number without `kind`"),
        ('source = "book"\nkind', "kind", "count: a number without `source`"),
        ('source = "lab", kind', 'source = "lba", kind', "inner.capacity: source 'lba' is not in"),
        ('"measured"', '"mesured"', "inner.capacity: unknown kind 'mesured'; did you mean"),
        ('low = "0 s", ', "", "parts[0].latency: an assumed number needs a range"),
        ('low = "3 GiB"', 'low = "6 GiB"', "inner.capacity: `low` is above `high`"),
        ('low = "3 GiB"', 'low = "3 s"', "inner.capacity: range: '3 s': unknown unit"),
        ('low = "3 GiB"', 'low = "4.5 GiB"', "inner.capacity: the value is outside"),
        ('high = "5 GiB"', 'high = "3.5 GiB"', "inner.capacity: the value is outside"),
        (
            'mode = "a"',
            'mode = { value = "a", source = "lba" }',
            "mode: source 'lba' is not in [sources]; did you mean 'lab'?",
        ),
        ("[inner]", '[inner]\nkind = "vendr"', "inner.rates.up: unknown kind 'vendr'"),
        ('note = "a guess"', "note = 4", "parts[0].latency: `note` must be a text"),
        ('note = "a guess"', 'nota = "x"', "parts[0].latency.nota: unknown key"),
        ('name = "thing"', 'name = "other"', "name: 'other' is not the file's name"),
        (
            'source = "book" }]',
            'source = "bok" }]',
            "conflict[0].values[1].source: 'bok'",
        ),
        ('field = "inner.cap', 'field = "iner.cap', "conflict[0].field: no such key"),
        ('field = "inner.capacity', 'field = "inner.cap', "conflict[0].field: no such key"),
        ('field = "inner.capacity', 'field = "', "conflict[0].field: no such key ''"),
        ("why = ", "wy = ", "conflict[0].why: missing"),
        ('text = "the', 'txt = "the', "claim[0].txt: unknown key; did you mean 'text'?"),
        ("date = 2024-01-31 }", "date = 2024 }", "sources.book.date: expected a date"),
    ],
)
def test_each_fault_is_told_with_its_key(write, old, new, fault):
    assert GOOD.count(old) >= 1
    found = faults(write(GOOD.replace(old, new, 1)))
    assert any(text.startswith(fault) for text in found), found


def test_all_faults_of_a_file_are_told_at_once(write):
    text = GOOD.replace("count = 3", "cuont = 3").replace('"4 GiB", s', '"4", s')
    text = text.replace('kind = "assumed"', 'kind = "guessed"').replace("ports = 8", "ports = -8")
    found = faults(write(text))
    keys = {fault.split(":")[0] for fault in found}
    assert {"count", "cuont", "inner.capacity", "parts[0].latency", "parts[1].ports"} <= keys


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"name = ", "not valid TOML"),
        (b"name = 'x'\nname = 'y'", "not valid TOML"),
        (b"\xff\xfe", "line 1 is not valid UTF-8"),
        (b"a = 1\nb = '\xe9'", "line 2 is not valid UTF-8"),
        (b"\x7fELF\x00\x01", "is a binary file"),
        (b"a = [" * 5000, "not valid TOML"),
        (b"a = " + b"9" * 5000, "not valid TOML"),
        pytest.param(b"#" * (10 << 20), "has 10,485,760 bytes", id="large"),
    ],
)
def test_a_file_that_is_no_data_file(tmp_path, raw, said):
    path = tmp_path / "thing.toml"
    path.write_bytes(raw)
    assert said in faults(path)[0]


def test_folders_missing_files_and_forbidden_files(tmp_path, monkeypatch):
    (tmp_path / "thing.toml").mkdir()
    assert faults(tmp_path / "thing.toml") == ["is a folder; expected a TOML file"]
    assert faults(tmp_path / "none.toml") == ["no such file"]
    shut = tmp_path / "shut.toml"
    shut.write_text(GOOD)

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(shut), "read_bytes", refuse)
    assert faults(shut) == ["no permission to read it"]


def test_a_pipe_is_not_waited_for(tmp_path):
    import os

    os.mkfifo(tmp_path / "thing.toml")
    said = "is a pipe; write what comes out of it to a TOML file first"
    assert faults(tmp_path / "thing.toml") == [said]
    assert faults(Path("/dev/null")) == ["is not a regular file; expected a TOML file"]


class Tabled(Sourced):
    name: str
    aliases: tuple[str, ...] = ()
    title: str


def put(folder, title):
    path = folder / "chips" / "one.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'name = "one"\naliases = ["uno"]\ntitle = "{title}"\n')
    return path


def test_a_file_is_read_once_until_it_changes(tmp_path, monkeypatch):
    path = put(tmp_path, "first")
    catalog = Catalog((Folder(tmp_path, "user"),))
    read = []

    def reading(path):
        read.append(path)
        return read_toml(path)

    monkeypatch.setattr("trnbench.facts.catalog.search.read_known", reading)
    once = load_named(catalog, "chips", "one", Tabled)
    assert load_named(catalog, "chips", "uno", Tabled) is once
    assert catalog.table(path)["title"] == once.title == "first"
    assert read == [path]
    put(tmp_path, "the second")
    assert load_named(catalog, "chips", "one", Tabled).title == "the second"


def test_a_folder_in_front_has_its_own_record(tmp_path):
    put(tmp_path / "back", "first")
    put(tmp_path / "front", "other")
    back, front = (Folder(tmp_path / name, name) for name in ("back", "front"))
    shown = load_named(Catalog((back,)), "chips", "one", Tabled)
    hidden = load_named(Catalog((front, back)), "chips", "one", Tabled)
    assert (shown.title, hidden.title) == ("first", "other")


def test_a_faulty_file_is_faulty_each_time_and_a_missing_one_says_so(tmp_path):
    path = put(tmp_path, "first")
    catalog = Catalog((Folder(tmp_path, "user"),))
    assert load_named(catalog, "chips", "one", Tabled).title == "first"
    path.write_text("title = 3\n")
    for _ in range(2):
        with pytest.raises(DataFileError, match="name: missing"):
            load_named(catalog, "chips", "one", Tabled)
    path.unlink()
    with pytest.raises(DataFileError, match=r"one\.toml"):
        load_named(catalog, "chips", "one", Tabled)
