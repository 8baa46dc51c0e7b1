"""A buyer's terms: day, region, purchase options, discount, and own prices."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar, get_args

from trnbench.errors import InputError, UnitError, UnknownNameError
from trnbench.facts import parsing
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import PurchaseOption
from trnbench.facts.prices.price import ANY, load_prices
from trnbench.facts.records import Record, field, replace
from trnbench.facts.units import Dimension, parse
from trnbench.money import Commitment

PURCHASE_OPTIONS: tuple[PurchaseOption, ...] = get_args(PurchaseOption)
FOR_A_TERM: tuple[PurchaseOption, ...] = ("reserved", "savings-plan")
COMMITTED: tuple[PurchaseOption, ...] = ("on-demand", "capacity-block", "reserved")
"""Options that cannot be interrupted once bought; of equal cost the earlier is taken."""

MOST = 1e6
"""Largest USD per machine-hour, and largest multiple of another price: more is a typing error."""

V = TypeVar("V")

_OWN = re.compile(r"(?P<name>[^=\s]+)\s*=\s*(?P<usd>[^=]+)")
_ASSUMED = re.compile(r"(?P<name>[^=\s]+)\s*=\s*(?P<times>[\d.,]+)\s*[xX*]\s*(?P<of>[^=\s]+)")


MOST_TIMES = 10.0
"""Largest multiple of a published price that is asked for as a change of it."""


class Multiple(Record):
    """A price assumed to be `times` that of another instance."""

    times: float
    of: str


class Kept(Record):
    """The last `count` checkpoints, kept in one of the seller's stores."""

    count: int
    store: str


class PriceTerms(Record):
    """Terms on which a buyer asks for prices; instances by their own names, not aliases."""

    on: datetime.date
    region: str | None = None
    """None: the cheapest of those the provider's rules name."""
    options: tuple[PurchaseOption, ...] | None = None
    """None: every option that cannot be interrupted, or the user's own rate."""
    discount: float = 0.0
    """Share off published and assumed rates."""
    own: Mapping[str, float] = field(default_factory=dict)
    """Instance -> USD per instance-hour."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """Instance -> multiple of its own published prices, to see what would be if they moved."""
    assumed: Mapping[str, Multiple] = field(default_factory=dict)
    """Instance -> multiple of another instance's price."""
    term_years: int | None = None
    """Years of reserved instances and savings plans; None accepts any length."""
    commitment: Commitment = "whole"
    kept: Kept | None = None
    """Checkpoints whose storage is charged; None leaves storage off the bill."""
    max_age_s: float | None = None
    """Rates read longer before the day get a warning."""
    once: Mapping[str, float] = field(default_factory=dict)
    """Instance -> USD that are paid once beside its bill, as for moving to it."""
    single_block: bool = False
    """True buys Capacity Blocks only where a single one holds the cluster for the whole run."""

    def __post_init__(self) -> None:
        if not 0 <= self.discount < 1:
            raise InputError(f"discount {self.discount:g} must be from 0 to below 1")


def load_price_terms(
    catalog: Catalog,
    *,
    on: datetime.date,
    region: str | None = None,
    options: Sequence[str] = (),
    discount: float = 0.0,
    prices: Sequence[str] = (),
    assumptions: Sequence[str] = (),
    term_years: int | None = None,
    commitment: Commitment = "whole",
    kept: str | None = None,
    max_age_s: float | None = None,
    once: Mapping[str, float] | None = None,
    single_block: bool = False,
) -> PriceTerms:
    """A buyer's terms from texts ("NAME=USD", "NAME=4x OTHER", option names), checked."""
    moved = [change for change in map(parse_price_change, prices) if change is not None]
    stated = [text for text in prices if parse_price_change(text) is None]
    own, factors = _by_instance(catalog, map(parse_own_price, stated)), _by_instance(catalog, moved)
    if both := own.keys() & factors.keys():
        raise InputError(f"{min(both)} has both a price and a change of its price; give one")
    assumed = _by_instance(catalog, map(parse_assumption, assumptions))
    if both := own.keys() & assumed.keys():
        raise InputError(f"{min(both)} has both a price and an assumed price; give one")
    if region is not None:
        check_region(catalog, region)
    if twice := [text for text in options if options.count(text) > 1]:
        raise InputError(f"the purchase option {twice[0]} is named twice")
    return PriceTerms(
        on=on,
        region=region,
        options=tuple(parse_option(text) for text in options) or None,
        discount=discount,
        own=own,
        factors=factors,
        assumed={
            name: replace(multiple, of=_instance_name(catalog, multiple.of))
            for name, multiple in assumed.items()
        },
        term_years=term_years,
        commitment=commitment,
        kept=None if kept is None else parse_kept(kept),
        max_age_s=max_age_s,
        once=once or {},
        single_block=single_block,
    )


def _by_instance(catalog: Catalog, priced: Iterable[tuple[str, V]]) -> dict[str, V]:
    """Prices by the instances' own names; two for one instance are refused."""
    prices: dict[str, V] = {}
    for name, value in priced:
        instance = _instance_name(catalog, name)
        if instance in prices:
            raise InputError(f"{instance} is given two prices")
        prices[instance] = value
    return prices


def parse_own_price(text: str) -> tuple[str, float]:
    """(instance, USD per instance-hour) of "trn2-ultraserver=143.04"."""
    match = _OWN.fullmatch(text.strip())
    if match is None:
        raise InputError(f"price {text!r} is not NAME=USD, e.g. trn2-ultraserver=143.04")
    try:
        usd = parse(match["usd"], Dimension.USD_PER_HOUR, bare=True)
    except UnitError as error:
        raise InputError(f"price {text!r}: {error.message}") from None
    if not 0 < usd <= MOST:
        change = f"write {match['usd'].strip()}% for a change" if usd < 0 else None
        raise InputError(
            f"price {text!r} must be above 0 USD per hour, and {MOST:,.0f} at most", hint=change
        )
    return match["name"], usd


def parse_price_change(text: str) -> tuple[str, float] | None:
    """(instance, multiple of its published prices) of "trn2.48xlarge=-20%"; None of any other."""
    return parsing.changed_name(f"price {text!r}", text, MOST_TIMES)


def parse_assumption(text: str) -> tuple[str, Multiple]:
    """(instance, multiple of another's price) of "trn2-ultraserver=4x trn2.48xlarge"."""
    match = _ASSUMED.fullmatch(text.strip())
    example = "e.g. 'trn2-ultraserver=4x trn2.48xlarge'"
    if match is None:
        raise InputError(f"assumed price {text!r} is not NAME=TIMESx OTHER, {example}")
    try:
        times = parse(match["times"], Dimension.COUNT)
    except UnitError as error:
        raise InputError(f"assumed price {text!r}: {error.message}") from None
    if not 0 < times <= MOST:
        raise InputError(
            f"assumed price {text!r}: the multiple must be above 0, and {MOST:,.0f} at most"
        )
    if match["name"] == match["of"]:
        raise InputError(
            f"assumed price {text!r}: names one instance twice; --price NAME=-20% changes its own"
        )
    return match["name"], Multiple(times=times, of=match["of"])


def parse_kept(text: str) -> Kept:
    """Kept checkpoints of a text such as "3@s3-standard"."""
    count, separator, store = text.strip().partition("@")
    if not (separator and store and count.isdecimal() and count.isascii() and 0 < len(count) < 9):
        raise InputError(f"checkpoints {text!r} are not COUNT@STORE, e.g. 3@s3-standard")
    if int(count) < 1:
        raise InputError(f"checkpoints {text!r}: keep one or more")
    return Kept(count=int(count), store=store)


def parse_option(text: str) -> PurchaseOption:
    for option in PURCHASE_OPTIONS:
        if option == text:
            return option
    raise UnknownNameError("purchase option", text, PURCHASE_OPTIONS)


def check_region(catalog: Catalog, region: str) -> None:
    """Raise for a region in which no price list has a row."""
    known = [name for name, _ in regions(catalog)]
    if region not in known:
        unknown = UnknownNameError("region", region, known)
        unknown.hint = f"with prices: {', '.join(known)}"
        raise unknown


def regions(catalog: Catalog) -> list[tuple[str, int]]:
    """Regions in price lists with the number of instances priced there, by name."""
    instances: Counter[str] = Counter()
    for entry in catalog.entries("prices"):
        instances.update({row.region for row in load_prices(catalog, entry.name).price} - {ANY})
    return sorted(instances.items())


def _instance_name(catalog: Catalog, name: str) -> str:
    return catalog.find("instances", name).name
