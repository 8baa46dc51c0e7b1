"""The user's configuration and the last session's state: two TOML files outside the project.

user config folder / tui.toml     theme = "..."   [keys] "table.sort" = "o"     written by people
user state folder / tui.toml      view, theme, texts of forms                   written by us
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from trnbench.errors import DataFileError, Fault, TrnbenchError, did_you_mean
from trnbench.facts.catalog.toml_file import read_toml, toml_text
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.records import Record, field

FILE = "tui.toml"


class Config(Record):
    """The user's theme, None for the default, and keys by the id of their binding."""

    theme: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)


class SessionState(Record):
    """State of the last session: the view, the theme, and the texts of each view's fields."""

    view: str = ""
    theme: str = ""
    texts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def config_path() -> Path:
    from platformdirs import user_config_path

    return user_config_path("trnbench") / FILE


def state_path() -> Path:
    from platformdirs import user_state_path

    return user_state_path("trnbench") / FILE


def read_config(path: Path, ids: Callable[[], Collection[str]]) -> Config:
    """The configuration; unknown keys, and ids that no binding has, are faults."""
    if not path.is_file():
        return Config()
    actions = ids()
    table = read_toml(path)
    faults = [
        Fault(path=key, message=f"unknown key{did_you_mean(key, ('theme', 'keys'))}")
        for key in table
        if key not in ("theme", "keys")
    ]
    theme, keys = table.get("theme"), table.get("keys", {})
    if theme is not None and not isinstance(theme, str):
        faults.append(Fault(path="theme", message="expected the name of a theme"))
    if not isinstance(keys, dict):
        faults.append(Fault(path="keys", message="expected a table of ids and keys"))
        keys = {}
    for name, value in keys.items():
        if name not in actions:
            message = f"unknown id{did_you_mean(name, actions)}; help (?) lists them"
            faults.append(Fault(path=f"keys.{name}", message=message))
        elif not isinstance(value, str):
            faults.append(Fault(path=f"keys.{name}", message="expected a key such as 'f5'"))
    if faults:
        raise DataFileError(str(path), faults, hint=f"also {'; '.join(map(str, faults[1:]))}")
    return Config(theme=theme if isinstance(theme, str) else None, keys=keys)


def read_state(path: Path) -> SessionState:
    """State of the last session; an unusable file counts as absent."""
    try:
        table = read_toml(path) if path.is_file() else {}
    except TrnbenchError:
        return SessionState()
    view, theme = table.pop("view", ""), table.pop("theme", "")
    return SessionState(
        view=view if isinstance(view, str) else "",
        theme=theme if isinstance(theme, str) else "",
        texts={
            name: {key: text for key, text in section.items() if isinstance(text, str)}
            for name, section in table.items()
            if isinstance(section, dict)
        },
    )


def write_state(path: Path, state: SessionState) -> None:
    """Keep the state for the next session; a disk that refuses the file is no fault."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = {"view": state.view, "theme": state.theme}
        write_whole(path, toml_text({**plain, **state.texts}).encode(errors="replace"))
    except (OSError, TrnbenchError):
        return
