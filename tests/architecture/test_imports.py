"""Packages: declared, used, imported where they belong; and no circle of imports."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
import tomli

from tests.architecture.sources import TOGETHER, parsed

ROOT = Path(__file__).parents[2]
PROJECT = tomli.loads((ROOT / "pyproject.toml").read_text())
SCRIPTS = {"torch": "trnbench/evidence/measure/torch_steps.py"}
"""Files that are run apart, in a Python that may not have trnbench, by what they need."""
NOT_OURS = {"trnbench", "tests", *sys.stdlib_module_names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import: where it stands, and the module it names.

    `late` imports run when a function does; `typing` ones are for the type checker alone.
    """

    path: str
    module: str
    late: bool
    typing: bool

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]


@cache
def modules(folder: str) -> dict[str, Path]:
    """Return the file of every module below a folder, by the module's name."""
    found = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        if str(path.relative_to(ROOT)) in SCRIPTS.values():
            continue
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(folder: str) -> tuple[Import, ...]:
    """Return every import below a folder."""
    return tuple(
        one
        for path in modules(folder).values()
        for one in _walk(parsed(path), path.relative_to(ROOT).as_posix())
    )


def _walk(
    node: ast.AST, path: str, *, late: bool = False, typing: bool = False
) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(path=path, module=alias.name, late=late, typing=typing)
        elif isinstance(child, ast.ImportFrom):
            assert child.module is not None, f"{path}: a relative import"
            for alias in child.names:
                module = f"{child.module}.{alias.name}"
                ours = module in modules("trnbench")
                yield Import(
                    path=path, module=module if ours else child.module, late=late, typing=typing
                )
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            guarded = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            yield from _walk(child, path, late=late or inside, typing=typing or guarded)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[<>=!~;\[ ]", text, maxsplit=1)[0]) for text in requirements}


@cache
def imported(folder: str) -> set[str]:
    """Return the distributions that modules below a folder import."""
    of = packages_distributions()
    tops = {one.top for one in imports(folder)} - NOT_OURS
    return {normal(of.get(top, [top])[0]) for top in tops}  # an extra may not be installed


pytestmark = [pytest.mark.slow, TOGETHER]  # every module is read

RUN_TIME = declared(PROJECT["project"]["dependencies"])
EXTRAS = {
    name
    for extra, requirements in PROJECT["project"]["optional-dependencies"].items()
    if extra not in ("dev", *SCRIPTS)
    for name in declared(requirements)
}
DEV = declared(PROJECT["project"]["optional-dependencies"]["dev"])


def test_what_is_imported_is_declared_and_what_is_declared_is_imported():
    assert imported("trnbench") == RUN_TIME | EXTRAS


def test_what_only_some_need_is_imported_late_by_the_package_that_is_for_it():
    places = dict.fromkeys(("boto3", "botocore"), "trnbench/facts/prices/feed/")
    places["jax"] = "trnbench/evidence/measure/"
    places |= dict.fromkeys(("aiohttp", "textual-serve"), "trnbench/tui/serve")
    places |= {
        "distributed": "trnbench/verbs/study/on_dask.py",
        "pyarrow": "trnbench/show/formats.py",
    }
    found = [one for one in imports("trnbench") if normal(one.top) in EXTRAS]
    assert {normal(one.top) for one in found} == places.keys()
    assert [
        one for one in found if not one.late or not one.path.startswith(places[normal(one.top)])
    ] == []


def test_what_tests_import_is_declared():
    assert imported("tests") <= RUN_TIME | DEV


@pytest.mark.parametrize("name", sorted(DEV - RUN_TIME - EXTRAS))
def test_every_tool_is_used(name):
    makefile = (ROOT / "Makefile").read_text()
    points = distribution(name).entry_points
    assert (
        name in imported("tests")
        or any(point.group == "pytest11" for point in points)
        or any(f"/{point.name}" in makefile for point in points.select(group="console_scripts"))
        or re.search(rf"(/|-m ){name}\b", makefile)
        or name in declared(PROJECT["build-system"]["requires"])
    )


@pytest.mark.parametrize(
    ("package", "home"),
    [
        ("typer", "trnbench/cli/"),
        *((name, "trnbench/tui/") for name in ("textual", "textual_plot", "rich")),
        *((name, "trnbench/facts/catalog/toml_file.py") for name in ("tomli", "tomli_w")),
    ],
)
def test_each_package_stays_at_home(package, home):
    importers = {one.path for one in imports("trnbench") if one.top == package}
    assert importers
    assert {path for path in importers if not path.startswith(home)} == set()


def test_scipy_is_imported_when_it_is_called():
    found = [one for one in imports("trnbench") if one.top == "scipy"]
    assert found
    assert [one.path for one in found if not one.late and not one.typing] == []


def test_private_modules_of_others_are_left_alone():
    others = [one for one in imports("trnbench") if one.top not in NOT_OURS - {"tests"}]
    assert [one for one in others if "._" in one.module] == []


def test_records_are_those_that_are_quick_to_import():
    assert [one for one in imports("trnbench") if one.module.split(".")[0] == "dataclasses"] == []


def test_records_are_made_by_one_module_without_private_names():
    made = [one for one in imports("trnbench") if one.top == "msgspec"]
    assert {one.path for one in made} == {"trnbench/facts/records.py"}
    private = re.compile(r"__(struct|dataclass)_\w+|msgspec\._")
    users = [path for path in modules("trnbench").values() if private.search(path.read_text())]
    assert [path.name for path in users] == ["records.py"]


def test_no_circle_of_imports():
    of = {path.relative_to(ROOT).as_posix(): name for name, path in modules("trnbench").items()}
    graph: dict[str, set[str]] = {}
    for one in imports("trnbench"):
        # The package itself names its functions for the type checker, and imports none at start.
        if one.module in modules("trnbench") and one.path != "trnbench/__init__.py":
            graph.setdefault(of[one.path], set()).add(one.module)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        pytest.fail(f"a circle of imports: {circle}")
