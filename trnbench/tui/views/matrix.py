"""Matrix products: which shapes keep the tensor units busy, on which chip, in which format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual import events, on
from textual.binding import BindingType

from trnbench.facts import parsing
from trnbench.facts.units import Dimension
from trnbench.show.charts.record import Bar, BarChart, ChartAxis, parts_of
from trnbench.tui.drawings import POWERS, draw_heat, level_styles, sizes_for
from trnbench.tui.forms import field, list_of, plain
from trnbench.tui.questions.benchmarks import matrix_engines, matrix_heat, matrix_rows
from trnbench.tui.view import View
from trnbench.tui.widgets.bars import StackedBars
from trnbench.tui.widgets.chart import Chart
from trnbench.tui.widgets.field import Field, FieldSpec, Form
from trnbench.tui.widgets.frame import offered
from trnbench.tui.widgets.panels import Picture, TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.tui.work_process import TableFound
from trnbench.verbs.matrix.question import MatrixQuestion, parse_product

if TYPE_CHECKING:
    from trnbench.verbs.matrix.run import MatrixAnswer

KERNELS = ("blocked", "blocked-free", "hoisted", "naive")
SHAPES = "4096x8192x8192, 8192x1024x8192, 512x8192x8192"


class MatrixView(View):
    """Shapes against utilisation: a table, rooflines, a heat map, the engines of a kernel."""

    NAME: ClassVar[str] = "matrix"
    GUIDE = "numerics"
    DELTAS = frozenset({"time_s", "flop_per_s", "utilization", "bytes"})
    BINDINGS: ClassVar[list[BindingType]] = [
        offered("c", "turn", "Chart", "matrix.chart", "The next chart")
    ]

    def __init__(self) -> None:
        super().__init__()
        self._answers: Sequence[MatrixAnswer] = ()
        self._engines: MatrixAnswer | None = None
        self._heat: dict[str, dict[tuple[int, int], float | None]] = {}

    def fields(self) -> Sequence[FieldSpec]:
        """The form: a suite or shapes, and how they run."""
        catalog = self.trnbench.catalog
        chips, suites = catalog.names("chips"), catalog.names("matrix")
        suite = plain(parsing.one_of("matrix suite", suites))
        pairs = [f"{chip}, {other}" for chip in chips for other in chips if chip < other]
        formats = ("bf16", "fp8", "fp32", "bf16, fp8")
        sparsities = ("4:16", "4:8", "2:4")
        return (
            field("suite", suite, "llama", advice="none: the shapes below", choices=suites),
            field("shapes", list_of(parse_product), SHAPES, label="m x k x n"),
            field(
                "chips",
                list_of(parsing.one_of("chip", chips)),
                "trainium1, trainium2",
                choices=pairs,
            ),
            field("formats", list_of(_format_name), "bf16", choices=formats, label="format"),
            field("sparsity", plain(_pattern), advice="dense; e.g. 4:16", choices=sparsities),
            field("kernel", plain(parsing.one_of("kernel", KERNELS)), "blocked", choices=KERNELS),
            field("cores", plain(_cores), "1", choices=("1", "all")),
            field("k", parsing.whole, "8192", choices=[str(k) for k in POWERS], label="heat map k"),
        )

    def trail(self) -> Sequence[str]:
        texts = self.query_one(Form).texts
        return (texts["suite"] or texts["shapes"], texts["chips"])

    def pictures(self) -> Mapping[str, Picture]:
        return {"roofline": Chart(), "heat map": TextPanel(), "engines": StackedBars()}

    def command(self) -> str:
        return self.line("matrix", self._question().settled(self.trnbench.catalog))

    def facts(self) -> tuple[str, ...]:
        return ("modelled (closed form)", "% of tensor peak in the format")

    def answered(self, topic: str, value: object) -> None:
        match value:
            case TableFound():
                self._answers = value.answers
                self.show_table(value, "shape", "chip", "dtype", "label")
                self.query_one(TablePane).say("; ".join(value.report.notes[:1]))
                self.turned()
            case dict():
                self._heat = value
            case _:
                self._engines = cast("MatrixAnswer", value)
        self.draw()

    @on(Field.Changed)
    def action_again(self) -> None:
        self.ask("matrix", matrix_rows, self._question())

    def follow(self) -> None:
        """Draw, and ask for the engines of the row under the cursor."""
        super().follow()
        if "engines" in self.visible_pictures:
            self._ask_picture()

    def on_resize(self, event: events.Resize) -> None:
        if "heat map" in self.visible_pictures:
            self.call_after_refresh(self._ask_picture)

    def _question(self) -> MatrixQuestion:
        value = self.query_one(Form).values
        del value["k"]
        products = () if value["suite"] else value["shapes"]
        said = {**value, "shapes": products, "on": value["chips"], "dtype": value["formats"]}
        del said["chips"], said["formats"]
        return MatrixQuestion.read(said)

    def turned(self) -> None:
        """Draw, and ask for what the picture shows."""
        super().turned()
        self._ask_picture()

    def _ask_picture(self) -> None:
        here = self._here
        if "heat map" in self.visible_pictures:
            k = self.query_one(Form).values["k"]
            sizes = sizes_for(self.room("heat map").width, self.room("heat map").height - 4)
            self.ask("heat map", matrix_heat, self._question(), k, sizes)
        if "engines" in self.visible_pictures and here is not None:
            self.ask("engines", matrix_engines, self._question(), here.product, here.chip)

    @property
    def _here(self) -> MatrixAnswer | None:
        return cast("MatrixAnswer | None", self.query_one(ResultTable).answer)

    def drawn(self, picture: str) -> object:
        """The roofs, the shapes, or the engines."""
        if picture == "engines":
            return None if self._engines is None else _engine_bars(self._engines)
        if picture == "roofline":
            from trnbench.verbs.matrix.text import roofline_chart

            return roofline_chart(self._answers, self._here)
        if not self._heat:
            return None
        k = self.query_one(Form).values["k"]
        text = Text().append(f"utilisation in % of tensor peak at k = {k:,}\n", style="bold")
        return text.append_text(
            draw_heat(self._heat, self.room(picture).width, level_styles(self.app))
        )


def _engine_bars(answer: MatrixAnswer) -> BarChart:
    """Use of the engines of a core, and what the tensor engine waits for, as shares of the time."""
    product = answer.product
    title = (
        f"{product.m}x{product.k}x{product.n} {answer.number_format} on a core of "
        f"{answer.chip}, played"
    )
    used = answer.engine_utilization
    busy = {name: share for name, share in used.items() if "dma " not in name}
    dma = [share for name, share in used.items() if "dma " in name]
    if dma:
        busy["dma queues, mean"] = sum(dma) / len(dma)
    bars = [Bar(label=name, parts={"busy": share}, limit=1.0) for name, share in busy.items()]
    bars += [
        Bar(label=f"waits: {cause}", parts={"waiting": time_s / answer.time_s}, limit=1.0)
        for cause, time_s in answer.stalls_s.items()
        if time_s > 0
    ]
    return BarChart(
        title=title,
        caption="share of the time each engine is busy, or waits",
        axis=ChartAxis(title="share", dimension=Dimension.RATIO),
        bars=() if answer.reasons else tuple(bars),
        parts=parts_of(("busy", "waiting")),
        missing="; ".join(answer.reasons),
    )


def _format_name(text: str) -> str:
    from trnbench.errors import UnknownNameError
    from trnbench.facts.numbers.formats import FORMATS

    formats = (*FORMATS, "fp8")
    if text not in formats:
        raise UnknownNameError("number format", text, formats)
    return text


def _pattern(text: str) -> str:
    from trnbench.facts.numbers.sparsity import parse_pattern

    return str(parse_pattern(text))


def _cores(text: str) -> str:
    return text if text == "all" else str(parsing.whole("cores")(text))
