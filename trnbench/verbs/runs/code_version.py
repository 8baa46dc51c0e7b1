"""Which program answered: its version, and of a checkout the commit and what its modules say.

What is edited in a checkout is another program, whether or not it was committed: cells of a study
that the one answered are not those of the other.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from trnbench import __version__
from trnbench.facts.catalog.kept import modules_digest

_LENGTHS = 12, 8
"""Digits of the commit, and of the digest of the modules."""


@cache
def code_version() -> str:
    """Return the version of the program, and of a checkout the commit and a digest of its code."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / "pyproject.toml").is_file():
        return __version__
    return version_of(checkout)


def version_of(checkout: Path) -> str:
    """Return the version of the program in a checkout."""
    parts = _commit(checkout / ".git") or "", modules_digest(checkout / "trnbench")
    local = ".".join(part[:most] for part, most in zip(parts, _LENGTHS, strict=True) if part)
    return f"{__version__}+{local}"


def _commit(git: Path) -> str | None:
    """Return the commit that is checked out, read without running git."""
    try:
        if git.is_file():  # a linked working tree
            git = Path(git.read_text().partition("gitdir:")[2].strip())
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        common = git / "commondir"
        shared = git / common.read_text().strip() if common.is_file() else git
        for place in (git / name, shared / name):
            if place.is_file():
                return place.read_text().strip()
        for line in (shared / "packed-refs").read_text().splitlines():
            if line.endswith(f" {name}"):
                return line.partition(" ")[0]
    except OSError:
        return None
    return None
