"""Defaults of the user's: `trnbench.toml`, in the user's config folder, then in the working folder.

Later places win key by key: the user's file, that of the working folder, TRNBENCH_* variables, and
then what a command line says. Nothing is read where no file is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TypeAlias

from trnbench.errors import Fault, InputError, did_you_mean
from trnbench.facts.catalog.search import PATH_VARIABLE, SECTIONS
from trnbench.facts.parsing import share
from trnbench.facts.records import Record, field

FILE = "trnbench.toml"
_VARIABLE = "TRNBENCH_"
_FALSE = ("", "0", "no", "false", "off")
_TRUE = ("1", "yes", "true", "on")

Read: TypeAlias = Callable[[object, Path], str | list[str]]


class DefaultSetting(Record):
    """A key of the file: what it holds, an example, and what it is a default of.

    It stands for `option` of the commands in `verbs`, or for an environment variable.
    """

    read: Read
    example: str
    help: str
    option: str = ""
    verbs: tuple[str, ...] = ()
    variable: str = ""


class Configured(Record):
    """A value as an option or a variable takes it, as it was written, and where."""

    value: str | list[str]
    said: str
    origin: str


class Configuration(Record):
    """Settings by key, and the files that may hold them."""

    files: tuple[Path, ...]
    values: Mapping[str, Configured] = field(default_factory=dict)

    def options(self, verb: str) -> dict[str, str | list[str]]:
        """Return the defaults of a command's options."""
        return {
            SETTINGS[key].option: value.value
            for key, value in self.values.items()
            if verb in SETTINGS[key].verbs
        }

    @property
    def environment(self) -> dict[str, str]:
        """Variables that are set for a command, where the user has not set them."""
        return {
            SETTINGS[key].variable: str(value.value)
            for key, value in self.values.items()
            if SETTINGS[key].variable not in ("", value.origin) and value.value
        }


def _text(value: object, file: Path) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError("expected a text")
    return value


def _share(value: object, file: Path) -> str:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    share("discount")(_text(text, file))
    return _text(text, file)


def _names(value: object, file: Path) -> str:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        raise InputError("expected a list of names")
    return ",".join(_text(name, file).strip() for name in names)


def _prices(value: object, file: Path) -> list[str]:
    if isinstance(value, str):
        return [f"{part.strip()}?" for part in value.split(",")]
    if not isinstance(value, dict) or not value:
        raise InputError("expected a table of names and USD per instance-hour")
    for name, usd in value.items():
        if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 < usd < float("inf"):
            raise InputError(f"{name}: expected USD per instance-hour, above 0")
    return [f"{name}={usd}?" for name, usd in value.items()]


def _folders(value: object, file: Path) -> str:
    folders = [value] if isinstance(value, str) else value
    if not isinstance(folders, list) or not folders:
        raise InputError("expected a list of folders")
    paths = [file.parent / Path(_text(place, file)).expanduser() for place in folders]
    for folder in paths:
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder")
        if not any((folder / section).is_dir() for section in SECTIONS):
            raise InputError(f"{folder} has none of the folders {', '.join(SECTIONS)}")
    return os.pathsep.join(str(folder.resolve()) for folder in paths)


def _switch(said: str) -> Read:
    """Return a reader of yes and no; `said` is the variable's text for no."""

    def read(value: object, file: Path) -> str:
        if isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE):
            value = value.lower() in _TRUE
        if not isinstance(value, bool):
            raise InputError("expected true or false")
        return "" if value else said

    return read


_BUYING = ("compare", "plan")
SETTINGS: Mapping[str, DefaultSetting] = {
    "region": DefaultSetting(
        read=_text,
        example='"us-east-2"',
        help="where instances are bought",
        option="region",
        verbs=_BUYING,
    ),
    "discount": DefaultSetting(
        read=_share,
        example='"18%"',
        help="negotiated, off published rates",
        option="discount",
        verbs=_BUYING,
    ),
    "prices": DefaultSetting(
        read=_prices,
        example='{ "trn2.48xlarge" = 30.0 }',
        help="own prices, USD per instance-hour",
        option="price",
        verbs=_BUYING,
    ),
    "instances": DefaultSetting(
        read=_names,
        example='["trn2.48xlarge", "p5.48xlarge"]',
        help="what is compared and planned on",
        option="on",
        verbs=_BUYING,
    ),
    "stack": DefaultSetting(
        read=_text,
        example='"nxd-trn1"',
        help="training stack",
        option="stack",
        verbs=(*_BUYING, "train"),
    ),
    "spec_folders": DefaultSetting(
        read=_folders,
        example='["specs"]',
        help="own chips, instances, prices; relative to this file, or whole paths",
        variable=PATH_VARIABLE,
    ),
    "colours": DefaultSetting(
        read=_switch("1"), example="true", help="colours on terminals", variable="NO_COLOR"
    ),
    "keep": DefaultSetting(
        read=_switch("0"),
        example="true",
        help="keep answers for `trnbench runs`",
        variable=f"{_VARIABLE}KEEP",
    ),
}


CURRENT: ContextVar[Configuration | None] = ContextVar("configuration", default=None)
"""What was configured before a command line's variables were set by it."""


def configuration() -> Configuration:
    """Return the settings of this user in this folder; refuse unknown keys."""
    if current := CURRENT.get():
        return current
    from platformdirs import user_config_path

    files = (user_config_path("trnbench") / FILE, Path.cwd() / FILE)
    values: dict[str, Configured] = {}
    for file in dict.fromkeys(files):
        if file.is_file():
            values |= _of_file(file)
    for key, setting in SETTINGS.items():
        name = setting.variable or f"{_VARIABLE}{key.upper()}"
        if setting.variable:
            if text := os.environ.get(name):
                values[key] = Configured(value=text, said=text, origin=name)
        elif text := os.environ.get(name):
            try:
                value = setting.read(text, Path.cwd() / FILE)
            except InputError as error:
                raise InputError(f"{name}: {error.message}") from None
            values[key] = Configured(value=value, said=text, origin=name)
    return Configuration(files=files, values=values)


def _of_file(file: Path) -> Mapping[str, Configured]:
    from trnbench.facts.catalog.toml_file import read_toml

    settings: dict[str, Configured] = {}
    faults: list[Fault] = []
    for key, value in read_toml(file).items():
        if key not in SETTINGS:
            faults.append(Fault(path=key, message=f"unknown key{did_you_mean(key, SETTINGS)}"))
            continue
        try:
            read = SETTINGS[key].read(value, file)
            settings[key] = Configured(value=read, said=_said(value), origin=str(file))
        except InputError as error:
            faults.append(Fault(path=key, message=error.message))
    if faults:
        also = "; ".join(map(str, faults[1:])) or f"keys: {', '.join(SETTINGS)}"
        raise InputError(f"{file}: {faults[0]}", hint=also)
    return settings


def template() -> str:
    lines = ["# Defaults of trnbench. What a command line says wins; `trnbench info` shows both."]
    lines += [f"# {key} = {setting.example}  # {setting.help}" for key, setting in SETTINGS.items()]
    return "\n".join(lines) + "\n"


def _said(value: object) -> str:
    match value:
        case dict():
            return ", ".join(f"{name}={item}" for name, item in value.items())
        case list():
            return ", ".join(map(str, value))
        case bool():
            return str(value).lower()
        case _:
            return str(value)
