"""Inputs that may be anything: files, tables and command lines, damaged at random by a seed."""

from __future__ import annotations

import random
from pathlib import Path

from trnbench.catalog.search import SECTIONS, built_in_folder

ROOT = built_in_folder()
FILES = sorted(
    path
    for section, folder in SECTIONS.items()
    for path in (ROOT / folder / section).glob("*.toml")
)
TABLES = sorted((ROOT / "workloads" / "published").glob("*.csv"))
MOST_ROWS = 8
"""Of a published table that are kept: enough to be read, few enough to be quick."""
JUNK = (
    *("", "0", "-1", "1e400", "nan", "inf", "9" * 30, "0x10", "1_000", "1,000", "½", "²", "é"),
    *("true", "none", "null", "[]", "{}", '"', "'", "=", "\\", "\x00", "\x1b[31m", "\ufeff", "\r"),
    *("-", "--", "--=", "..", "/", "~", "*", "a,b", "1:2", ":", "@", "4 GiB", "4 GB/s", "1 parsec"),
)
COMMANDS = (
    "spec list",
    "spec show trn2.48xlarge",
    "spec diff trn1.32xlarge trn2.48xlarge",
    "workload list",
    "workload show mixtral-8x7b",
    "matrix 512x512x512 --on trainium1,h100 --dtype bf16 --engine both --kernel blocked",
    "matrix 4096x1x77 --on trainium2 --dtype fp8_e4m3 --cores all --sparsity 4:16",
    "collective all-reduce --on trn1.32xlarge:2 --min-size 1KiB --max-size 1MiB --factor 32",
    "collective all-to-all --on p5.48xlarge --ranks 4 --algorithm direct --max-size 64KiB",
    "train llama2-7b --on trn1.32xlarge:4 --tp 8 --pp 2 --global-batch 64 --sequence 4096",
    "train mixtral-8x7b --on trn2.48xlarge:2 --tp 4 --ep 8 --global-batch 64 --zero 1",
    "train --suite nxd-examples",
    "train tiny-gpt --on trn1.2xlarge --global-batch 8 --recompute full --engine both",
    "compare tiny-gpt --tokens 1B --on trn1.2xlarge --nodes 1",
    "plan tiny-gpt --tokens 1B --on trn1.2xlarge --max-nodes 2 --deadline 30d",
    "claims trn1-bf16 trn3-compute --price-date 2026-11-21",
    "info",
)
FORMATS = ("--json", "--format csv", "--format markdown", "--format jsonl", "--quiet")


def damaged(text: str, chance: random.Random) -> str:
    """Return a text with one to three places cut, doubled, swapped or overwritten."""
    for _ in range(chance.randint(1, 3)):
        lines = text.split("\n")
        at, line = chance.randrange(len(text) + 1), chance.randrange(len(lines))
        match chance.randrange(6):
            case 0:
                text = text[:at] + text[at + chance.randint(1, 40) :]
            case 1:
                text = text[:at] + chance.choice(JUNK) + text[at:]
            case 2:
                text = "\n".join([*lines[:line], *lines[line + 1 :]])
            case 3:
                other = chance.randrange(len(lines))
                lines[line], lines[other] = lines[other], lines[line]
                text = "\n".join(lines)
            case 4:
                key = lines[line].partition("=")[0]
                lines[line] = f"{key}= {chance.choice(JUNK)}"
                text = "\n".join(lines)
            case _:
                text = text[:at] + chr(chance.randrange(1, 0x3000)) + text[at + 1 :]
    return text


def damaged_table(text: str, chance: random.Random) -> str:
    """Return the heading and a few rows of a table of measurements, with cells overwritten."""
    heading, *rows = text.splitlines()
    kept = [heading, *chance.sample(rows, min(MOST_ROWS, len(rows)))]
    for _ in range(chance.randint(1, 6)):
        line = chance.randrange(len(kept))
        cells = kept[line].split(",")
        cells[chance.randrange(len(cells))] = chance.choice(JUNK)
        kept[line] = ",".join(cells)
    text = "\n".join(kept) + "\n"
    return damaged(text, chance) if chance.random() < 0.3 else text


def damaged_line(chance: random.Random) -> list[str]:
    """Return a command line with words dropped, doubled, swapped, misspelt or replaced."""
    words = chance.choice(COMMANDS).split()
    if chance.random() < 0.5:
        words += chance.choice(FORMATS).split()
    for _ in range(chance.randint(1, 3)):
        # The verb stays mostly: what lies behind it is to be reached.
        at = chance.randrange(1 if len(words) > 1 and chance.random() < 0.95 else 0, len(words))
        match chance.randrange(5):
            case 0 if len(words) > 1:
                del words[at]
            case 1:
                words.insert(at, words[at])
            case 2:
                words[at] = words[at][:-1] + chance.choice("0x:,.-")
            case 3:
                other = chance.randrange(1, len(words)) if len(words) > 1 else 0
                words[at], words[other] = words[other], words[at]
            case _:
                words[at] = chance.choice(JUNK)
    return words


def asked(seed: int, folder: Path) -> list[str]:
    """Return the command line of a seed, with the file it reads written below `folder`."""
    chance = random.Random(seed)
    match seed % 4:
        case 0:
            path = chance.choice(FILES)
            verb = "spec" if path.parent.parent.name == "specs" else "workload"
            copy = folder / path.parent.name / path.name
            _write(copy, damaged(path.read_text(encoding="utf-8"), chance))
            return [verb, "validate", str(copy)]
        case 1:
            path = chance.choice(TABLES)
            copy = folder / path.name
            _write(copy, damaged_table(path.read_text(encoding="utf-8"), chance))
            return ["validate", "--evidence", str(copy)]
        case 2:
            path = chance.choice(FILES)
            _write(folder / path.parent.name / path.name, damaged(path.read_text("utf-8"), chance))
            return [*chance.choice(COMMANDS).split(), "--spec-dir", str(folder)]
        case _:
            return damaged_line(chance)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
