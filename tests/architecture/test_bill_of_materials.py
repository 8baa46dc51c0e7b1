"""The bill of materials of `make audit`: its shape, and that it names what is installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomli
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SHA_256 = re.compile(r"[0-9a-f]{64}")


@pytest.fixture(scope="module")
def bill(tmp_path_factory):
    out = tmp_path_factory.mktemp("bill") / "dist" / "sbom.json"
    command = [sys.executable, ".ci/sbom.py", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return json.loads(out.read_text())


def test_it_has_the_shape_of_cyclonedx(bill):
    head = {key: bill[key] for key in ("bomFormat", "specVersion", "version")}
    assert head == {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
    assert bill["metadata"]["component"]["type"] == "application"
    entries = bill["components"]
    assert len({one["bom-ref"] for one in entries}) == len(entries)
    for one in entries:
        assert one["type"] == "library"
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"
        assert one["licenses"], one["name"]
        for licence in one["licenses"]:
            assert set(licence) == {"expression"} or set(licence["license"]) == {"name"}
        for wheel in one["externalReferences"]:
            assert wheel["type"] == "distribution"
            assert wheel["url"].startswith("https://")
            (digest,) = wheel["hashes"]
            assert digest["alg"] == "SHA-256"
            assert SHA_256.fullmatch(digest["content"])


def test_it_names_what_is_installed_and_no_tool(bill):
    project = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {one["name"] for one in bill["components"]}
    direct = {Requirement(one).name.lower().replace("_", "-") for one in project["dependencies"]}
    assert direct < names
    assert {"linkify-it-py", "pygments"} < names  # by way of an extra, and of another package
    assert not {"hatchling", "pytest", "ruff", "mypy"} & names
    locked = (ROOT / ".ci" / "requirements.lock").read_text()
    assert all(f"\n{one['name']}=={one['version']} " in locked for one in bill["components"])
