"""`trnbench help`: concepts and words, explained."""

from __future__ import annotations

import typer

from trnbench.cli.derived_options import asks
from trnbench.cli.output import terminal_width
from trnbench.facts.terminal_text import shown_lines
from trnbench.verbs.asking.question import Question, option


class HelpQuestion(Question):
    """A word to be explained."""

    topic: str | None = option(
        "A concept, a word of the glossary, a knob, or a command; default: list them.",
        metavar="TOPIC",
        argument=True,
        completes=("topics",),
    )


@asks(HelpQuestion)
def concepts(context: typer.Context, question: HelpQuestion) -> None:
    """Explain a concept (layout, calibration, evidence, purchase, engines) or a word."""
    from trnbench.cli.main import VERBS, application
    from trnbench.facts.catalog.concepts import concept, explained, glossary, topic_titles
    from trnbench.facts.workload.layout import KNOBS
    from trnbench.show.concepts import concept_text, knob_text, list_text

    topic = question.topic
    if topic is None:
        text = list_text(topic_titles(), glossary(), terminal_width())
    elif topic in VERBS:
        command = typer.main.get_command(application(topic)).commands[topic]  # type: ignore[attr-defined]
        with command.make_context(
            topic, [], parent=context.parent, resilient_parsing=True
        ) as asked:
            text = command.get_help(asked)
    else:
        knob = KNOBS.get(topic.strip().lstrip("-").replace("-", "_").casefold())
        word = explained(topic)
        if word is None and knob is None:
            word = concept(topic)
        text = "\n\n".join(
            [
                *([concept_text(word, terminal_width())] if word else []),
                *([knob_text(knob, terminal_width())] if knob else []),
                *(_accuracy() if word is not None and word.name == "accuracy" else []),
            ]
        )
    typer.echo(shown_lines(text))


def _accuracy() -> list[str]:
    """The shipped accuracy: sentences, and tables."""
    from trnbench.cli.output import terminal_width
    from trnbench.show.text_table import draw, wrap
    from trnbench.verbs.validate.accuracy import sentences, shipped_accuracy, tables

    known = shipped_accuracy()
    texts = [wrap(text, terminal_width(), "") for text in sentences(known)]
    return [*texts, *map(draw, tables(known))]
