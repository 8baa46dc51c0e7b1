"""The wheel and the source archive: installed elsewhere, they know all the shipped data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import tomli

ROOT = Path(__file__).parents[2]
PRIORS = "specs/priors/"
SHIPPED = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("specs", "workloads")
    for path in (ROOT / folder).rglob("*")
    if path.is_file()
)


pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("distribution")]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_carries_every_data_file_and_no_other(built):
    with zipfile.ZipFile(built[0]) as archive:
        names = archive.namelist()
    carried = sorted(n.removeprefix("trnbench/_data/") for n in names if "/_data/" in n)
    assert carried == SHIPPED
    assert "trnbench/py.typed" in names
    styles = {
        f"trnbench/tui/styles/{path.name}" for path in ROOT.glob("trnbench/tui/styles/*.tcss")
    }
    assert len(styles) == 4
    assert styles <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_source_archive_carries_data_tests_and_makefile(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert set(SHIPPED) <= names
    assert {"Makefile", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= names
    assert not any(name.startswith(".venv") for name in names)


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
    subprocess.run(
        [sys.executable, *install, str(target), str(built[0])], check=True, capture_output=True
    )
    return target


def test_building_runs_nothing_of_the_program():
    project = tomli.loads((ROOT / "pyproject.toml").read_text())
    targets = project["tool"]["hatch"]["build"]["targets"]
    assert [name for name, target in targets.items() if "hooks" in target] == []
    assert [one.split(">")[0] for one in project["build-system"]["requires"]] == ["hatchling"]


def test_installed_elsewhere_it_lists_the_same_specs(installed, tmp_path):
    target, elsewhere = installed, tmp_path / "work"
    elsewhere.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(target), "XDG_DATA_HOME": str(tmp_path)}
    listed = []
    for verb in ("spec", "workload"):
        done = subprocess.run(
            [sys.executable, "-m", "trnbench", verb, "list", "--json"],
            cwd=elsewhere,
            env=environment,
            check=True,
            capture_output=True,
        )
        listed += [Path(row["path"]) for row in json.loads(done.stdout)["rows"]]
    data = target / "trnbench" / "_data"
    assert sorted(path.relative_to(data).as_posix() for path in listed) == [
        name
        for name in SHIPPED  # what stands in no section is no data file to list
        if name.endswith(".toml") and name.count("/") == 2 and not name.startswith(PRIORS)
    ]
