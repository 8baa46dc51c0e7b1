"""Every binding of the application with its id, without making a view."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from textual.binding import Binding
from textual.dom import DOMNode


def every_binding(owners: Collection[type[DOMNode]], groups: Collection[str]) -> Iterator[Binding]:
    """Yield the bindings of the application and its views, and of the widgets, those with ids."""
    from trnbench.tui.widgets.chart import Chart
    from trnbench.tui.widgets.field import Field
    from trnbench.tui.widgets.result_table import ResultTable

    widgets: list[type[DOMNode]] = [ResultTable, Field, Chart]
    for owner in [*owners, *widgets]:
        for binding in owner.BINDINGS:
            if isinstance(binding, Binding) and (binding.id or "").partition(".")[0] in groups:
                yield binding
