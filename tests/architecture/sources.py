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
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "trnbench").rglob("*.py"))
    }
