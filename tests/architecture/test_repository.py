"""Rules about the tree itself that no linter knows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomli
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PACKAGE = sorted((ROOT / "trnbench").rglob("*.py"))
BAGS = {"utils", "util", "helpers", "helper", "common", "misc", "core", "base"}


TOP = {
    *("pyproject.toml", "trnbench", "specs", "workloads", "tests", "Makefile"),
    *("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", ".ci", ".gitignore"),
}


def test_the_top_level_has_only_what_belongs_there():
    done = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("no checkout of git")
    assert {name.partition("/")[0] for name in done.stdout.splitlines()} == TOP


def test_no_module_is_a_bag():
    assert not [path for path in PACKAGE if path.stem in BAGS]


def test_modules_stay_readable_in_length():
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in PACKAGE}
    assert {name: length for name, length in lengths.items() if length > 500} == {}


def test_only_diagnostics_writes_to_stderr():
    writers = {path.name for path in PACKAGE if re.search(r"sys\.stderr", path.read_text())}
    assert writers <= {"diagnostics.py"}


def test_nothing_is_unfinished():
    marks = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    assert not [path for path in PACKAGE if marks.search(path.read_text())]


def test_import_rules_hold():
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "target",
    [
        *("setup", "run", "test", "test-fast", "soak", "fuzz", "check", "fmt", "lines", "wheel"),
        *("lock", "lowest", "isolated", "audit", "clean"),
    ],
)
def test_the_makefile_explains_its_targets(target):
    assert re.search(rf"^{target}:.*## \w", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_package_version_is_in_the_changelog():
    from trnbench import __version__

    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_python_versions_agree():
    project = tomli.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == ">=3.11"
    assert project["tool"]["ruff"]["target-version"] == "py311"


def test_every_use_case_of_the_python_api_can_be_had():
    import trnbench

    assert sorted(trnbench.__all__) == sorted(["__version__", *trnbench._HOMES])
    assert all(getattr(trnbench, name) is not None for name in trnbench.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        trnbench.nothing  # noqa: B018


def test_every_dependency_is_locked_by_hash_to_a_version_that_is_allowed():
    project = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / ".ci" / "requirements.lock").read_text()
    locked = dict(
        re.findall(r"(?m)^([a-z0-9-]+)==(\S+)(?: ; [^\\\n]+)? \\\n    --hash=sha256:", text)
    )
    assert len(locked) == text.count("==")
    for one in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        asked = Requirement(one)
        version = locked[asked.name.lower().replace("_", "-")]
        assert asked.specifier.contains(version), f"{one}: {version} is locked; run `make lock`"


def test_every_dependency_of_users_has_both_bounds():
    project = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [one for name, given in extras.items() if name != "dev" for one in given]
    for one in map(Requirement, [*project["dependencies"], *asked]):
        assert sorted(bound.operator for bound in one.specifier) == ["<", ">="], one


def test_the_lowest_versions_are_those_of_users_and_tools_stand_beside_them():
    command = [sys.executable, ".ci/lowest.py"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert {"textual==8", "tomli==2.2.1", "pyarrow==18"} < {*lines}
    assert len([one for one in lines if Requirement(one).name == "textual"]) == 1
    assert [one for one in lines if one.startswith("pytest>=")]
