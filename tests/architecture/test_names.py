"""One name, one meaning: no two modules define a public type of the same name."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.architecture.sources import TOGETHER, trees

pytestmark = TOGETHER


def types_of(module: ast.Module) -> set[str]:
    """Names of the public classes and type aliases that a module defines."""
    found = set()
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            found.add(ast.unparse(node.target))
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith(
            ("Literal[", "Callable[", "NDArray[", "tuple[", "dict[", "Mapping[", "Sequence[")
        ):
            found.update(ast.unparse(target) for target in node.targets)
    return {name for name in found if not name.startswith("_") and not name.isupper()}


def shared() -> dict[str, list[str]]:
    modules = defaultdict(list)
    for path, module in trees().items():
        for name in types_of(module):
            modules[name].append(path)
    return {name: places for name, places in modules.items() if len(places) > 1}


def test_no_two_modules_define_a_type_of_the_same_name():
    assert shared() == {}


def test_types_are_found():
    source = """
class Stage: ...
class _Hidden: ...
Number: TypeAlias = int | float
Phase = Literal["F", "B"]
LIMIT = 3
"""
    assert types_of(ast.parse(source)) == {"Stage", "Number", "Phase"}
