"""Texts of files from data and templates: YAML and JSON by libraries, scripts by templates."""

from __future__ import annotations

import json
import shlex
from functools import cache
from typing import TYPE_CHECKING, Any

from trnbench.facts.terminal_text import markdown_text
from trnbench.launch.values import word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jinja2 import Environment


def yaml_text(*documents: object, head: Iterable[str] = ()) -> str:
    """Documents as YAML, each key on a line of its own, below lines of comment."""
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:  # noqa: ANN401
        # Quotes mark texts that a tool fills in later: unquoted, a filled-in 8 would be a number.
        style = "|" if "\n" in value else "'" if "${" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    comments = "".join(f"# {line}\n" for line in head)
    written: str = yaml.dump_all(
        documents, Dumper=Dumper, sort_keys=False, width=120, explicit_start=len(documents) > 1
    )
    return comments + written


def json_text(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def from_template(name: str, **context: object) -> str:
    """Text of a template of `templates/`.

    `|q` quotes for bash, `|word` keeps values, `|md` is for Markdown.
    """
    return _templates().get_template(f"{name}.j2").render(**context)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # Not HTML: what could be read as shell passes `q` or `word`.
    templates = Environment(
        loader=PackageLoader("trnbench.launch"),
        undefined=StrictUndefined,
        comment_start_string="{##",  # bash has ${#names[@]}
        comment_end_string="##}",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    templates.filters |= {"word": word, "md": markdown_text}
    templates.filters["q"] = lambda text: shlex.quote(str(text))
    return templates
