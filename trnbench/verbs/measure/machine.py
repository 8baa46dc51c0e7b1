"""The machine that rows were measured on, as specs: for a moment, or in the user's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from weakref import finalize

from trnbench.errors import InputError
from trnbench.evidence.rows import EvidenceFile
from trnbench.facts.catalog.search import SINGULAR, Catalog, Folder, user_folder
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.hardware.library import load_published

if TYPE_CHECKING:
    from trnbench.evidence.measure.machine import MachineFiles

_ORIGIN = "measured"


def with_machines(catalog: Catalog, files: Sequence[EvidenceFile]) -> Catalog:
    """Return the catalogue, and in it the machines of measured files that it does not know."""
    machines: list[MachineFiles] = []
    for file in files:
        names = [row.text("instance") for row in file.rows if row.fault is None]
        if file.set != "measured" or not names or load_published(catalog, names[0], ""):
            continue
        from trnbench.evidence.measure.machine import machine_files  # few files need it

        try:
            machines.append(machine_files(catalog, file.rows))
        except InputError:
            continue  # too few rows tell of it: each row says that its instance is unknown
    return beside(catalog, [machine.texts() for machine in machines])


def beside(catalog: Catalog, files: Sequence[Mapping[tuple[str, str], str]]) -> Catalog:
    """Return a catalogue with more files in it, texts by section and name, as long as it is."""
    if not files:
        return catalog
    folder = TemporaryDirectory(prefix="trnbench-measured-")
    for texts in files:
        write_specs(texts, Path(folder.name))
    extended = Catalog((Folder(Path(folder.name), _ORIGIN), *catalog.folders))
    finalize(extended, folder.cleanup)
    return extended


def refuse_taken(catalog: Catalog, name: str, *, force: bool) -> None:
    """Refuse the name of a machine that is somebody else's, or one's own unless it may go."""
    for section in ("instances", "chips"):
        for entry in catalog.users(section).get(name, ()):
            own = entry.path.is_relative_to(user_folder())
            if not (own and force):
                raise InputError(
                    f"--write-spec: {name!r} is the name of {article(SINGULAR[section])} already: "
                    f"{entry.path}",
                    hint="--force replaces it" if own else "choose another",
                )


def write_specs(texts: Mapping[tuple[str, str], str], folder: Path) -> tuple[Path, ...]:
    """Write specs by section and name into a folder; return what was written."""
    written = []
    for (section, name), text in texts.items():
        path = folder / section / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
        written.append(path)
    return tuple(written)


def article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"
