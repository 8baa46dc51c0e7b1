"""Print what an environment of the lowest versions that are allowed has, one requirement a line.

    python .ci/lowest.py

What users install stands at its lower bound, extras among it; tools of development stand as they
are asked for. Where both ask for a package, the lower bound of users wins.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]


def lowest(project: Mapping[str, object]) -> Iterator[str]:
    """Yield the requirements of the table `project` of a pyproject.toml."""
    extras: Mapping[str, Sequence[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    asked: list[str] = [*project["dependencies"]]  # type: ignore[misc]
    asked += [one for name, given in extras.items() if name != "dev" for one in given]
    pinned = {one.name: f"{one.name}=={least(one)}" for one in map(Requirement, asked)}
    yield from pinned.values()
    yield from (one for one in extras["dev"] if Requirement(one).name not in pinned)


def least(requirement: Requirement) -> str:
    """Return the lower bound of a requirement."""
    (found,) = (one.version for one in requirement.specifier if one.operator == ">=")
    return found


if __name__ == "__main__":
    with (ROOT / "pyproject.toml").open("rb") as file:
        print("\n".join(lowest(tomllib.load(file)["project"])))
