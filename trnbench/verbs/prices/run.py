"""Prices: what was paid for a machine when, and rates read anew into the user's own lists."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from trnbench.errors import DataFileError, EnvironmentFault, InputError
from trnbench.evidence.claims.claim import CostCheck, PriceCheck, instances_of, load_claims
from trnbench.facts.catalog.document import load
from trnbench.facts.catalog.provenance import Source
from trnbench.facts.catalog.search import Catalog, open_catalog, user_folder, with_user_folder
from trnbench.facts.catalog.text_file import read_text
from trnbench.facts.catalog.toml_file import MAX_BYTES
from trnbench.facts.catalog.whole_file import locked, make_folder, write_whole
from trnbench.facts.hardware.library import load_instance
from trnbench.facts.prices.feed.aws_answers import CapacityOffer
from trnbench.facts.prices.feed.aws_calls import (
    AccountLimit,
    AwsQuestion,
    Connect,
    HeldCapacity,
    connect,
    read_aws,
)
from trnbench.facts.prices.feed.files import read_price_file
from trnbench.facts.prices.feed.ledger import ComparedRate, appended, compared, price_file_head
from trnbench.facts.prices.feed.reading import FoundRate, RatesRead
from trnbench.facts.prices.price import Price, PriceList, find_prices, load_prices
from trnbench.facts.prices.purchase import load_purchase_rules
from trnbench.facts.records import Record, replace
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.claims.run import claims
from trnbench.verbs.prices.question import PriceHistoryQuestion


class PriceHistory(Record, eq=False):
    """All rates of an instance type, oldest first; the day, id and verdict of claims on them."""

    prices: PriceList
    rows: tuple[Price, ...]
    verdicts: tuple[tuple[datetime.date, str, str], ...]


class Refresh(Record, eq=False):
    """Rates that a refresh read, and the new files: the old text with rows at its end.

    `readings` are all that was read; `failures` are services that did not answer.
    """

    readings: tuple[RatesRead, ...]
    rates: tuple[ComparedRate, ...]
    files: tuple[tuple[Path, str], ...]
    warnings: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    ignored: int = 0
    offers: tuple[CapacityOffer, ...] = ()
    limits: tuple[AccountLimit, ...] = ()
    held: tuple[HeldCapacity, ...] = ()


AWS = "aws"


def run(catalog: Catalog, question: PriceHistoryQuestion) -> PriceHistory:
    """Return the dated rates of an instance type, and the verdicts of claims about it by day.

    >>> from trnbench.verbs.prices.run import price_history
    >>> history = price_history("trn1.32xlarge")
    >>> history.rows[0].region
    'us-east-1'
    """
    name, since = question.instance, question.since
    prices = load_prices(catalog, name)
    rows = [row for row in prices.price if since is None or row.date_to >= since]
    rows.sort(key=lambda row: (row.applies_from, row.option, row.region, row.terms or ""))
    about = [
        statement.id
        for listed in catalog.entries("claims")
        for statement in load_claims(listed.path).statement
        # Only these move with rates; a search for the speed of others would be thrown away.
        if isinstance(statement.check, PriceCheck | CostCheck)
        and name in instances_of(statement.check)
    ]
    claimed = claims(about, catalog=catalog) if about else ()
    verdicts = [
        (move.price_date, claim.id, move.verdict)
        for claim in claimed
        for move in claim.finding.moves
        if move.region is None
    ]
    verdicts.sort(key=lambda verdict: verdict[:2])
    return PriceHistory(prices=prices, rows=tuple(rows), verdicts=tuple(verdicts))


price_history = verb_of("price_history", PriceHistoryQuestion, run)


def refresh_prices(
    source: str,
    *,
    regions: Sequence[str] = (),
    on: Sequence[str] = (),
    day: datetime.date | None = None,
    catalog: Catalog | None = None,
    clients: Connect | None = None,
) -> Refresh:
    """Return the prices of `source` (a file, or "aws"), and the user's lists with these added.

    Nothing is written. `day`: when a file was made that does not say; its own date if not given.
    `regions` and instance types `on` are those AWS is asked for, the usual and all unless given.
    """
    catalog = catalog or open_catalog()
    if source == AWS:
        return _from_aws(catalog, regions, on, clients or connect())
    if regions or on:
        raise InputError("--region and --on are for --source aws; a file is read as a whole")
    path = Path(source)
    made = datetime.datetime.now(tz=datetime.UTC).date()
    if day is not None:
        made = day
    elif path.is_file():
        made = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).date()
    return _joined(catalog, [read_price_file(path, _names(catalog), made)], source)


def write_rates(refresh: Refresh, source: str, *, catalog: Catalog | None = None) -> Refresh:
    """Add what a refresh read to the user's lists as they are now, and return what was written.

    Others may have added rates since it was read: so lists are read, changed and written under a
    lock beside them.
    """
    catalog = catalog or open_catalog()
    with locked(user_folder() / ".prices.lock"):
        now = _joined(with_user_folder(catalog), refresh.readings, source)
        for path, text in now.files:
            make_folder(path.parent)
            write_whole(path, text.encode())
    return replace(refresh, rates=now.rates, files=now.files)


def _from_aws(
    catalog: Catalog, regions: Sequence[str], on: Sequence[str], clients: Connect
) -> Refresh:
    rules = load_purchase_rules(catalog, AWS)
    names = on or [entry.name for entry in catalog.entries("instances")]
    instances = [load_instance(catalog, name) for name in names]
    now = datetime.datetime.now(tz=datetime.UTC)
    question = AwsQuestion(
        instances=[instance for instance in instances if instance.provider.casefold() == AWS],
        regions=tuple(regions) or (rules.regions if rules else ()),
        quotas=rules.quota if rules else (),
        known=_names(catalog).get,
        now=now,
    )
    if not question.instances:
        raise InputError(f"none of {', '.join(names)} is sold by AWS")
    reading = read_aws(question, clients)
    return replace(
        _joined(catalog, reading.readings, AWS),
        failures=tuple(reading.failures),
        offers=tuple(reading.offers),
        limits=tuple(reading.limits),
        held=tuple(reading.held),
    )


def _names(catalog: Catalog) -> Mapping[str, str]:
    return {name: users[0].name for name, users in catalog.users("instances").items()}


def _joined(catalog: Catalog, readings: Sequence[RatesRead], source: str) -> Refresh:
    """Return rates beside those known, and the user's files with those that are not there yet."""
    by_instance: dict[str, list[ComparedRate]] = {}
    for reading in readings:
        mine: dict[str, list[FoundRate]] = {}
        for rate in reading.rates:
            mine.setdefault(rate.instance, []).append(rate)
        for name, rates in mine.items():
            newest = max(rate.day for rate in rates)
            where = Source(title=reading.title, date=newest, url=reading.url)
            listed = find_prices(catalog, name)
            rates_of = compared(rates, listed, where, reading.kind)
            by_instance.setdefault(name, []).extend(rates_of)
    files = []
    for name, rows in sorted(by_instance.items()):
        new = [row for row in rows if row.change != "known"]
        if new:
            path, text = _with_rows(catalog, name, new)
            _read_back(path, text, source)
            files.append((path, text))
    return Refresh(
        readings=tuple(readings),
        rates=tuple(row for _, rows in sorted(by_instance.items()) for row in rows),
        files=tuple(files),
        warnings=tuple(warning for reading in readings for warning in reading.warnings),
        ignored=sum(reading.ignored for reading in readings),
    )


def _with_rows(catalog: Catalog, name: str, rows: Sequence[ComparedRate]) -> tuple[Path, str]:
    """Return the user's price list of an instance type and its text with rows at the end."""
    folder = user_folder()
    places = (folder / "prices" / f"{name}.toml", folder / "specs" / "prices" / f"{name}.toml")
    path = next((place for place in places if place.exists()), places[0])
    if path.exists():
        text = read_text(path, what="TOML", max_bytes=MAX_BYTES)
        sources = load(path, PriceList).provenance.sources
        if "\nprice = [" in text or text.startswith("price = ["):
            raise InputError(
                f"{path} is a list of your own, written as `price = [...]`, to which nothing can "
                "be added at its end",
                hint="write its rows as [[price]] tables, or move it away",
            )
    else:
        text, sources = price_file_head(name, load_instance(catalog, name).title), {}
    return path, appended(text, sources, rows)


def _read_back(path: Path, text: str, source: str) -> None:
    """Refuse a text that would not be read again as the price list in `path`."""
    try:
        with TemporaryDirectory(prefix="trnbench-") as folder:
            draft = Path(folder) / path.name
            draft.write_text(text, encoding="utf-8")
            load(draft, PriceList)
    except DataFileError as error:
        raise InputError(
            f"{source}: makes a list that {path.name} cannot be: {error.faults[0]}",
            hint="nothing is written; correct the source",
        ) from error
    except OSError as error:
        raise EnvironmentFault(f"cannot try a price list: {error.strerror}") from error
