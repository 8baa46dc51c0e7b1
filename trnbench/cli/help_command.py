"""`trnbench help`: pages of the guide, concepts and words."""

from __future__ import annotations

import pydoc
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from trnbench.cli.derived_options import asks
from trnbench.cli.output import terminal_width
from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.terminal_text import shown_lines
from trnbench.verbs.asking.question import Question, option


class HelpQuestion(Question):
    """A page of the guide, or a word to be explained."""

    topic: tuple[str, ...] = option(
        "A page, a word of the glossary, an option, an instance type or a command; or options "
        "GROUP; default: a list.",
        metavar="TOPIC",
        argument=True,
        several="repeated",
        completes=("topics",),
    )
    all: bool = option("All pages of the guide, and the glossary.")
    output: str | None = option("Write to this file.", short="-o", metavar="FILE")


@asks(HelpQuestion)
def concepts(context: typer.Context, question: HelpQuestion) -> None:
    """Print a page of the guide, or explain a concept, a word, an option or a command."""
    from trnbench.show.guide import whole_guide

    topic = " ".join(question.topic) or None
    if question.all and topic is not None:
        raise InputError(f"help --all prints every page; leave out {topic!r}")
    text = whole_guide() if question.all else _explained(context, topic)
    if question.output is not None:
        write_whole(Path(question.output), f"{text.rstrip()}\n".encode())
    elif sys.stdout.isatty() and text.count("\n") >= shutil.get_terminal_size().lines:
        pydoc.pager(shown_lines(text))
    else:
        typer.echo(shown_lines(text).rstrip())


_OPTIONS = "options"


def _options(names: Sequence[str]) -> str:
    """The options of a group, or the groups that there are."""
    from trnbench.cli.option_groups import GROUPS, group_text

    if not names:
        lines = [f"  {name.ljust(10)}{title}" for name, title in GROUPS.items()]
        return "\n".join(["trnbench help options GROUP lists the options of:", "", *lines])
    name = " ".join(names)
    if name not in GROUPS:
        raise UnknownNameError("group of options", name, GROUPS)
    return group_text(name, terminal_width())


_NAMED = {
    "instances": "an instance type",
    "chips": "a chip",
    "models": "a model",
    "software": "a training framework",
    "calibration": "a calibration",
}
"""Sections of data files whose names answers use, and what an entry is."""


def _name_text(name: str) -> str:
    """The data file that a name of an answer means; empty for none."""
    from trnbench.facts.catalog.search import open_catalog

    catalog = open_catalog()
    for section, what in _NAMED.items():
        for wanted in (name, f"training-{name}" if section == "calibration" else name):
            if catalog.known(section, wanted):
                entry = catalog.find(section, wanted)
                title = catalog.table(entry.path).get("title", entry.name)
                verb = "workload" if section == "models" else "spec"
                shows = f"`trnbench {verb} show {entry.name}` has every number"
                return f"{entry.name}: {what}, {title}; {shows}"
    return ""


def _option_text(name: str) -> str:
    """The first verb's option of this name; empty for none."""
    from trnbench.cli.main import VERBS, application

    for verb in VERBS:
        command = typer.main.get_command(application(verb)).commands[verb]  # type: ignore[attr-defined]
        for one in command.params:
            if f"--{name}" in one.opts:
                return f"--{name}: {one.help} (trnbench {verb} --help)"
    return ""


def _explained(context: typer.Context, topic: str | None) -> str:
    """A word, a knob, a page or a command; without a topic, the list of pages and words."""
    from trnbench.cli.main import VERBS, application
    from trnbench.facts.catalog.concepts import concept, explained, glossary, topic_titles
    from trnbench.facts.workload.layout import KNOBS
    from trnbench.show.concepts import concept_text, knob_text, list_text
    from trnbench.show.guide import page, pages
    from trnbench.show.text_table import wrap

    titles = pages()
    if topic is not None and topic.split()[:1] == [_OPTIONS]:
        return _options(topic.split()[1:])
    if topic is None:
        return list_text({**topic_titles(), **titles}, glossary(), terminal_width())
    if topic in VERBS and topic not in titles:
        command = typer.main.get_command(application(topic)).commands[topic]  # type: ignore[attr-defined]
        with command.make_context(
            topic, [], parent=context.parent, resilient_parsing=True
        ) as asked:
            return str(command.get_help(asked))
    knob = KNOBS.get(topic.strip().lstrip("-").replace("-", "_").casefold())
    word = explained(topic)
    if word is None and knob is None and topic not in titles:
        if said := _name_text(topic) or _option_text(topic.lstrip("-")):
            return wrap(said, terminal_width(), "")
        word = concept(topic)
    return "\n\n".join(
        [
            *([concept_text(word, terminal_width())] if word else []),
            *([knob_text(knob, terminal_width())] if knob else []),
            *([page(topic)] if topic in titles else []),
        ]
    )
