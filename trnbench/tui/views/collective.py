"""Collectives: bus bandwidth over size, and bytes on each link, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual import on
from textual.binding import BindingType

from trnbench.errors import UnknownNameError
from trnbench.facts import parsing
from trnbench.facts.parsing import place_text
from trnbench.facts.units import Dimension, show
from trnbench.facts.workload.choices import OPS
from trnbench.program.collective import op_named
from trnbench.tui.colours import theme_style
from trnbench.tui.drawings import draw_planes
from trnbench.tui.forms import field, list_of, plain
from trnbench.tui.questions.benchmarks import SweptSize, collective_rounds, collective_sweep
from trnbench.tui.view import View, evidence_facts
from trnbench.tui.widgets.chart import Chart
from trnbench.tui.widgets.field import Field, FieldSpec, Form
from trnbench.tui.widgets.frame import hidden, offered
from trnbench.tui.widgets.panels import Picture, PictureSwitch, TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.work_process import TableFound
from trnbench.verbs.collective.question import AUTO, CollectiveQuestion

if TYPE_CHECKING:
    from trnbench.verbs.collective.steps import CollectiveStep, CollectiveSteps

FIRST_PLACES = "trn1.32xlarge, trn2.48xlarge, trn2-ultraserver, p5.48xlarge"
LINKS = "links"


class CollectiveView(View):
    """A sweep, its chart, and the rounds of the row under the cursor."""

    NAME: ClassVar[str] = "collective"
    GUIDE = "engines"
    DELTAS = frozenset({"time_s", "busbw_bytes_per_s", "algbw_bytes_per_s"})
    BINDINGS: ClassVar[list[BindingType]] = [
        offered("c", "turn", "Chart", "collective.chart", "The next chart"),
        offered("n", "round(1)", "Next round", "collective.next"),
        hidden("p", "round(-1)", "Previous", "collective.previous", "Round before"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._sizes: Sequence[SweptSize] = ()
        self._steps: CollectiveSteps | None = None
        self._round = 0

    def fields(self) -> Sequence[FieldSpec]:
        """The form: an operation on places, by algorithms, over sizes."""
        catalog = self.trnbench.catalog
        place = parsing.place("on", parsing.one_of("instance", catalog.names("instances")))
        places = list_of(lambda text: place_text(*place(text)))
        names = [entry.name for entry in catalog.entries("instances")]
        algorithms = (AUTO, "auto, ring", "ring, kangaring", "halving")
        return (
            field("op", plain(op_named), "all-reduce", choices=OPS, label="operation"),
            field("on", places, FIRST_PLACES, choices=names),
            field("algorithms", list_of(_algorithm), AUTO, choices=algorithms),
            field("min_size", parsing.size, "1KiB", label="from"),
            field("max_size", parsing.size, "1GiB", label="to"),
            field("factor", parsing.count, "4", choices=("2", "4", "16")),
        )

    def trail(self) -> Sequence[str]:
        texts = self.query_one(Form).texts
        return (f"{texts['op']}, {texts['algorithms']}", texts["on"])

    def pictures(self) -> Mapping[str, Picture]:
        return {"busbw/size": Chart(), LINKS: TextPanel()}

    def command(self) -> str:
        asked = self._question()
        lines = (asked.but(algorithm=algorithm) for algorithm in self._algorithms())
        return "\n".join(self.line("collective", line) for line in lines)

    def facts(self) -> tuple[str, ...]:
        rows = [size.answer.row() for size in self._sizes]
        return ("modelled", *evidence_facts(rows), "GB/s are 1e9 bytes/s")

    def answered(self, topic: str, value: object) -> None:
        if topic == "rounds":
            self._steps = cast("CollectiveSteps", value)
            self._round = min(self._round, len(self._steps.steps))
            self.draw()
            return
        assert isinstance(value, TableFound)
        self._sizes = value.answers
        first = not self.query_one(ResultTable).source.keys
        self.show_table(value, "on", "asked", "size_bytes")
        if first and self._sizes:
            # Where the links are loaded most: the largest size on the first cluster.
            mine = [n for n, size in enumerate(self._sizes) if size.on == self._sizes[0].on]
            largest = max(mine, key=lambda n: self._sizes[n].answer.size_bytes)
            table = self.query_one(ResultTable)
            table.go_to(table.source.keys[largest])
        self.draw()

    def action_round(self, by: int) -> None:
        """Show another round; before the first stands the whole."""
        self.query_one(PictureSwitch).turn_to(LINKS)
        if self._steps is not None:
            self._round = (self._round + by) % (len(self._steps.steps) + 1)
            self.draw()

    @on(Field.Changed)
    def _changed(self) -> None:
        self._round = 0
        self.action_again()

    def turned(self) -> None:
        """Draw, and ask for the rounds of the row under the cursor."""
        super().turned()
        if self._here is not None and LINKS in self.visible_pictures:
            self.ask("rounds", collective_rounds, self._here)

    def follow(self) -> None:
        self.turned()

    @property
    def _here(self) -> SweptSize | None:
        return cast("SweptSize | None", self.query_one(ResultTable).answer)

    def _question(self) -> CollectiveQuestion:
        options = dict(self.query_one(Form).values)
        del options["algorithms"]
        return CollectiveQuestion.read(options)

    def _algorithms(self) -> tuple[str, ...]:
        return tuple(self.query_one(Form).values["algorithms"])

    def action_again(self) -> None:
        self.ask("collective", collective_sweep, self._question(), self._algorithms())

    def drawn(self, picture: str) -> object:
        """The chart of the sweep, or the links of the row under the cursor."""
        if picture == LINKS:
            return None if self._steps is None else self._links(self._steps)
        if not self._sizes:
            return None
        from trnbench.verbs.collective.text import busbw_chart

        here = self._here
        return busbw_chart(
            [size.answer for size in self._sizes],
            [size.asked for size in self._sizes],
            None if here is None else (here.answer, here.asked),
        )

    def _links(self, steps: CollectiveSteps) -> str | Text:
        if steps.reasons or steps.whole is None:
            return f"{steps.op} on {steps.instance}: no: {'; '.join(steps.reasons)}"
        step = steps.whole if self._round == 0 else steps.steps[self._round - 1]
        where = f": round {self._round} of {len(steps.steps)}" if self._round else ": all rounds"
        text = Text()
        text.append(
            f"{steps.op} of {show(steps.size_bytes, Dimension.BYTES)} on {steps.nodes} x "
            f"{steps.instance}, {steps.algorithm}{where}\n",
            style="bold",
        )
        text.append(_step_text(step, self._round, len(steps.steps)) + "\n\n")
        if step.planes:
            styles = (
                theme_style(self.app, "foreground"),
                theme_style(self.app, "warning"),
                theme_style(self.app, "error", bold=True),
            )
            text.append_text(draw_planes(step.planes, self.room(LINKS).width, styles))
        text.append(
            "busiest links                     level          load   carries\n", style="bold"
        )
        for link in step.busiest:
            carries = show(link.size_bytes, Dimension.BYTES, digits=3)
            text.append(
                f"{link.name:<32}  {link.level:<12} {100 * link.busy:>5.0f} %  {carries:>9}\n"
            )
        return text


def _step_text(step: CollectiveStep, number: int, count: int) -> str:
    over = show(step.over_s, Dimension.SECONDS, digits=3)
    if number == 0:
        return (
            f"all {step.times:,} rounds, {step.messages:,} messages; n, p: round by round\n"
            f"loads in % of link capacity over the {over} that it takes"
        )
    alike = f", one of {step.times:,} alike" if step.times > 1 else ""
    return (
        f"round {number} of {count} kinds{alike}, phase {step.phase + 1}, {step.messages:,} "
        f"messages\nloads in % of link capacity over the {over} of its longest message"
    )


def _algorithm(text: str) -> str:
    if text == AUTO:
        return text
    from trnbench.facts.calibration.collective_stack import ALGORITHM_NAMES

    if text.partition("(")[0] not in ALGORITHM_NAMES:
        raise UnknownNameError("algorithm", text, (AUTO, *ALGORITHM_NAMES))
    return text
