"""Answers without money: no price, discount or bill, and no ratio that tells one.

Cells of money are known by their keys; texts must not repeat what stood in them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trnbench.facts.records import replace
from trnbench.show.charts.record import tells_money
from trnbench.show.report import Report
from trnbench.show.row import Row

REDACTED = "redacted"
OWN_MONEY = ("price", "assume_price", "discount", "budget", "migration_cost")
"""Options in which a user tells what only they pay."""
OWN_INPUTS = (
    *("prices", "assumed_prices", "discount", "budget_usd", "month_budgets_usd", "blocks_usd"),
    "migration_cost",
)
"""Inputs that tell it, whether options or a file said so."""
_MONEY_KEY = re.compile(
    r"usd|cost|discount|budget|bill|prices\b|assumed_prices|storage|break_even|sensitivity|cheapest"
)
_SIZES = ("sequence", "global_batch")
_AMOUNT = r"\d[\d.,]*\d(?:\s?[KMBT]\b)?|\d(?:\s?[KMBT]\b)?"
_MONEY_TEXT = re.compile(
    rf"(?:USD\s?|\$)(?:{_AMOUNT})(?:\s?\([\d.,]+-[\d.,]+\))?|(?:{_AMOUNT})\s?USD\b"
)
_SHARE_TEXT = re.compile(r">?\d[\d.,]*\s?%")
_NUMBER = re.compile(r"(?<![\w.,-])(\d[\d,]*)(\.\d+)?\s?(%|[KMBT]\b)?(?![\w-]|\.\w)")
_FACTORS = {"%": 1e-2, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_TELLING_DIGITS = 3
"""A number of fewer digits is likely to stand for something else, unless it is a share."""
_OWN_OPTION = re.compile(
    r"(--(?:price|assume-price|discount|budget|migration-cost))([= ])('[^']*'|\S+)"
)


def tells_own_money(options: Mapping[str, Any], inputs: Mapping[str, Any]) -> bool:
    return any(options.get(name) for name in OWN_MONEY) or any(
        inputs.get(name) for name in OWN_INPUTS
    )


def without_own_options(command: str) -> str:
    return _OWN_OPTION.sub(rf"\1\2{REDACTED}", command)


def redacted_report(report: Report) -> Report:
    """Return a report that tells no money; columns of it are left out."""
    # An amount that rounds to a batch or a length is not told by a text that names these.
    sizes = {row[name] for row in report.rows for name in _SIZES if name in row}
    amounts = money_told(report.inputs, *report.rows, report.summary)
    told = [amount for amount in amounts if round(amount) not in sizes]
    return replace(
        report,
        inputs=redacted_cells(report.inputs, told),
        rows=tuple(redacted_cells(row, told) for row in report.rows),
        columns=tuple(one for one in report.columns if not _MONEY_KEY.search(one.key)),
        summary=redacted_cells(report.summary, told),
        notes=tuple(without_money(note, told) for note in report.notes),
        charts=tuple(
            one for one in report.charts if not (tells_money(one) or _MONEY_KEY.search(one.title))
        ),
        people=None,
    )


def money_told(*cells: Mapping[str, Any]) -> Sequence[float]:
    """Return the numbers that cells of money hold, ascending; 0 and 1 tell nothing."""
    found = {number for one in cells for number in _numbers(one, money=False)}
    return sorted(found - {0.0, 1.0})


def redacted_cells(cells: Mapping[str, Any], told: Sequence[float] = ()) -> Row:
    """Return cells of which those of money are empty and texts name none."""
    return {
        key: None if _MONEY_KEY.search(key) else _redacted(value, told)
        for key, value in cells.items()
    }


def without_money(text: str, told: Sequence[float] = ()) -> str:
    """Return a text without amounts, and without the numbers `told` by cells of money.

    Where it told an amount, shares that follow from it go too.
    """
    shown = _MONEY_TEXT.sub(f"USD {REDACTED}", text)
    if shown != text:
        shown = _SHARE_TEXT.sub(f"{REDACTED} %", shown)
    return _NUMBER.sub(lambda found: _unless_told(found, told), shown) if told else shown


def _unless_told(found: re.Match[str], told: Sequence[float]) -> str:
    """Return a number as it was written, unless a cell of money rounds to it."""
    whole, decimals, unit = found[1].replace(",", ""), found[2] or "", found[3]
    if unit != "%" and len((whole + decimals[1:]).strip("0")) < _TELLING_DIGITS:
        return found[0]
    factor = _FACTORS.get(unit, 1.0)
    value, half = float(whole + decimals) * factor, 0.51 * factor / 10 ** len(decimals[1:])
    nearest = bisect_left(told, value - half)
    if nearest == len(told) or told[nearest] > value + half:
        return found[0]
    return f"{REDACTED} %" if unit == "%" else REDACTED


def _numbers(value: Any, *, money: bool) -> Iterator[float]:  # noqa: ANN401 - plain data
    match value:
        case bool() | None:
            return
        case int() | float() if money:
            yield float(value)
        case Mapping():
            for key, item in value.items():
                yield from _numbers(item, money=money or bool(_MONEY_KEY.search(str(key))))
        case list() | tuple():
            for item in value:
                yield from _numbers(item, money=money)
        case _:
            return


def _redacted(value: Any, told: Sequence[float]) -> Any:  # noqa: ANN401 - plain data of any shape
    match value:
        case str():
            return without_money(without_own_options(value), told)
        case Mapping():
            return redacted_cells(value, told)
        case list() | tuple():
            return [_redacted(item, told) for item in value]
        case _:
            return value
