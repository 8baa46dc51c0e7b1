"""Names that other packages keep to themselves are not used: they change with any release."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from tests.architecture.sources import TOGETHER, nodes, trees
from trnbench.tui.views import VIEWS

pytestmark = TOGETHER
ALLOWED = {
    # Textual has no other way to leave the screen before a bug is reported; all releases have it.
    ("trnbench/tui/app.py", "_handle_exception"),
    # Of textual-serve, which the extra bounds to one minor version.
    ("trnbench/tui/served_tab.py", "_build_environment"),
    # Documented in spite of its name.
    ("trnbench/facts/processes/workers.py", "_exit"),
    # Of the standard library: fields that look like its own.
    ("trnbench/facts/records.py", "_field_type"),
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def defined(tree: ast.AST) -> Iterator[str]:
    """Yield every name that a piece of code gives to something."""
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


def asked(tree: ast.AST) -> set[str]:
    """Return the private names that code asks of anything."""
    return {
        node.attr
        for node in nodes(tree)
        if isinstance(node, ast.Attribute) and is_private(node.attr)
    }


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the private names that code imports from other packages."""
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("trnbench"):
            yield from (part for part in (node.module or "").split(".") if is_private(part))
            yield from (one.name for one in node.names if is_private(one.name))
        elif isinstance(node, ast.Import):
            yield from (part for one in node.names for part in one.name.split("."))


@cache
def ours() -> set[str]:
    """Private names that code of trnbench gives."""
    return {name for tree in trees().values() for name in defined(tree) if is_private(name)}


def foreign(tree: ast.AST) -> set[str]:
    """Return the private names that code uses and no code of trnbench gives."""
    return asked(tree) - ours() | {name for name in imported(tree) if is_private(name)}


@pytest.mark.slow
def test_no_module_uses_a_private_name_of_another_package():
    assert {(name, one) for name, tree in trees().items() for one in foreign(tree)} <= ALLOWED


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import numpy\nnumpy._multiarray.thing", {"_multiarray"}),
        ("from textual._box import BOX", {"_box"}),
        ("from textual.app import _thing", {"_thing"}),
        ("import textual._box", {"_box"}),
        ("def of(app):\n  return app._screen_stacks", {"_screen_stacks"}),
        ("from textual.app import App as _App\nx.__dict__", set()),
    ],
)
def test_private_names_are_seen(code, found):
    assert foreign(ast.parse(code)) == found


def widgets() -> list[type]:
    """Return the classes of trnbench that stand on classes of Textual."""
    for name in ("app", "dialogs", *(f"views.{one}" for one in VIEWS)):
        importlib.import_module(f"trnbench.tui.{name}")
    found = {
        one
        for name, module in list(sys.modules.items())
        if name.startswith("trnbench.tui")
        for one in vars(module).values()
        if inspect.isclass(one) and one.__module__ == name and any(above(one))
    }
    return sorted(found, key=lambda one: f"{one.__module__}.{one.__qualname__}")


def above(one: type) -> list[type]:
    """Return the classes of Textual and its plots that a class stands on."""
    return [base for base in one.__mro__ if base.__module__.split(".")[0].startswith("textual")]


def tree(one: type) -> ast.AST:
    return classes(one.__module__)[one.__qualname__]


@cache
def classes(module: str) -> dict[str, ast.AST]:
    """Return the classes of a module by their qualified names."""
    found: dict[str, ast.AST] = {}

    def look(node: ast.AST, where: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                found[where + child.name] = child
                look(child, f"{where}{child.name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                look(child, f"{where}{child.name}.<locals>.")
            else:
                look(child, where)

    look(ast.parse(inspect.getsource(sys.modules[module])), "")
    return found


def shared(one: type, base: type) -> set[str]:
    """Return the private names that a class has or asks for, and a class below it has."""
    its, given = tree(one), tree(base)
    theirs = {name for name in (*defined(given), *vars(base)) if is_private(name)}
    return theirs & {*asked(its), *defined(its)}


@pytest.mark.slow
def test_no_widget_has_or_asks_for_a_private_name_of_textuals():
    found = widgets()
    assert len(found) > 30
    taken = {
        (f"{one.__module__.replace('.', '/')}.py", name)
        for one in found
        for base in above(one)
        if base.__module__ != "textual._context"
        for name in shared(one, base)
    }
    assert taken <= ALLOWED


def test_a_name_that_a_widget_shares_with_its_base_is_seen():
    class Base:
        _kept = 1

        def __init__(self):
            self._count = 0

    class Widget(Base):
        def more(self):
            self._count += self._kept

    assert shared(Widget, Base) == {"_count", "_kept"}
