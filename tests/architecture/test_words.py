"""Texts that people read say things in the words of the field, one word for one thing."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest

from tests.architecture.sources import TOGETHER, nodes, parsed

pytestmark = TOGETHER
PACKAGE = Path(__file__).parents[2] / "trnbench"
BANNED = {
    r"\beven at\b.*\bMFU\b": "break-even MFU",
    r"^speed is$": "speed from",
    r"\btaken over\b": "carried over",
    r"too narrow for:": "hidden, terminal too narrow",
    r"\bof those legal\b": "of valid ones",
    r"\btime against money\b": "cost/time trade-off",
    r"\bkeeps? (limits|what was asked)\b": "within limits",
    r"\bways? to buy\b": "purchase option",
    r"\bnobody takes back\b": "interruptible",
    r"\bsold as nothing\b": "not sold by the hour",
    r"\buser's own price\b": "own price",
    r"\bor just above\b": "rounded up",
    r"\bof no known set\b": "columns not recognised",
    r"\b(tell|tells|told) (of|nothing)\b": "inform",
    r"\bw/o\b": "leave-one-out",
    r"\bon the way of a search\b": "intermediate result",
    r"\bonly streams\b": "passes over memory alone",
    r"\b(hides|hidden by) /": "overrides",
    r"\bof a node in a day\b": "per node per day",
    r"\ba step \(": "per step",
    r"\bintervals hold 80\b": "80 % intervals",
    r"\brejected\b": "ruled out",
    r"\blegal \w|\w legal\b": "valid",
}
"""What is not said -> what is."""


def texts():
    """Yield the texts of the package that are no docstrings, and where they stand."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = parsed(path)
        bare, helps = set(), set()
        if path.name.endswith("_command.py"):
            # The help of a command is its docstring.
            commands = (node for node in tree.body if isinstance(node, ast.FunctionDef))
            helps = {id(node.body[0]) for node in commands if node.name[0] != "_"}
        for node in nodes(tree):  # what holds others comes before them
            if isinstance(node, ast.Expr) and id(node) not in helps:
                bare.add(id(node.value))
            elif id(node) in bare:
                continue
            elif isinstance(node, ast.JoinedStr):
                yield (
                    path,
                    node.lineno,
                    "".join(
                        str(part.value) if isinstance(part, ast.Constant) else "/"
                        for part in node.values
                    ),
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, node.lineno, node.value


def concepts():
    """Yield the lines of `trnbench help TOPIC`, and where they stand."""
    path = PACKAGE / "facts/catalog/concepts.toml"
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        yield path, number, line


@pytest.mark.slow
def test_no_text_has_a_word_that_another_stands_for():
    any_banned = re.compile("|".join(f"(?:{banned})" for banned in BANNED))
    found = [one for one in (*texts(), *concepts()) if any_banned.search(one[2])]
    faults = [
        f"{path.name}:{line}: {text}: say {instead!r}"
        for path, line, text in found
        for banned, instead in BANNED.items()
        if re.search(banned, text)
    ]
    assert not faults


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("page.md", "# Page\n\nThe price stands below it.\n", "'stands': write 'is'"),
        ("page.md", f"{' '.join(['word'] * 36)}.\n", "36 words in one sentence"),
        ("a.py", "raise InputError(f'{name} is no folder')", "'is no folder': write 'is not'"),
        ("a.py", "field = option('What it is held against.')", "'held against'"),
        ("text.py", "NOTES = {'days': 'as the vendor told us'}", "'told': write 'say'"),
        ("run.py", "note = f'{cost} lies below {bound} here'", "'lies': write 'is'"),
        ("run.py", "def run():\n    'Times of what of it there is'", "'what of'"),
    ],
)
def test_the_check_of_words_refuses_riddles_and_sentences_too_long(tmp_path, name, text, told):
    check = runpy.run_path(str(PACKAGE.parent / ".ci" / "words.py"))
    planted = tmp_path / name
    planted.write_text(text)
    ((_, message, refused),) = check["faults"](planted)
    assert told in message
    assert refused
    planted.write_text("# Page\n\nThe price is below.\n" if name.endswith("md") else "pass")
    assert not list(check["faults"](planted))


def test_the_texts_that_people_read_pass_the_check_of_words():
    check = runpy.run_path(str(PACKAGE.parent / ".ci" / "words.py"))
    pages = [PACKAGE.parent / "README.md", *sorted(check["GUIDE"].glob("*.md")), check["GLOSSARY"]]
    assert [one for page in pages for one in check["faults"](page) if one[2]] == []
    assert check["unexplained"]() == []
