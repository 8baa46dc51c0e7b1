"""Random damage to shipped files: always a record or clear faults, never anything else."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trnbench.errors import DataFileError
from trnbench.facts.catalog.search import SECTIONS, built_in_folder
from trnbench.verbs.spec.run import READERS

FILES = sorted(
    path
    for section, folder in SECTIONS.items()
    for path in (built_in_folder() / folder / section).glob("*.toml")
    # What is like another file cannot be read alone.
    if section in READERS and "\nlike = " not in path.read_text()
)
JUNK = [
    "nan",
    "-1",
    '"x"',
    "[]",
    "{}",
    "true",
    '"-3 GB/s"',
    "1e400",
    '""',
    "9" * 30,
    "1979-05-27",
    '"\\u0000"',
]
DATA = ("sources", "releases", "fixed", "axes", "exclude")
KEY = re.compile(r"^(?P<indent>\s*)(?P<key>[a-z_]+)(?P<rest>\s*=)", re.MULTILINE)


def outcome(path: Path, text: str, folder: Path):
    """Return the faults of the damaged file, or None where it still loads."""
    copy = folder / path.parent.name / path.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(text)
    try:
        READERS[path.parent.name](copy)
    except DataFileError as error:
        faults = error.faults
    else:
        return None
    assert faults
    assert all(str(fault) and "\n" not in str(fault) for fault in faults)
    return faults


def damage(text: str, seed: int) -> str:
    chance = random.Random(seed)
    at = chance.randrange(len(text))
    lines = text.split("\n")
    line = chance.randrange(len(lines))
    match chance.randrange(6):
        case 0:
            return text[:at] + text[at + chance.randint(1, 20) :]
        case 1:
            return text[:at] + chance.choice("\x00\n\"'[]{}=#,.é9-") + text[at:]
        case 2:
            return "\n".join(lines[:line] + lines[line + 1 :])
        case 3:
            return "\n".join([*lines[:line], lines[line], *lines[line:]])
        case 4:
            value = f"{lines[line].partition('=')[0]}= {chance.choice(JUNK)}"
            return "\n".join([*lines[:line], value, *lines[line + 1 :]])
        case _:
            return text[:at] + chr(chance.randrange(1, 0x3000)) + text[at + 1 :]


@pytest.mark.slow
@settings(
    max_examples=600,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(path=st.sampled_from(FILES), seed=st.integers(0, 2**32))
def test_damage_is_refused_or_harmless(tmp_path, path, seed):
    outcome(path, damage(path.read_text(), seed), tmp_path)


@pytest.mark.slow
@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(path=st.sampled_from(FILES), seed=st.integers(0, 2**32))
def test_a_misspelt_key_is_never_accepted(tmp_path, path, seed):
    text = path.read_text()
    keys = [m for m in KEY.finditer(text) if not _is_data(text, m)]
    chosen = random.Random(seed).choice(keys)
    wrong = f"{chosen['key']}_zz"
    damaged = text[: chosen.start("key")] + wrong + text[chosen.end("key") :]
    faults = outcome(path, damaged, tmp_path)
    assert faults is not None, f"{path}: {wrong} was accepted"


def _is_data(text: str, match: re.Match[str]) -> bool:
    """Tell whether the key is data (a source's id, a release, a verb's option in a study), not part
    of the schema.
    """
    table = re.findall(r"^\[+([^\]]+)\]+", text[: match.start()], re.MULTILINE)
    return bool(table) and table[-1] in DATA


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_shipped_file_loads(path, tmp_path):
    assert outcome(path, path.read_text(), tmp_path) is None
