"""Print texts that people read and that are hard to read, and fail where one is.

python .ci/words.py [FILE...]

Looked at are README, the pages of the guide, the glossary, and every text of the package that is no
comment: helps, messages, notes, titles. Refused are house words that plain English has another word
for, sentences of more words than one can hold, and words of answers that no glossary explains.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "trnbench"
GUIDE = PACKAGE / "show" / "guide"
GLOSSARY = PACKAGE / "facts" / "catalog" / "concepts.toml"
CAUSES = ROOT / "specs" / "explain" / "steps.toml"
LONG, TOO_LONG = 25, 35
"""Words of a sentence from which it is warned of, and from which it is refused."""
PLAIN = {
    r"stands?(?! for| in for|ard)": "is",
    r"lies?(?! down)": "is",
    r"held against|hold against|to hold to": "compared with",
    r"anew": "again",
    r"told|tells? of": "say",
    r"what of|of what was": "what",
    r"so many|so much|so long": "a number",
    r"(is|are) no (?!longer|larger|more|other|faster|slower|less|better|different)\w+": "is not",
    r"(is|are) none of": "is not one of",
    r"all the same|in the way of|what is asked": "(say it plainly)",
    r"(?<!-)beside(?!,)": "with",
    r"(?:/s|X|ranks|tokens|bytes|operations|USD) an? (?:step|rank|chip|node|second|hour)": "per",
}
"""Patterns of house words -> what plain English says."""
_HOUSE = re.compile("|".join(rf"\b(?:{word})\b" for word in PLAIN), re.IGNORECASE)
WORDS = (
    *("adapter", "basis", "break-even MFU", "claim", "confidence", "fabric", "figure", "fleet"),
    *("goodput", "headroom", "interval", "job", "knob", "layout", "micro-batch", "MFU", "node"),
    *("own price", "pilot", "placement", "policy", "population", "precision", "quote", "rank"),
    *("recompute", "regret", "release", "schedule", "sequence parallel", "share", "slot", "spread"),
    *("stack", "tie", "spot", "frontier", "capacity block", "draw", "deadline", "on-demand"),
    *("reserved", "savings plan", "evidence", "zone", "offer", "marks", "verdict", "assumed"),
    *("80 % interval", "goodput", "checkpoint", "region", "instance type", "baseline"),
    *("Pareto", "mean cost", "on time", "clear winner", "estimate", "measured", "EFA"),
    *("beyond its rows", "break-even", "quota", "second-hand", "price date", "extension", "HFU"),
    *("headline", "bubble", "bottleneck", "in flight", "habit", "UltraServer", "carried over"),
)
"""Words of answers and of the guide that a reader may look up by `trnbench help WORD`."""
_NO_PROSE = re.compile(
    r"\s*(?:import|CREATE|ALTER|INSERT|DELETE|SELECT|UPDATE)\b"
    r"|<title|\w+=\$|# Written|before the fit X"
)
"""How texts for programs begin: scripts, statements of a database, markup, notes of data files."""
_COMMAND = re.compile(r"^\W*trnbench .*$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n\s*[-*|]|\s\|\s")
_CODE = re.compile(
    r"```.*?```|`[^`]*`|^    .*$|<!--.*?-->|!?\[[^\]]*\]\([^)]*\)", re.DOTALL | re.MULTILINE
)


def prose(text: str) -> str:
    """Text of a Markdown page without code, links and tables, its lines kept."""
    plain = _CODE.sub(lambda match: "\n" * match[0].count("\n") or " code ", text)
    plain = re.sub(r"code (?:[ ,]+code )+", "code ", plain)  # a list of names is one
    return "\n".join("" if line.startswith(("|", "#")) else line for line in plain.split("\n"))


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Texts of a file that people read, and their lines."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, prose(source)
    elif path.suffix == ".toml":
        for number, line in enumerate(source.splitlines(), 1):
            value = line.partition(" = ")[2]
            yield number, "" if value.startswith("{") else _COMMAND.sub("", value)
    else:
        yield from _of_python(ast.parse(source), path.name)


def _of_python(tree: ast.Module, name: str) -> Iterator[tuple[int, str]]:
    skipped = set()
    for node in ast.walk(tree):  # what holds others comes before them
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and _is_help(node, name):
            yield node.lineno, (ast.get_docstring(node) or "").partition(">>>")[0]
        elif isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in skipped:
            skipped.update(id(part) for part in ast.walk(node))
            text = _COMMAND.sub("", _text(node))
            if text.count(" ") > 1 and not _NO_PROSE.match(text):
                yield node.lineno, text


def _is_help(node: ast.FunctionDef | ast.ClassDef, name: str) -> bool:
    if isinstance(node, ast.ClassDef):
        return name == "question.py" and node.name.endswith("Question")
    return node.name == "run" or (name.endswith("_command.py") and node.name[0] != "_")


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(one) if isinstance(one, ast.Constant) else "X" for one in parts)
    return ""


def faults(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Line, message and severity of each fault of a file; True where it is refused."""
    for first, text in texts(path):
        for match in _HOUSE.finditer(text):
            line = first + text.count("\n", 0, match.start()) * (path.suffix != ".py")
            instead = next(
                plain for word, plain in PLAIN.items() if re.fullmatch(word, match[0], re.I)
            )
            yield line, f"{match[0]!r}: write {instead!r}", True
        place = 0
        for sentence in _SENTENCE.split(text):
            place = text.find(sentence, place)
            count = len(re.findall(r"[\w'%.,-]*\w[\w'%.,-]*", sentence))
            if count > LONG:
                line = first + text.count("\n", 0, place) * (path.suffix != ".py")
                shown = " ".join(sentence.split())[:60]
                yield line, f"{count} words in one sentence: {shown} ...", count > TOO_LONG


def unexplained() -> list[str]:
    """Words of the house that the glossary and the topics lack."""
    table = tomllib.loads(GLOSSARY.read_text(encoding="utf-8"))
    known = {word.casefold() for word in (*table["terms"], *table["topics"])}
    return [word for word in dict.fromkeys(WORDS) if word.casefold() not in known]


def main(arguments: list[str]) -> int:
    """Exit status: 1 where a text is refused."""
    named = [Path(one) for one in arguments]
    python = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "words.py"]
    files = named or [ROOT / "README.md", *sorted(GUIDE.glob("*.md")), GLOSSARY, CAUSES, *python]
    warned = refused = 0
    for path in files:
        for line, message, wrong in faults(path):
            place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            warned, refused = warned + (not wrong), refused + wrong
            print(f"{place}:{line}: {message}")
    missing = [] if named else unexplained()
    for word in missing:
        print(f"{GLOSSARY.relative_to(ROOT)}: no entry for {word!r}")
    print(f"{refused + len(missing)} texts refused; {warned} sentences of more than {LONG} words")
    return int(bool(refused or missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
