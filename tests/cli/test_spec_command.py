"""`trnbench spec`: what a person sees, what a machine reads, and how it refuses."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest

from trnbench.facts.catalog.search import SPEC_SECTIONS
from trnbench.show.formats import RENDERERS

ROOT = Path(__file__).parents[2]


def test_list_has_every_shipped_file_once(run):
    done = run("spec", "list", "--json")
    assert done.code == 0
    assert done.json["schema"] == "trnbench.spec-list/1"
    names = [(row["section"], row["name"]) for row in done.json["rows"]]
    files = [
        (path.parent.name, path.stem)
        for section in SPEC_SECTIONS
        for path in sorted((ROOT / "specs" / section).glob("*.toml"), key=lambda path: path.stem)
    ]
    assert names == files


def test_show_has_drawing_sources_conflicts_and_prices(run):
    done = run("spec", "show", "trn1.32xlarge")
    assert (done.code, done.err) == (0, "")
    for expected in (
        "16 x trainium1",
        "~  0 -  1 -  2 -  3 ~",
        "links a chip",
        "Where sources disagree",
        "Published prices",
        "Sources",
        "vendor",
    ):
        assert expected in done.out
    assert max(map(len, done.out.splitlines())) <= 160
    prices = run("spec", "show", "trn1.32xlarge", "--json").json["summary"]["prices"]
    (rate,) = (p for p in prices if (p["purchase"], p["region"]) == ("on-demand", "us-east-2"))
    assert (rate["usd_per_hour"], rate["price_date"]) == (21.50, "2026-11-21")


def test_an_alias_shows_the_same(run):
    *shown, taken = run("spec", "show", "u-trn2x64").out.splitlines()
    assert shown == run("spec", "show", "trn2-ultraserver").out.splitlines()
    assert taken == "u-trn2x64 = trn2-ultraserver"


def test_show_as_json_has_values_and_provenance(run):
    done = run("spec", "show", "trainium2", "--json").json
    rows = {row["key"]: row for row in done["rows"]}
    assert rows["memory.capacity_per_chip"]["value"] == "96 GiB"
    assert rows["memory.capacity_per_chip"]["kind"] == "vendor"
    assert rows["memory.capacity_per_chip"]["number"] == 96 * 2**30
    assert rows["memory.capacity_per_chip"]["unit"] == "bytes"
    assert rows["memory.bandwidth_per_chip"]["unit"] == "bytes_per_s"
    assert (rows["cores.count"]["number"], rows["cores.count"]["unit"]) == (8, "")
    assert done["summary"]["figures"]["memory_bytes"] == 96 * 2**30
    assert done["summary"]["conflicts"]
    assert all(row["source"] in {*done["summary"]["sources"], ""} for row in done["rows"])


def test_diff_gives_ratios_to_the_first(run):
    done = run("spec", "diff", "trn1.32xlarge", "trn2.48xlarge", "--json").json
    rows = {row["figure"]: row for row in done["rows"]}
    memory = rows["memory_bytes"]
    assert memory["trn1.32xlarge"] == 512 * 2**30
    assert memory["trn2.48xlarge"] == 1536 * 2**30
    assert memory["trn2.48xlarge_ratio"] == 3.0
    text = run("spec", "diff", "trn1.32xlarge", "trn2.48xlarge").out
    assert "3.00x" in text


def test_diff_keeps_what_belongs_together_together(run):
    lines = run("spec", "diff", "trn1.32xlarge", "p5.48xlarge").out.splitlines()
    labels = [line[:30].strip() for line in lines]
    assert labels.index("peak int8") < labels.index("headline fp32")
    assert labels[-1] == "local storage"
    assert not any(label.startswith("efa") for label in labels)  # a row of two kinds of adapter


@pytest.mark.parametrize("output_format", RENDERERS)
def test_a_file_and_stdout_get_the_same_bytes(run, output_format, tmp_path):
    target = tmp_path / "out"
    shown = run("spec", "list", "--format", output_format)
    written = run("spec", "list", "--format", output_format, "-o", target)
    assert (written.code, written.out) == (0, "")
    assert target.read_text() == shown.out
    assert shown.out.endswith("\n")


def test_csv_and_json_agree_cell_for_cell(run):
    names = ("spec", "diff", "p5.48xlarge", "trn2.48xlarge")
    rows = run(*names, "--json").json["rows"]
    table = list(csv.DictReader(io.StringIO(run(*names, "--format", "csv").out)))
    lines = [json.loads(line) for line in run(*names, "--format", "jsonl").out.splitlines()]
    assert lines == rows
    for cells, row in zip(table, rows, strict=True):
        for key, value in row.items():
            assert cells[key] == (
                "" if value is None else str(value) if value != value else cells[key]
            )
            if isinstance(value, float):
                assert float(cells[key]) == value


def test_output_has_no_escapes_and_no_boxes_on_a_pipe(run):
    out = run("spec", "show", "trn2-ultraserver").out
    assert "\x1b" not in out
    assert all(ord(character) < 0x2500 for character in out)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("spec", "show", "trn2.48xlarg"), 2, "did you mean 'trn2.48xlarge'?"),
        (("spec", "shw"), 2, "did you mean 'show'?"),
        (("spec", "list", "--fromat", "json"), 2, "list has no --fromat; did you mean '--format'?"),
        (("spec", "list", "--format", "xml"), 2, "'xml'"),
        (("spec", "list", "--json", "--format", "csv"), 2, "contradicts"),
        (("spec", "diff", "trn1.32xlarge"), 2, "two names or more"),
        (("spec", "diff", "trn1.32xlarge", "trainium2"), 2, "names of one kind"),
        (("spec", "list", "--spec-dir", "/no/such"), 2, "is not a folder"),
        (("spec", "list", "-o", "/no/such/file"), 3, "no folder /no/such"),
        (("spec", "list", "-o", "/"), 3, "it is a folder"),
        (("spec", "list", "-o", "/dev/full"), 3, "No space left"),
        (("spec", "validate", "/no/such.toml"), 2, "no such file"),
        (("nothing",), 2, "trnbench has no command 'nothing'"),
    ],
)
def test_refusals_are_one_line_with_their_code(run, arguments, code, said):
    done = run(*arguments)
    assert done.code == code
    text = done.err + (done.out if "validate" in arguments else "")
    assert said in text
    assert "Traceback" not in text
    error_lines = [line for line in done.err.splitlines() if not line.startswith("  hint: ")]
    assert len(error_lines) <= 1


def test_validate_lists_all_faults_of_a_file(run, tmp_path):
    good = (ROOT / "specs/chips/trainium2.toml").read_text()
    bad = tmp_path / "trainium2.toml"
    bad.write_text(good.replace('"96 GiB"', "96", 1).replace("stacks", "stakcs", 1))
    done = run("spec", "validate", bad)
    assert done.code == 2
    assert "memory.capacity_per_chip: expected a quantity with unit" in done.out
    assert "memory.stakcs: unknown key; did you mean 'stacks'?" in done.out
    assert "memory.stacks: missing" in done.out


@pytest.mark.parametrize(
    ("aliases", "said"),
    [
        ('["trainium2"]', "duplicate name 'trainium2': twice in this file"),
        ('["a", "a"]', "duplicate name 'a': twice in this file"),
        ('["trainium1"]', "duplicate name 'trainium1'"),
        ('["trn1"]', "duplicate name 'trn1'"),
        ('["mine"]', "duplicate name 'mine'"),
    ],
)
def test_validate_finds_names_that_are_taken(run, tmp_path, aliases, said):
    chips = tmp_path / "chips"
    chips.mkdir()
    text = (ROOT / "specs/chips/trainium2.toml").read_text()
    (chips / "trainium2.toml").write_text(
        text.replace('aliases = ["trn2"]', f"aliases = {aliases}")
    )
    other = text.replace('"trainium2"', '"other"', 1).replace('["trn2"]', '["mine"]')
    (chips / "other.toml").write_text(other)
    (chips / "broken.toml").write_text("name = ")
    done = run("spec", "validate", chips)
    assert done.code == 2
    assert f"aliases: {said}" in done.out
    assert "broken.toml:\n  not valid TOML" in done.out
    assert run("spec", "show", "trainium2", "--spec-dir", tmp_path).code == 2


def test_files_that_are_validated_together_may_name_each_other(run, tmp_path):
    for section, name, old in (
        ("chips", "my-chip", "h100"),
        ("instances", "my-instance", "p5.48xlarge"),
    ):
        (tmp_path / section).mkdir()
        text = (ROOT / "specs" / section / f"{old}.toml").read_text()
        text = re.sub("aliases = .*", "", text.replace(f'"{old}"', f'"{name}"', 1))
        text = text.replace('chip = "h100"', 'chip = "my-chip"')
        (tmp_path / section / f"{name}.toml").write_text(text)
    done = run("spec", "validate", tmp_path)
    assert done.code == 0, done.out


def test_a_rate_of_an_unknown_format_is_refused(run, tmp_path):
    text = (ROOT / "specs/chips/trainium2.toml").read_text()
    bad = tmp_path / "trainium2.toml"
    bad.write_text(text.replace("sparse = 640", "sprase = 640"))
    done = run("spec", "validate", bad)
    assert done.code == 2
    assert "input_elements_per_cycle: unknown number format 'sprase'; did you mean" in done.out


@pytest.mark.slow
def test_all_shipped_specs_are_valid(run):
    done = run("spec", "validate", ROOT / "specs")
    assert done.code == 0, done.out


def test_a_user_folder_shadows_and_says_so(run, tmp_path):
    mine = tmp_path / "mine" / "chips"
    mine.mkdir(parents=True)
    shutil.copy(ROOT / "specs/chips/trainium2.toml", mine / "trainium2.toml")
    done = run("spec", "list", "--spec-dir", tmp_path / "mine")
    assert f"trainium2 from {mine / 'trainium2.toml'} overrides" in done.out
    row = next(
        row
        for row in run("spec", "list", "--json", "--spec-dir", tmp_path / "mine").json["rows"]
        if row["name"] == "trainium2"
    )
    assert row["origin"] == "--spec-dir"
    assert "overrides" in run("spec", "show", "trainium2", "--spec-dir", tmp_path / "mine").out


def test_a_type_that_has_only_prices_is_shown_by_its_prices(run):
    assert "Published prices" in run("spec", "show", "g5.xlarge").out


def test_an_instance_with_an_unknown_chip_is_told_where(run, tmp_path):
    mine = tmp_path / "instances"
    mine.mkdir()
    text = (ROOT / "specs/instances/p5.48xlarge.toml").read_text()
    text = text.replace('"p5.48xlarge"', '"mine"', 1).replace('"h100"', '"h1000"', 1)
    text = text.replace('aliases = ["p5"]\n', "")
    (mine / "mine.toml").write_text(text)
    done = run("spec", "show", "mine", "--spec-dir", tmp_path)
    assert done.code == 2
    assert "unknown chip 'h1000'" in done.err
    assert "mine.toml (chip)" in done.err
    assert "chip: unknown chip" in run("spec", "validate", mine, "--spec-dir", tmp_path).out


def test_a_calibration_says_of_each_number_what_it_rests_on(run):
    def rows(name):
        found = json.loads(run("spec", "show", name, "--json").out)["rows"]
        return {row["key"]: row for row in found}

    own, given = rows("training-nxd-trn1"), rows("training-nxd-trn2")
    assert own["factor"]["rests_on"] == "fitted to measured steps"
    assert given["factor"]["rests_on"] == (
        "carried over from training-nxd-trn1: fitted to measured steps"
    )
    assert given["fragmentation"]["rests_on"] == "believed"
    assert given["title"]["rests_on"] == ""
    assert {row["rests_on"] for row in rows("trainium2").values()} == {""}
    assert given["supports[0].features"]["source"]
    shown = run("spec", "show", "training-nxd-trn2").out
    assert "What its software runs" in shown
    assert "refused: schedule gpipe, schedule zb-h1 (its scheduler has" in shown
    assert "as in training" not in shown


def test_failures_stand_beside_the_uptime_that_was_published(run):
    shown = " ".join(run("spec", "show", "reliability/trainium").out.split())
    assert "job uptime of 98.81 %" in shown
    assert "17.1 minutes" in shown
