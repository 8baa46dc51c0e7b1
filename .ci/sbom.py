"""Write what is installed with trnbench as a bill of materials: CycloneDX 1.6, in JSON.

    .venv/bin/python .ci/sbom.py OUT

Names, versions and hashes of wheels are those of requirements.lock, of what runs alone; licences
are what the installed packages say of themselves.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from importlib.metadata import metadata, requires
from pathlib import Path
from typing import cast

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / ".ci" / "requirements.lock"


def bill(lock: str) -> dict[str, object]:
    """Return the document of what a lock file installs for users."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    known = re.search(r'__version__ = "(.+)"', (ROOT / "trnbench" / "__init__.py").read_text())
    assert known
    made = {**component(project["name"], known[1], ()), "type": "application"}
    wanted = needed(project["dependencies"])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": made},
        "components": [component(*one) for one in locked(lock) if one[0] in wanted],
    }


def needed(asked: Iterable[str]) -> set[str]:
    """Return the names of packages that requirements lead to, as those that are installed say."""
    left, found = [Requirement(one) for one in asked], set[str]()
    while left:
        one = left.pop()
        found.add(canonicalize_name(one.name))
        for further in map(Requirement, requires(one.name) or ()):
            marker, seen = further.marker, canonicalize_name(further.name) in found
            if seen and not further.extras:
                continue
            if marker is None or any(marker.evaluate({"extra": e}) for e in (*one.extras, "")):
                left.append(further)
    return found


def locked(lock: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield name, version and hashes of wheels of what stands above the tools in a lock file."""
    for entry in re.split(r"(?m)^(?=[a-z0-9])", lock.partition("# tools")[0]):
        if found := re.match(r"([a-z0-9-]+)==(\S+)", entry):
            yield found[1], found[2], tuple(re.findall(r"sha256:([0-9a-f]{64})", entry))


def component(name: str, version: str, hashes: tuple[str, ...]) -> dict[str, object]:
    """Return the entry of a package: each wheel with its hash is an outside reference of it."""
    purl = f"pkg:pypi/{name}@{version}"
    entry: dict[str, object] = {
        **{"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl},
        "licenses": licences(name),
    }
    if hashes:
        entry["externalReferences"] = [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{name}/{version}/#files",
                "hashes": [{"alg": "SHA-256", "content": one}],
            }
            for one in hashes
        ]
    return entry


def licences(name: str) -> list[Mapping[str, object]]:
    """Return what an installed package says of its licence."""
    told = cast(Message, metadata(name))
    if expression := told.get("License-Expression"):
        return [{"expression": expression}]
    classified = [
        one.rpartition(" :: ")[2]
        for one in told.get_all("Classifier", [])
        if one.startswith("License :: ") and " :: " in one.removeprefix("License :: ")
    ]
    named = classified or (told.get("License") or "").strip().splitlines()[:1]
    return [{"license": {"name": one}} for one in named]


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    document = bill(LOCK.read_text())
    out.write_text(json.dumps(document, indent=1) + "\n")
    components = document["components"]
    assert isinstance(components, list)
    print(f"{out}: {len(components)} packages")
