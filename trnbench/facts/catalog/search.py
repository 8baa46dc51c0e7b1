"""Search for data files: folders, precedence between equal names, aliases, and lists of files.

--spec-dir (repeatable)  >  TRNBENCH_SPEC_PATH  >  user data folder  >  built in

A folder holds sections (`chips/`, `models/`, ...), directly or under `specs/` and `workloads/` as
in this repository. The first folder with a file of the name wins; hidden files stay listed. The
current directory is never searched by default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from trnbench.errors import (
    DataFileError,
    EnvironmentFault,
    Fault,
    InputError,
    UnknownNameError,
    did_you_mean,
)
from trnbench.facts.catalog.text_file import refused
from trnbench.facts.catalog.toml_file import read_known
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, replace

SPEC_SECTIONS = (
    *("chips", "instances", "prices", "calibration"),
    *("purchase", "reliability", "claims", "explain", "software", "compilers"),
)
WORKLOAD_SECTIONS = ("models", "matrix", "collective", "training", "fleets", "studies")
SECTIONS: Mapping[str, str] = {
    **dict.fromkeys(SPEC_SECTIONS, "specs"),
    **dict.fromkeys(WORKLOAD_SECTIONS, "workloads"),
}
"""Section -> folder that may hold it."""
_ONE_OF_EACH = (
    *("chip", "instance", "price list", "calibration"),
    *("purchase rules", "failure rates", "claims", "causes", "software", "compiler"),
    *("model", "matrix suite", "collective suite", "training suite", "fleet", "study"),
)
SINGULAR: Mapping[str, str] = dict(zip(SECTIONS, _ONE_OF_EACH, strict=True))
PATH_VARIABLE = "TRNBENCH_SPEC_PATH"
_ENDING = ".toml"
USER = "user"
BUILT_IN = "built in"
GIVEN = "given"
CONFIGURATION = "config.json"
"""What Hugging Face calls the file that has the shapes of a model."""
_OWNER = re.compile(r"^(?:[\w.-]+/|(?:hugging\s?face|meta|nvidia|google)\s+)", re.IGNORECASE)
_REMARK = re.compile(r"\s*[(\[].*?[)\]]")
_VARIANT = re.compile(r"-(?:instruct|base|chat|hf|it|pt)$", re.IGNORECASE)
"""Ending of a model's name that says how it was trained, and leaves its shapes as they are."""
T = TypeVar("T")


class Folder(Record, kw_only=False):
    """A searched folder, and the option or rule that added it."""

    path: Path
    origin: str


class Entry(Record):
    """One data file."""

    section: str
    name: str
    """The file's stem."""
    path: Path
    origin: str
    hides: tuple[Path, ...] = ()
    """Files of the same name in later folders."""


_Used: TypeAlias = tuple[Mapping[str, Sequence[Entry]], Sequence[DataFileError]]
"""Name or alias -> files that declare it, and the files that cannot be read."""


class Catalog(Record, kw_only=False, weakref=True):
    """Data files of an ordered list of folders; the first match wins."""

    folders: tuple[Folder, ...]

    @cached_property
    def _sections(self) -> dict[str, dict[str, Entry]]:
        return {}

    @cached_property
    def _made(self) -> dict[tuple[Path, type], tuple[object, Any]]:
        # With a user's folder a shipped file may rest on a user's by `like`: nothing is shared.
        shipped_alone = len(self.folders) == 1 and self.folders[0].origin == BUILT_IN
        return _MADE_OF_SHIPPED if shipped_alone else {}

    @cached_property
    def _used(self) -> dict[str, _Used]:
        return {}

    def _entries(self, section: str) -> Mapping[str, Entry]:
        if section not in self._sections:
            self._sections[section] = _winning(self.folders, section)
        return self._sections[section]

    def entries(self, section: str) -> tuple[Entry, ...]:
        return tuple(entry for _, entry in sorted(self._entries(section).items()))

    def names(self, section: str) -> tuple[str, ...]:
        """Every name and alias of a section."""
        return (*sorted(self._entries(section)), *self.aliases(section))

    def has(self, section: str, name: str) -> bool:
        """True when a section has a file of this very name or alias; only an alias is looked up."""
        return name in self._entries(section) or name in self.aliases(section)

    def find(self, section: str, name: str, *, where: str = "") -> Entry:
        """The entry with this name or alias in any spelling; an error suggests the nearest."""
        entry = self._entries(section).get(name) or self.aliases(section).get(name)
        entry = entry or self._spelled(section, name)
        if entry is None:
            # The missing name may be an alias in a broken file: report that file first.
            self.refuse_unreadable(section)
            verb = "spec" if section in SPEC_SECTIONS else "workload"
            raise UnknownNameError(
                SINGULAR[section],
                name,
                self.names(section),
                where=where,
                lists=f"trnbench {verb} list {section}",
                remedy=self._of_another_kind(section, name),
            )
        return entry

    def _spelled(self, section: str, name: str) -> Entry | None:
        """The entry that a name means in another case, with other dashes or with its owner."""
        if section == "models" and (file := configuration_file(name)) is not None:
            return Entry(section=section, name=name, path=file, origin=GIVEN)
        for wanted in dict.fromkeys((plain_name(name), plain_name(_VARIANT.sub("", name)))):
            found = {
                one.path: one
                for known, entries in self.users(section).items()
                for one in entries
                if wanted and plain_name(known) == wanted
            }
            if len(found) == 1:
                return next(iter(found.values()))
        return None

    def known(self, section: str, name: str) -> bool:
        """True when a section has a file of this name, in any spelling."""
        return self.has(section, name) or self._spelled(section, name) is not None

    def _of_another_kind(self, section: str, name: str) -> str:
        """Remedy for a name that is known, but as another kind of thing."""
        if section == "instances":
            if self.known("models", name):
                return ": it is a model, which goes first; --on takes instance types"
            return self._as_instance(name)
        if section == "models" and (name.endswith(".json") or name.startswith((".", "/", "~"))):
            return ": the file does not exist, or the folder has no config.json"
        if section not in ("models", "chips") or not self.known("instances", name):
            return ""
        if section == "models":
            return ": it is an instance type; the model goes first, then --on A,B"
        chip = self.table(self.find("instances", name).path).get("chip")
        return f": it is an instance type; its chip: {chip}" if chip else ""

    def _as_instance(self, name: str) -> str:
        """Names of an instance type without a file: that which was read, or its chip's."""
        for entry in self.entries("purchase"):
            seen = self.table(entry.path).get("seen")
            for seen_type in seen if isinstance(seen, list) else ():
                if isinstance(seen_type, Mapping) and name in (seen_type.get("names") or ()):
                    return (
                        f": seen in {seen_type.get('seen_in')}, not confirmed launchable, no price"
                    )
        return self._with_chip(name)

    def _with_chip(self, name: str) -> str:
        """Instances with a chip, if the name is a chip's: a remedy for a common confusion."""
        chip = self._entries("chips").get(name) or self.aliases("chips").get(name)
        if chip is None:
            return ""
        users = [
            entry.name
            for entry in self.entries("instances")
            if self.table(entry.path).get("chip") in (name, chip.name)
        ]
        return f": {name} is a chip; instances with it: {', '.join(users) or 'none'}"

    def aliases(self, section: str) -> Mapping[str, Entry]:
        """Alias -> entry of a section; a duplicate alias is a fault."""
        by_name: dict[str, Entry] = {}
        for name, (first, *others) in self.users(section).items():
            if others:
                raise _duplicate(name, first, others[0])
            if name != first.name:
                by_name[name] = first
        return by_name

    def users(self, section: str) -> Mapping[str, Sequence[Entry]]:
        """Name or alias -> files that declare it; a file that repeats a name is listed twice."""
        return self._used_in(section)[0]

    def refuse_unreadable(self, section: str) -> None:
        """Raise for an unreadable file, which might declare the missing alias."""
        for error in self._used_in(section)[1]:
            raise error

    def once(
        self, path: Path, kind: type[T], make: Callable[[], T], others: Sequence[Path] = ()
    ) -> T:
        """Result of `make` for a file, recomputed only after a change of the file or the others."""
        try:
            stats = [file.stat() for file in (path, *others)]
        except OSError:
            return make()  # which says what is wrong with the file
        # The inode tells a file that was replaced within the clock's resolution.
        stamp = tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)
        earlier, made = self._made.get((path, kind), (None, None))
        if earlier != stamp:
            made = make()
            self._made[path, kind] = stamp, made
        return made  # type: ignore[no-any-return]

    def table(self, path: Path) -> Mapping[str, object]:
        return self.once(path, dict, lambda: read_known(path))

    def _used_in(self, section: str) -> _Used:
        if section not in self._used:
            self._used[section] = _used(self, self.entries(section))
        return self._used[section]


class UnchangingCatalog(Catalog):
    """A catalogue whose files stay as they are for as long as it is used: each is looked at once.

    Of a question with a thousand rows every one names a chip, an instance and a stack.
    """

    @cached_property
    def _known(self) -> Memo[tuple[Path, type], Any]:
        return Memo()

    def once(
        self, path: Path, kind: type[T], make: Callable[[], T], others: Sequence[Path] = ()
    ) -> T:
        return self._known.of((path, kind), partial(super().once, path, kind, make, others))  # type: ignore[no-any-return]


_MADE_OF_SHIPPED: dict[tuple[Path, type], tuple[object, Any]] = {}
"""Parsed shipped files, shared by all catalogues of only shipped files in this process."""


def plain_name(name: str) -> str:
    """A name without its owner, remarks in brackets, case and punctuation."""
    return re.sub(r"[^a-z0-9]", "", _OWNER.sub("", _REMARK.sub("", name).strip()).lower())


def configuration_file(name: str) -> Path | None:
    """The config.json that a path names, or that stands in the folder it names."""
    with suppress(OSError, ValueError):
        path = Path(name).expanduser()
        inside = path / CONFIGURATION
        if path.suffix == ".json" and path.is_file():
            return path
        if inside.is_file():
            return inside
    return None


def _used(catalog: Catalog, entries: Sequence[Entry]) -> _Used:
    by_name = {entry.name: [entry] for entry in entries}
    unreadable = []
    for entry in entries:
        try:
            aliases = catalog.table(entry.path).get("aliases")
        except DataFileError as error:
            unreadable.append(error)
            continue
        for alias in aliases if isinstance(aliases, list) else []:
            if isinstance(alias, str):
                by_name.setdefault(alias, []).append(entry)
    return by_name, unreadable


def _duplicate(name: str, first: Entry, second: Entry) -> DataFileError:
    # Of a shipped file and a user's the user's is the one to change.
    holder, taker = (first, second) if first.origin == BUILT_IN else (second, first)
    key = "name" if name == taker.name != holder.name else "aliases"
    message = f"duplicate name {name!r}: already used by {holder.path}"
    return refused(taker.path, message, key)


def sections_of(kind: str | None, sections: Sequence[str]) -> tuple[str, ...]:
    """Sections that a kind names, singular or plural; all for None."""
    if kind is None:
        return tuple(sections)
    for section in sections:
        if kind.casefold() in (section, SINGULAR[section], SINGULAR[section].split()[0]):
            return (section,)
    raise UnknownNameError("kind", kind, sections)


def open_catalog(
    spec_dirs: Sequence[Path] = (), environment: Mapping[str, str] = os.environ
) -> Catalog:
    """The catalogue of the given folders, the environment's, the user's and the built-in one."""
    folders = [Folder(_existing(path, "--spec-dir"), "--spec-dir") for path in spec_dirs]
    listed = [part for part in environment.get(PATH_VARIABLE, "").split(os.pathsep) if part]
    folders += [Folder(_existing(Path(part), PATH_VARIABLE), PATH_VARIABLE) for part in listed]
    user = user_folder()
    if user.is_dir():
        folders.append(Folder(user, USER))
    return Catalog((*folders, Folder(built_in_folder(), BUILT_IN)))


def with_user_folder(catalog: Catalog) -> Catalog:
    """The same folders, with the user's folder if it exists by now."""
    *others, built_in = (folder for folder in catalog.folders if folder.origin != USER)
    user = user_folder()
    mine = [Folder(user, USER)] if user.is_dir() else []
    return Catalog((*others, *mine, built_in))


def user_folder() -> Path:
    """Folder of the user's data files, which need not exist."""
    from platformdirs import user_data_path

    return user_data_path("trnbench")


def built_in_folder() -> Path:
    """Folder of the shipped `specs/` and `workloads/`."""
    package = Path(__file__).parents[2]
    installed = package / "_data"
    if installed.is_dir():
        return installed
    # An editable install does not get _data: the checkout beside the package is the truth then.
    checkout = package.parent
    project = checkout / "pyproject.toml"
    if project.is_file() and (checkout / "specs").is_dir():
        declared = read_known(project).get("project")
        if isinstance(declared, dict) and declared.get("name") == "trnbench":
            return checkout
    raise EnvironmentFault(
        f"the shipped specs are missing: neither {installed} nor {checkout / 'specs'} exists",
        hint="reinstall trnbench",
    )


def _existing(path: Path, origin: str) -> Path:
    try:
        there = path.is_dir()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{origin}: {str(path)[:80]!r}: {why}") from None
    if not there:
        raise InputError(f"{origin}: {str(path)!r} is not a folder")
    places = [path / section for section in SECTIONS]
    places += [path / parent / section for section, parent in SECTIONS.items()]
    if not any(place.is_dir() for place in places):
        wanted = ", ".join(f"{section}/" for section in SECTIONS)
        raise InputError(f"{origin}: {str(path)!r} has none of the folders {wanted}")
    return path


def _winning(folders: Sequence[Folder], section: str) -> dict[str, Entry]:
    """Files of a section by name; each winner lists the files that it hides."""
    by_name: dict[str, Entry] = {}
    for folder in folders:
        for path in _files(folder.path, SECTIONS[section], section):
            winner = by_name.get(path.stem)
            by_name[path.stem] = Entry(
                section=section,
                name=path.stem,
                path=winner.path if winner else path,
                origin=winner.origin if winner else folder.origin,
                hides=(*winner.hides, path) if winner else (),
            )
    return by_name


def _files(folder: Path, parent: str, section: str) -> list[Path]:
    listing = []
    for place in (folder / section, folder / parent / section):
        with suppress(OSError):
            names = sorted(name for name in os.listdir(place) if name.endswith(_ENDING))
            listing += [place / name for name in names]
    return listing


class Listed(Record):
    """A data file in a list: only its title and aliases are read."""

    entry: Entry
    title: str
    aliases: tuple[str, ...]


class FileCheck(Record):
    """Result of validating one file: its section if recognised, and all faults."""

    path: Path
    section: str | None
    faults: tuple[Fault, ...]
    notes: tuple[str, ...] = ()
    """Remarks on the use of a valid file, such as the data it will be combined with."""


def listed(catalog: Catalog, sections: Sequence[str]) -> tuple[Listed, ...]:
    return tuple(
        _listed(catalog, entry) for section in sections for entry in catalog.entries(section)
    )


def _listed(catalog: Catalog, entry: Entry) -> Listed:
    try:
        table = catalog.table(entry.path)
    except DataFileError as error:
        return Listed(entry=entry, title=f"unreadable: {error.faults[0]}", aliases=())
    if table.get("adds") is True:
        entry = replace(entry, hides=())  # what lies below counts too
    aliases = table.get("aliases", [])
    names = tuple(map(str, aliases)) if isinstance(aliases, list) else ()
    return Listed(entry=entry, title=str(table.get("title", "")), aliases=names)


def unknown_name(catalog: Catalog, section: str, name: str, key: str) -> Iterator[Fault]:
    """Yield a fault where a file names something outside of the catalogue."""
    declared = catalog.users(section)
    if name not in declared:
        message = f"unknown {SINGULAR[section]} {name!r}{did_you_mean(name, declared)}"
        yield Fault(key, message)
