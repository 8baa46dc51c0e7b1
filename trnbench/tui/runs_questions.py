"""The questions of the Runs view, answered in a process of their own; without textual."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from trnbench.show.report import columns
from trnbench.tui.found import TableFound

if TYPE_CHECKING:
    from trnbench.app.runs import AnsweredRun
    from trnbench.facts.catalog.search import Catalog
    from trnbench.scenario import Scenario
    from trnbench.tui.work_process import WorkHooks

COLUMNS = columns(
    *("started_at", "verb", "headline", "tag", "model", "instances", "seconds", "id", "version"),
)
_LISTS = {"on": "instances", "purchase": "purchase"}
_TEXTS = ("model", "tokens", "precision", "region", "deadline", "stack")
_WHOLE = ("sequence", "global_batch", "nodes")
_PRICES = {"price": "prices", "assume_price": "assumed_prices"}


class RunsFound(TableFound):
    """Kept runs; `said`: what stood in the way of reading some."""

    said: tuple[str, ...] = ()


def kept_runs(catalog: Catalog, hooks: WorkHooks) -> RunsFound:
    """Return the kept runs, newest first."""
    from trnbench.app.runs import list_runs
    from trnbench.report.runs import list_report
    from trnbench.store.runs import RunFilter

    said: list[str] = []
    runs = list_runs(catalog, RunFilter(), say=said.append)
    report = list_report(runs, {})
    return RunsFound(report=_with_columns(report), answers=tuple(runs), said=tuple(map(str, said)))


def kept_answer_text(catalog: Catalog, name: str, hooks: WorkHooks) -> str:
    """Return one kept answer as people read it."""
    from trnbench.app.runs import answered_run
    from trnbench.report.runs import shown_report
    from trnbench.show.formats import render
    from trnbench.show.text_table import PLAIN

    one = answered_run(name)
    return render(shown_report(one.run, one.answer), "table", PLAIN).decode()


def difference_text(catalog: Catalog, names: tuple[str, str], hooks: WorkHooks) -> str:
    """Return what differs between two kept answers; they are not asked again here."""
    from trnbench.app.run_diff import diff_runs
    from trnbench.report.run_diff import diff_report
    from trnbench.show.formats import render
    from trnbench.show.text_table import PLAIN

    found = diff_runs(*names, None)
    told = render(diff_report(found), "table", PLAIN).decode()
    return f"{told}\ntrnbench runs diff {names[0]} {names[1]}   asks both again, part by part"


def opened_run(catalog: Catalog, name: str, hooks: WorkHooks) -> AnsweredRun:
    """Return a kept run with its answer."""
    from trnbench.app.runs import answered_run

    return answered_run(name)


def scenario_of_options(options: dict[str, Any]) -> Scenario | None:
    """Return the scenario that asks what options asked; None where it has no room for one."""
    from trnbench.facts.catalog.structure import structure
    from trnbench.scenario import Scenario

    table: dict[str, object] = {}
    for name, value in options.items():
        if name in _LISTS:
            table[_LISTS[name]] = str(value).split(",")
        elif name in _TEXTS:
            table[name] = str(value)
        elif name in _WHOLE and str(value).isdigit():
            table[name] = int(value)
        elif name in _PRICES:
            table[_PRICES[name]] = list(value)
        elif name == "price_date":
            table[name] = datetime.date.fromisoformat(str(value))
        elif name == "discount":
            table[name] = str(value)
        else:
            return None
    found = structure(table, Scenario)
    return None if isinstance(found, list) else found


def _with_columns(report: Any) -> Any:  # noqa: ANN401 - a report
    from trnbench.facts.records import replace

    return replace(report, columns=COLUMNS, people=None)
