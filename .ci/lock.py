"""Write requirements.lock: one tested version of everything, with the hashes of its wheels.

    make lock

One version of each package is resolved with this Python; then pip is asked, as it would be for each
Python and platform below, which wheel it would take, so that the file serves all of them. What the
project runs and is built with stands first; tools of development follow the line `# tools`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import tomli

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / ".ci" / "requirements.lock"
PYTHONS = ("3.11", "3.12", "3.13")
_GLIBC = ("manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28")
_MACOS = ("10_9", "10_13", "11_0", "12_0", "13_0", "14_0")
PLATFORMS: Mapping[str, Sequence[str]] = {
    "Linux on x86": [f"{libc}_x86_64" for libc in _GLIBC],
    "Linux on ARM": [f"{libc}_aarch64" for libc in _GLIBC],
    "macOS on ARM": [f"macosx_{old}_{cpu}" for old in _MACOS for cpu in ("arm64", "universal2")],
    "macOS on x86": [f"macosx_{old}_{cpu}" for old in _MACOS for cpu in ("x86_64", "universal2")],
}
WITHOUT: Mapping[str, str] = {
    "macOS on x86": "sys_platform != 'darwin' or platform_machine != 'x86_64'",
}
"""Platforms that a package may have no wheel for, and the marker that leaves them out then."""
BUILDING = ("hatchling", "editables", "tomli")
"""What an editable install without isolation needs besides."""
HEADING = """\
# Versions that were tested together, with the hashes of their wheels for Python {pythons}
# on {platforms}. Written by `make lock`; see CONTRIBUTING.
"""


def asked(requirements: Iterable[str], *options: str) -> dict[str, tuple[str, str]]:
    """Return what pip would install: name -> version and hash of the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--only-binary=:all:", "--report", str(report)]
        subprocess.run([*command, *options, *requirements], check=True, cwd=folder)
        found = json.loads(report.read_text())["install"]
    return {
        one["metadata"]["name"].lower().replace("_", "-"): (
            one["metadata"]["version"],
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in found
    }


def lock() -> str:
    """Return the text of the file."""
    project = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *BUILDING]
    tools = project["optional-dependencies"]["dev"]
    versions = {name: version for name, (version, _) in asked([*needed, *tools]).items()}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as chosen:
        chosen.write("\n".join(exactly(versions)))
        chosen.flush()
        first = set(asked(needed, f"--constraint={chosen.name}"))
    hashes: dict[str, set[str]] = {name: set() for name in versions}
    lacking: dict[str, set[str]] = {name: set() for name in versions}
    for platform, tags in PLATFORMS.items():
        for python in PYTHONS:
            options = [f"--platform={tag}" for tag in tags]
            options += [f"--python-version={python}", "--target=none", "--no-deps"]
            found = wheels(exactly(versions), options)
            for name, digest in found.items():
                hashes[name].add(digest)
            for name in versions.keys() - found.keys():
                lacking[name].add(platform)
    pins = {name: pinned(name, versions[name], lacking[name]) for name in versions}
    lines = [HEADING.format(pythons=", ".join(PYTHONS), platforms=", ".join(PLATFORMS)).rstrip()]
    lines += [entry(pins[name], hashes[name]) for name in sorted(first)]
    lines += ["# tools"]
    lines += [entry(pins[name], hashes[name]) for name in sorted(set(versions) - first)]
    return "\n".join(lines) + "\n"


def wheels(requirements: Sequence[str], options: Sequence[str]) -> dict[str, str]:
    """Return the hashes of the wheels of a platform; what has none for it is said and left out."""
    try:
        return {name: digest for name, (_, digest) in asked(requirements, *options).items()}
    except subprocess.CalledProcessError:
        if len(requirements) == 1:
            print(f"no wheel: {requirements[0]}, {options[0]} {options[-3]}", file=sys.stderr)
            return {}
    half = len(requirements) // 2
    return wheels(requirements[:half], options) | wheels(requirements[half:], options)


def exactly(versions: Mapping[str, str]) -> list[str]:
    """Return the versions as requirements."""
    return [f"{name}=={version}" for name, version in sorted(versions.items())]


def pinned(name: str, version: str, lacking: Iterable[str]) -> str:
    """Return a package with its version, and a marker where a platform has no wheel of it."""
    markers = [WITHOUT[platform] for platform in sorted(lacking)]
    return " ; ".join([f"{name}=={version}", *([" and ".join(markers)] if markers else [])])


def entry(pin: str, hashes: Iterable[str]) -> str:
    """Return the lines of a package."""
    return " \\\n".join([pin, *(f"    --hash=sha256:{h}" for h in sorted(hashes))])


if __name__ == "__main__":
    text = lock()
    LOCK.write_text(text)
    print(f"{LOCK}: {text.count('==')} packages, {text.count('--hash')} hashes")
