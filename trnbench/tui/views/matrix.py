"""Matrix products: which shapes keep the tensor units busy, on which chip, in which format."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from rich.style import Style
from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widget import Widget

from trnbench import parsing
from trnbench.tui.chart_data import ChartAxis, ChartData, ChartSeries, in_unit, number
from trnbench.tui.heat import HeatMap, draw_heat
from trnbench.tui.matrix_questions import (
    GRID,
    EngineShares,
    MatrixFound,
    MatrixQuestion,
    Roof,
    matrix_engines,
    matrix_heat,
    matrix_rows,
)
from trnbench.tui.theme_styles import theme_style
from trnbench.tui.view import View
from trnbench.tui.widgets.bars import Bar, BarsData, StackedBars, letters_for
from trnbench.tui.widgets.chart import Chart
from trnbench.tui.widgets.field import Field, FieldSpec, Form
from trnbench.tui.widgets.panels import TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.switch import PictureSwitch
from trnbench.tui.widgets.table_model import TableSource
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.units import Dimension
from trnbench.workload.product_text import parse_product

if TYPE_CHECKING:
    from trnbench.answers.matrix import MatrixAnswer

KERNELS = ("blocked", "blocked-free", "hoisted", "naive")
DELTAS = frozenset({"time_s", "flop_per_s", "utilization", "bytes"})


class MatrixView(View):
    """Shapes against utilisation: a table, rooflines, a heat map, the engines of one kernel."""

    NAME: ClassVar[str] = "matrix"
    LABEL: ClassVar[str] = "Matrix"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "turn", "Chart", id="matrix.chart", tooltip="The next picture"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._found: MatrixFound | None = None
        self._heat: dict[str, dict[tuple[int, int], float | None]] = {}

    def body(self) -> Iterable[Widget]:
        """Return form, table and pictures."""
        catalog = self.trnbench.catalog
        chips = catalog.names("chips")
        suites = catalog.names("matrix")
        specs = [
            FieldSpec(
                key="suite",
                label="suite",
                text="llama",
                advice="none: the shapes below",
                parse=parsing.optional(parsing.one_of("matrix suite", suites)),
                choices=("", *suites),
            ),
            FieldSpec(
                key="shapes",
                label="m x k x n",
                text="4096x8192x8192, 8192x1024x8192, 512x8192x8192",
                parse=parsing.several("m x k x n", parse_product),
            ),
            FieldSpec(
                key="chips",
                label="chips",
                text="trainium1, trainium2",
                parse=parsing.several("chips", parsing.one_of("chip", chips)),
                choices=tuple(f"{one}, {other}" for one in chips for other in chips if one < other),
            ),
            FieldSpec(
                key="formats",
                label="format",
                text="bf16",
                parse=parsing.several("format", _format_name),
                choices=("bf16", "fp8", "fp32", "bf16, fp8"),
            ),
            FieldSpec(
                key="sparsity",
                label="sparsity",
                advice="dense; e.g. 4:16",
                parse=parsing.optional(_pattern),
                choices=("", "4:16", "4:8", "2:4"),
            ),
            FieldSpec(
                key="kernel",
                label="kernel",
                text="blocked",
                parse=parsing.one_of("kernel", KERNELS),
                choices=KERNELS,
            ),
            FieldSpec(key="cores", label="cores", text="1", parse=_cores, choices=("1", "all")),
            FieldSpec(
                key="k",
                label="heat map k",
                text="8192",
                parse=parsing.whole("k"),
                choices=tuple(map(str, GRID)),
            ),
        ]
        yield Horizontal(
            Vertical(Form(specs, id="matrix-form"), classes="side"),
            Vertical(
                TablePane(id="matrix-table"),
                PictureSwitch(
                    [
                        ("roofline", Chart(id="matrix-roofline")),
                        ("heat map", TextPanel(id="matrix-heat")),
                        ("engines", StackedBars(id="matrix-engines")),
                    ],
                    id="matrix-pictures",
                ),
                classes="main",
            ),
        )

    def begin(self) -> None:
        """Ask for the first rows."""
        self._ask()

    def command(self) -> str:
        """Return the command line of the rows."""
        from trnbench.app.command_lines import matrix_line

        question = self._question()
        return matrix_line(question.request(self.trnbench.catalog), question.suite)

    def facts(self) -> tuple[str, ...]:
        """Return what the numbers rest on."""
        return ("modelled (closed form)", "% of tensor peak in the format")

    def stale(self, topic: str) -> None:
        """Mark the rows of the question before."""
        if topic == "matrix":
            self.query_one(ResultTable).stale = True

    def answered(self, topic: str, value: object) -> None:
        """Show rows, a heat map, or engines."""
        match value:
            case MatrixFound():
                self._found = value
                keys = tuple(
                    f"{row['shape']} {row['chip']} {row['dtype']} {row['label']} {number}"
                    for number, row in enumerate(value.report.rows)
                )
                self.query_one(ResultTable).show(
                    TableSource(
                        report=value.report, keys=keys, answers=value.answers, deltas=DELTAS
                    )
                )
                self.query_one(TablePane).say("; ".join(value.report.notes[:1]))
                self._draw_roofs()
                self._ask_picture()
            case EngineShares():
                self._draw_engines(value)
            case dict():
                self._heat = value
                self._draw_heat()

    def action_turn(self) -> None:
        """Show the next picture."""
        self.query_one(PictureSwitch).turn()

    @on(Field.Changed)
    def _changed(self) -> None:
        self._ask()

    @on(PictureSwitch.Turned)
    def _turned(self) -> None:
        self._ask_picture()

    @on(ResultTable.Highlighted)
    def _highlighted(self) -> None:
        if self._found is not None:
            self._draw_roofs()
            if self.query_one(PictureSwitch).shown == "engines":
                self._ask_picture()

    def on_resize(self) -> None:
        """Draw the heat map as wide as there is room."""
        if self._heat:
            self.call_after_refresh(self._draw_heat)

    def _question(self) -> MatrixQuestion:
        form = self.query_one(Form)
        fields = {key: form.value(key) for key in form.fields}
        return MatrixQuestion(
            products=fields["shapes"],  # type: ignore[arg-type]
            suite=fields["suite"],  # type: ignore[arg-type]
            chips=fields["chips"],  # type: ignore[arg-type]
            formats=fields["formats"],  # type: ignore[arg-type]
            pattern=fields["sparsity"],  # type: ignore[arg-type]
            kernel=fields["kernel"],  # type: ignore[arg-type]
            cores=str(fields["cores"]),
        )

    def _ask(self) -> None:
        self.ask("matrix", partial(matrix_rows, self.trnbench.catalog, self._question()))

    def _ask_picture(self) -> None:
        shown = self.query_one(PictureSwitch).shown
        catalog, question = self.trnbench.catalog, self._question()
        here = self._here
        if shown == "heat map":
            k = self.query_one(Form).value("k")
            assert isinstance(k, int)
            self.ask("heat map", partial(matrix_heat, catalog, question, k))
        elif shown == "engines" and here is not None:
            self.ask("engines", partial(matrix_engines, catalog, question, here.product, here.chip))

    @property
    def _here(self) -> MatrixAnswer | None:
        """The answer under the cursor."""
        return cast("MatrixAnswer | None", self.query_one(ResultTable).answer)

    def _draw_roofs(self) -> None:
        assert self._found is not None
        here = self._here
        under = None if here is None else (here.chip, here.number_format)
        series = []
        for hue, roof in enumerate(self._found.roofs):
            series.append(
                ChartSeries(label="", points=_roof_points(roof), joined=True, marked=False, hue=hue)
            )
            series.append(
                ChartSeries(
                    label=f"{roof.chip} {roof.number_format}",
                    points=roof.points,
                    strong=under == (roof.chip, roof.number_format),
                    hue=hue,
                )
            )
        if here is not None and here.feasible:
            at = (here.intensity_flop_per_byte, here.flop_per_s)
            series.append(ChartSeries(label=f"{here.shape} on {here.chip}", points=(at,)))
        self.query_one(Chart).show(
            ChartData(
                title="rate over intensity: points under the roofs of their chips",
                series=tuple(series),
                x=ChartAxis(title="FLOP per byte of memory traffic", text=number, log=True),
                y=ChartAxis(title="", text=in_unit(Dimension.FLOP_PER_S), log=True),
            )
        )

    def _draw_heat(self) -> None:
        panel = self.query_one(TextPanel)
        k = self.query_one(Form).value("k")
        maps = [
            HeatMap(title=name, rows=GRID, columns=GRID, values=values)
            for name, values in self._heat.items()
        ]
        text = Text()
        text.append(f"utilisation in % of tensor peak at k = {k:,}\n\n", style="bold")
        text.append_text(draw_heat(maps, ("m", "n"), panel.size.width - 2, self._levels()))
        panel.show(text)

    def _levels(self) -> list[Style]:
        names = ("error", "warning", "warning", "success", "success")
        return [
            theme_style(self.app, name, bold=level in (2, 4)) for level, name in enumerate(names)
        ]

    def _draw_engines(self, shares: EngineShares) -> None:
        if shares.reasons:
            data = BarsData(
                title=shares.title, bars=(), text=str, letters={}, note="; ".join(shares.reasons)
            )
        else:
            busy = {name: share for name, share in shares.busy.items() if "dma " not in name}
            dma = [share for name, share in shares.busy.items() if "dma " in name]
            if dma:
                busy["dma queues, mean"] = sum(dma) / len(dma)
            bars = [
                Bar(label=name, parts={"busy": share}, limit=1.0) for name, share in busy.items()
            ]
            bars += [
                Bar(label=f"waits: {cause}", parts={"waiting": share}, limit=1.0)
                for cause, share in shares.stalls.items()
            ]
            data = BarsData(
                title=f"{shares.title}: share of the time each engine is busy",
                bars=tuple(bars),
                text=lambda share: f"{100 * share:.1f} %",
                letters=letters_for(("busy", "waiting")),
                shares=False,
            )
        self.query_one(StackedBars).show(data)


def _roof_points(roof: Roof) -> tuple[tuple[float, float], ...]:
    """Return the corners of a roof that reaches over its points."""
    ridge = roof.peak_flop_per_s / roof.memory_bytes_per_s
    least = min([ridge, *(x for x, _ in roof.points)]) / 2
    most = max([ridge, *(x for x, _ in roof.points)]) * 2
    return (
        (least, least * roof.memory_bytes_per_s),
        (ridge, roof.peak_flop_per_s),
        (most, roof.peak_flop_per_s),
    )


def _format_name(text: str) -> str:
    from trnbench.errors import UnknownNameError
    from trnbench.numerics.formats import FORMATS

    known = (*FORMATS, "fp8")
    if text not in known:
        raise UnknownNameError("number format", text, known)
    return text


def _pattern(text: str) -> str:
    from trnbench.errors import InputError

    kept, colon, of = text.partition(":")
    if not (colon and kept.isdecimal() and of.isdecimal() and 0 < int(kept) <= int(of)):
        raise InputError(f"sparsity: write KEPT:OF such as 4:16, found {text!r}")
    return text


def _cores(text: str) -> str:
    return text if text == "all" else str(parsing.whole("cores")(text))
