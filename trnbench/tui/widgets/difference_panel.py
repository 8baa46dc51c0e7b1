"""A panel of the differences of two pinned rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trnbench.tui.colours import theme_style
from trnbench.tui.difference import difference_text
from trnbench.tui.widgets.panels import TextPanel

if TYPE_CHECKING:
    from trnbench.verbs.train.answer import TrainAnswer


class DifferencePanel(TextPanel):
    """Shows the differences of two labelled steps, in time and in memory."""

    def compare(self, pair: Sequence[tuple[str, TrainAnswer]]) -> None:
        styles = (theme_style(self.app, "success"), theme_style(self.app, "error"))
        self.show(difference_text(pair, self.size.width - 2, styles))
