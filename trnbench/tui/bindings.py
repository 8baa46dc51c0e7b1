"""Every binding of the application with its id, without making a view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

from textual.binding import Binding
from textual.dom import DOMNode


def every_binding(groups: Sequence[str]) -> Iterator[Binding]:
    """Yield the bindings of the application, of each view and of the widgets, those with ids."""
    from trnbench.tui.app import VIEWS, TrnbenchApp
    from trnbench.tui.view import View
    from trnbench.tui.widgets.chart import Chart
    from trnbench.tui.widgets.field import Field
    from trnbench.tui.widgets.result_table import ResultTable

    views = [
        getattr(import_module(f"trnbench.tui.views.{name}"), kind)
        for name, (_, kind) in VIEWS.items()
    ]
    owners: list[type[DOMNode]] = [TrnbenchApp, View, *views, ResultTable, Field, Chart]
    for owner in owners:
        for binding in owner.BINDINGS:
            if isinstance(binding, Binding) and (binding.id or "").partition(".")[0] in groups:
                yield binding
