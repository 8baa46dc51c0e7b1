"""Modules of trnbench, parsed once for all tests that read them, which therefore run together."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOGETHER = pytest.mark.xdist_group("sources")


@cache
def trees() -> dict[str, ast.Module]:
    """Parsed modules by their paths."""
    return {
        path.relative_to(ROOT).as_posix(): parsed(path)
        for path in sorted((ROOT / "trnbench").rglob("*.py"))
    }


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return every node of a tree, what holds others before them."""
    return tuple(ast.walk(tree))
