"""The installation: versions, the folders searched, what was found, and the user's defaults."""

from __future__ import annotations

import platform as machine
from collections.abc import Mapping
from pathlib import Path

from trnbench import __version__
from trnbench.errors import InputError
from trnbench.facts.catalog.search import SECTIONS, Catalog, user_folder
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.units import Dimension, show
from trnbench.store.place import is_null, shared_file_system, store_path
from trnbench.verbs.asking import configuration as settings


def info(catalog: Catalog) -> Mapping[str, object]:
    """Return versions, the folders searched, where the user's may be, and what was found."""
    return {
        "trnbench": __version__,
        "python": machine.python_version(),
        "platform": machine.platform(),
        "packages": {name: _version(name) for name in ("numpy", "scipy", "textual", "typer")},
        "folders": [
            {"path": str(folder.path), "origin": folder.origin} for folder in catalog.folders
        ],
        "user_folder": str(user_folder()),
        "runs": _kept_runs(),
        "defaults": _defaults(),
        "found": {section: len(catalog.entries(section)) for section in SECTIONS},
        "hidden": [
            str(path)
            for section in SECTIONS
            for entry in catalog.entries(section)
            for path in entry.hides
        ],
    }


def _defaults() -> Mapping[str, str]:
    configured = settings.configuration()
    said = {key: f"{value.said} ({value.origin})" for key, value in configured.values.items()}
    return said or {"none": f"{configured.files[0]}, then {settings.FILE} of the working folder"}


def _kept_runs() -> str:
    """Return where answers are kept, how large that file is, and how it is written."""
    path = store_path()
    if is_null(path):
        return f"{path} (nothing is kept)"
    shared = shared_file_system(path)
    way = f"rollback journal, as on {shared}" if shared else "write-ahead log"
    size = show(path.stat().st_size, Dimension.BYTES, digits=3) if path.is_file() else "none yet"
    return f"{path} ({size}; {way})"


def write_defaults(*, force: bool) -> Path:
    """Write the user's file of defaults, all as remarks, and return its path."""
    path = settings.configuration().files[0]
    if path.exists() and not force:
        raise InputError(f"{path} is there already", hint="--force replaces it")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, settings.template().encode())
    return path


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
