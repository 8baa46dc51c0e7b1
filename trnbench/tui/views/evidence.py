"""Errors of the numbers: measured and predicted times, and claims with verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import BindingType

from trnbench.facts.units import Dimension, show
from trnbench.show.charts.record import PointChart
from trnbench.show.row import Row
from trnbench.tui.questions.evidence import EvidenceFound, claim_rows, evidence_rows
from trnbench.tui.view import View
from trnbench.tui.widgets.chart import Chart
from trnbench.tui.widgets.frame import offered
from trnbench.tui.widgets.panels import Picture, PictureSwitch, TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.tui.work_process import TableFound
from trnbench.verbs.claims.question import ClaimsQuestion

if TYPE_CHECKING:
    from trnbench.evidence.comparison import Comparison


def _sets_in_turn() -> tuple[tuple[str, ...], ...]:
    """Each set of measurements alone, then all."""
    from trnbench.verbs.validate.run import SETS

    return (*((name,) for name in SETS), tuple(SETS))


class EvidenceView(View):
    """Rows of measurements or of claims, a scatter, and statistics."""

    NAME: ClassVar[str] = "evidence"
    GUIDE = "accuracy"
    BINDINGS: ClassVar[list[BindingType]] = [
        offered("c", "turn", "Chart", "evidence.chart", "The next chart"),
        offered("n", "sets", "Next set", "evidence.sets", "Other measurements"),
        offered("v", "claims", "Claims", "evidence.claims", "Claims, or measurements"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._found: EvidenceFound | None = None
        self._place = 0
        self._claims = False

    def pictures(self) -> Mapping[str, Picture]:
        return {"scatter": Chart(), "errors": TextPanel(), "row": TextPanel(wrap=True)}

    def command(self) -> str:
        """The command line of the rows."""
        from trnbench.verbs.asking.command_lines import command_line

        if self._claims:
            question = ClaimsQuestion(price_date=self.trnbench.today)
            return self.line("claims", question)
        return command_line("validate", set=self._sets)

    @property
    def _sets(self) -> tuple[str, ...]:
        """Names of the sets that are shown."""
        sets = _sets_in_turn()
        return sets[self._place % len(sets)]

    def facts(self) -> tuple[str, ...]:
        if self._claims:
            return ("claims of vendors", f"prices of {self.trnbench.today}")
        return ("measured and modelled", f"sets: {', '.join(self._sets)}")

    def answered(self, topic: str, value: object) -> None:
        """Show measurements or claims, whichever is wanted now."""
        if isinstance(value, EvidenceFound) == self._claims:
            return
        if isinstance(value, EvidenceFound):
            self._found = value
            self.show_table(value, "set", "id", "size_bytes")
            self.query_one(TablePane).say(f"measured and predicted: {', '.join(self._sets)}")
            self.verdict(str(value.report.summary.get("verdict", "")))
        elif isinstance(value, TableFound):
            self.show_table(value, "claim")
            self.query_one(TablePane).say("claims of vendors")
            self.verdict("")
            self.query_one(PictureSwitch).turn_to("row")

    def action_sets(self) -> None:
        self._claims = False
        self._place += 1
        self.action_again()

    def action_claims(self) -> None:
        self._claims = not self._claims
        self.action_again()

    def drawn(self, picture: str) -> object:
        """The scatter, the statistics, or the row under the cursor."""
        row = self.query_one(ResultTable).row
        if row is None:
            return None
        if picture == "scatter":
            return self._scatter()
        if picture == "errors":
            return None if self._found is None else self._found.words
        return _row_text(row)

    def action_again(self) -> None:
        """Compare with measurements, or try the claims."""
        self.state_facts()
        if self._claims:
            self.ask("evidence", claim_rows, self.trnbench.today)
        else:
            self.ask("evidence", evidence_rows, self._sets)

    def _scatter(self) -> PointChart:
        from trnbench.verbs.validate.text import error_chart

        shown = () if self._claims or self._found is None else self._found.answers
        here = cast("Comparison | None", self.query_one(ResultTable).answer)
        return error_chart(
            shown, here, "claims have no scatter; v goes back to measurements" * self._claims
        )


def _row_text(row: Row) -> str:
    """All filled cells of a row, a line each."""
    return "\n".join(
        f"{key:<16} {_cell_text(key, value)}"
        for key, value in row.items()
        if value not in (None, "", (), [], {})
    )


def _cell_text(key: str, value: object) -> str:
    match value:
        case float() if key.endswith("_s"):
            return show(value, Dimension.SECONDS)
        case dict():
            return ("\n" + " " * 17).join(f"{name}: {_verdict(of)}" for name, of in value.items())
        case list() | tuple():
            return "; ".join(map(str, value))
        case _:
            return str(value)


def _verdict(cell: object) -> str:
    if isinstance(cell, dict):
        return " ".join(str(cell[key]) for key in ("verdict", "says") if cell.get(key))
    return str(cell)
