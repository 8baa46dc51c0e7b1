"""Price histories and refreshes as people and machines read them."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping

from trnbench.facts.prices.feed.aws_calls import POLICY_ACTIONS
from trnbench.facts.prices.feed.ledger import ComparedRate
from trnbench.facts.prices.price import Price
from trnbench.facts.records import asdict, replace
from trnbench.facts.units import Dimension, significant
from trnbench.show.charts.record import ChartAxis, PointChart, Series
from trnbench.show.charts.text import chart_text
from trnbench.show.report import Column, Report, columns, draw_rows, figure_or_key
from trnbench.show.row import Row, cells
from trnbench.show.text_table import Style
from trnbench.verbs.prices.run import PriceHistory, Refresh

MOST_SERIES = 8


def history_report(history: PriceHistory, inputs: Mapping[str, object]) -> Report:
    """Return the report of an instance type's rates: a row a rate, oldest first."""
    return Report(
        verb="prices-show",
        inputs=inputs,
        rows=tuple(_history_row(history, row) for row in history.rows),
        columns=(
            *columns("date_from", "date_to", "purchase", "region"),
            *columns("usd_per_hour", interval=True),
            *columns("zones", "terms", "source", spare=True),
        ),
        summary={
            "verdicts": [
                {"date": day.isoformat(), "claim": claim, "verdict": verdict}
                for day, claim, verdict in history.verdicts
            ]
        },
        people=lambda report, style: _draw_history(report, history, style),
    )


def _history_row(history: PriceHistory, row: Price) -> Row:
    whole = row.low_usd_per_hour is None or row.high_usd_per_hour is None
    ends = (row.usd_per_hour,) * 2 if whole else (row.low_usd_per_hour, row.high_usd_per_hour)
    return {
        "instance": history.prices.name,
        **cells(row, "purchase=option region terms usd_per_hour"),
        "low_usd_per_hour": ends[0],
        "high_usd_per_hour": ends[1],
        "zones": row.zones,
        "date_from": row.date_from.isoformat(),
        "date_to": row.date_to.isoformat(),
        "unchanged_since": row.unchanged_since and row.unchanged_since.isoformat(),
        **cells(history.prices.source_of(row), "source=title"),
        "note": row.note,
        "verdicts": {claim: said for day, claim, said in history.verdicts if day <= row.date_to},
    }


def _draw_history(report: Report, history: PriceHistory, style: Style) -> str:
    blocks = [style.strong(f"{history.prices.name}: rates as they were read, USD per hour")]
    if not history.rows:
        return f"{blocks[0]}\nnone since then"
    blocks.append(draw_rows(report, style))
    drawn = _series(history.rows)
    if any(len(line.points) > 1 for line in drawn):
        blocks.append(chart_text(_rates(drawn), style))
    if history.verdicts:
        lines = [
            f"{day}: " + ", ".join(f"{claim} {verdict}" for claim, verdict in prices)
            for day, prices in _by_day(history)
        ]
        heading = style.strong("claims that turn on its price, from the day on")
        blocks.append("\n".join([heading, *(style.wrap(line, "  ") for line in lines)]))
    return "\n\n".join(blocks)


def _by_day(history: PriceHistory) -> Iterable[tuple[datetime.date, list[tuple[str, str]]]]:
    """Return the days on which verdicts changed, with those that did."""
    last: dict[str, str] = {}
    days: dict[datetime.date, list[tuple[str, str]]] = {}
    for day, claim, verdict in history.verdicts:
        if last.get(claim) != verdict:
            days.setdefault(day, []).append((claim, verdict))
        last[claim] = verdict
    return days.items()


def _rates(series: tuple[Series, ...]) -> PointChart:
    """Rates over the days on which they were read."""
    longest = sorted(series, key=lambda line: -len(line.points))
    left = len(longest) - MOST_SERIES
    return PointChart(
        title="rates over time",
        caption="by purchase option, terms and region",
        x=ChartAxis(title="day on which it was read", kind="date"),
        y=ChartAxis(title="USD/h", kind="log", dimension=Dimension.USD_PER_HOUR),
        series=tuple(longest[:MOST_SERIES]),
        missing=f"{left} more in the table" if left > 0 else "",
    )


def _series(rows: Iterable[Price]) -> tuple[Series, ...]:
    """Return rates over time by option and terms; regions that always cost the same are one."""
    days: dict[tuple[str, str, str], dict[float, float]] = {}
    for row in rows:
        if row.usd_per_hour is not None:
            points = days.setdefault((row.option, row.terms or "", row.region), {})
            points[float(row.applies_from.toordinal())] = row.usd_per_hour
            points[float(row.date_to.toordinal())] = row.usd_per_hour
    alike: dict[tuple[str, str, tuple[tuple[float, float], ...]], list[str]] = {}
    for (option, terms, region), points in days.items():
        alike.setdefault((option, terms, tuple(sorted(points.items()))), []).append(region)
    return tuple(
        Series(
            label=f"{option}{f' ({terms})' if terms else ''}, "
            + (regions[0] if len(regions) == 1 else f"{regions[0]} and {len(regions) - 1} more"),
            points=points,
            joined=True,
        )
        for (option, terms, points), regions in alike.items()
    )


def policy_report() -> Report:
    """Return the actions that an account has to allow, a row each; people read the document."""
    rows = tuple(
        {"service": service, "action": action}
        for service, actions in POLICY_ACTIONS.items()
        for action in sorted(actions)
    )
    shown = tuple(Column(figure=figure_or_key(key)) for key in ("service", "action"))
    return Report(verb="prices-policy", inputs={}, rows=rows, columns=shown)


def refresh_report(refresh: Refresh, inputs: Mapping[str, object], *, dry_run: bool) -> Report:
    """Return the report of a refresh: a row a rate, beside the newest one known before."""
    counts = Counter(rate.change for rate in refresh.rates)
    return Report(
        verb="prices-refresh",
        inputs=inputs,
        rows=tuple(_refresh_row(rate) for rate in refresh.rates),
        columns=(
            *columns("instance", "region", "purchase"),
            *columns("before_usd_per_hour", "usd_per_hour", "change", "date_from"),
            *columns("terms", "zones", "source", spare=True),
        ),
        summary={
            "dry_run": dry_run,
            "written": 0 if dry_run else len(refresh.rates) - counts["known"],
            "counts": dict(sorted(counts.items())),
            "files": [str(path) for path, _ in refresh.files],
            "ignored": refresh.ignored,
            "warnings": refresh.warnings,
            "failures": refresh.failures,
            "offers": [asdict(offer) for offer in refresh.offers],
            "quotas": [asdict(limit) for limit in refresh.limits],
            "reservations": [asdict(held) for held in refresh.held],
        },
        people=lambda report, style: _draw_refresh(report, refresh, dry_run, style),
    )


def _refresh_row(rate: ComparedRate) -> Row:
    return {
        **cells(rate.rate, "instance region purchase=option terms usd_per_hour low_usd_per_hour"),
        **cells(rate.rate, "high_usd_per_hour zones"),
        **cells(rate, "before_usd_per_hour=before.usd_per_hour change"),
        "date_from": rate.rate.day.isoformat(),
        **cells(rate, "source=source.title note=rate.note"),
    }


def _draw_refresh(report: Report, refresh: Refresh, dry_run: bool, style: Style) -> str:
    counts = Counter(rate.change for rate in refresh.rates)
    many = len(refresh.rates)
    changes = ", ".join(f"{counts[change]:,} {change}" for change in sorted(counts)) or "none"
    blocks = [style.strong(f"{many:,} rate{'s' * (many != 1)} read: {changes}")]
    shown = tuple(row for row in report.rows if row["change"] in ("new", "changed", "older"))
    if shown:
        blocks.append(draw_rows(replace(report, rows=shown), style))
    lines = [f"left out: {refresh.ignored:,} of other machines or systems"] * bool(refresh.ignored)
    lines += [style.wrap(f"warning: {warning}", "  ") for warning in refresh.warnings]
    lines += [style.wrap(f"not answered: {failure}", "  ") for failure in refresh.failures]
    lines += [
        f"{offer.kind}: {offer.size} x {offer.instance} in {offer.zone} for {offer.days:g} days "
        f"from {offer.starts_at[:10]}, {significant(offer.usd, 6)} USD"
        for offer in refresh.offers
    ]
    lines += [
        f"quota in {limit.region}: {limit.vcpus:,.0f} vCPU of {limit.name!r} ({limit.code})"
        for limit in refresh.limits
    ]
    lines += [
        f"reserved: {held.nodes} x {held.instance} in {held.region}, {held.free} free"
        for held in refresh.held
    ]
    verb = "would get" if dry_run else "got"
    lines += [f"{path} {verb} the rates not there yet" for path, _ in refresh.files]
    return "\n\n".join([*blocks, *(["\n".join(lines)] if lines else [])])
