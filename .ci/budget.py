"""Print how large the package is and how it reads, and fail where a budget is passed.

python .ci/budget.py
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "trnbench"
LINES = {
    "cli": 3_590,
    "engines": 17_090,
    "evidence": 15_400,
    "facts": 13_140,
    "launch": 3_250,
    "machine": 6_330,
    "money": 3_820,
    "predict": 6_730,
    "program": 7_490,
    "show": 3_640,
    "store": 2_030,
    "tui": 9_000,
    "verbs": 22_470,
}
"""Most lines of each folder; what stands outside of them has `OUTSIDE`."""
OUTSIDE = 270
RECORDS_PER_1000_LINES = 7.3
SHORT_MODULES = 27
"""Modules of under 60 lines that are no `__init__`."""
RETURN_RIDDLES = 10
COMMENT_SHARE = 0.015
TYPER_OPTIONS = 0
"""Options that are written for typer outside of `cli/derived_options.py`."""
_RIDDLE = re.compile(r'"""Return (what|how|which)\b')
_RECORD = ("Record", "State", "Question", "NamedTuple")


def comments(source: str) -> int:
    """Number of lines that have a comment, but for those that only speak to a tool."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = (token.string for token in tokens if token.type == tokenize.COMMENT)
    return sum(not text.startswith(("# noqa", "# type:")) for text in texts)


def records(source: str) -> int:
    """Number of classes that are records by the names of their bases."""
    classes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    return sum(any(ast.unparse(base).startswith(_RECORD) for base in one.bases) for one in classes)


def main() -> int:
    """Exit status: 1 where a budget is passed."""
    lines: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        length = source.count("\n")
        top = path.relative_to(PACKAGE).parts[0]
        lines[top if top in LINES else "outside"] += length
        count["records"] += records(source)
        count["comments"] += comments(source)
        count["riddles"] += len(_RIDDLE.findall(source))
        count["short"] += length < 60 and path.name != "__init__.py"
        if path.name != "derived_options.py":
            count["typer"] += len(re.findall(r"typer\.(?:Option|Argument)\(", source))
    total = sum(lines.values())
    over = []

    def held(name: str, value: float, limit: float, *, least: bool = False) -> None:
        fails = value < limit if least else value > limit
        print(f"{name:44} {value:>10,.4g} {'at least' if least else 'at most'} {limit:,g}")
        if fails:
            over.append(name)

    for name in sorted(lines):
        held(f"lines of {name}", lines[name], LINES.get(name, OUTSIDE))
    held("lines in all", total, sum(LINES.values()) + OUTSIDE)
    held("records per 1,000 lines", 1000 * count["records"] / total, RECORDS_PER_1000_LINES)
    held("modules under 60 lines", count["short"], SHORT_MODULES)
    held("docstrings 'Return what|how|which'", count["riddles"], RETURN_RIDDLES)
    held("share of comment lines", count["comments"] / total, COMMENT_SHARE, least=True)
    held("typer options outside derived_options", count["typer"], TYPER_OPTIONS)
    for name in over:
        print(
            f"over budget: {name}; shorten it, or change the budget with a reason", file=sys.stderr
        )
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
