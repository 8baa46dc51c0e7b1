"""What an instance can be bought for: one tariff for each purchase option, or why there is none.

A published rate is the newest not after the price date. Nothing is priced silently: without a
rate there is a reason and a way out, and a rate of the user's own is told from a published one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trnbench.catalog.provenance import Source
from trnbench.catalog.search import Catalog
from trnbench.errors import InputError, UnknownNameError
from trnbench.hardware.instance import Instance, PurchaseOption
from trnbench.hardware.library import load_instance
from trnbench.plan.price_terms import COMMITTED, FOR_A_TERM, Multiple, PriceTerms
from trnbench.prices.price import ANY, Price, PriceList, find_prices
from trnbench.prices.purchase import PurchaseRules, Storage, load_purchase_rules
from trnbench.units import significant

Origin = Literal["published", "own", "assumed"]

_SAME_PRICE = 1e-3
"""Sources round differently; prices closer than this are one price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """A rate at which an instance can be bought; USD per instance-hour before the discount.

    `low_list_usd_per_hour` and `high_list_usd_per_hour` differ from the rate where the row gives a
    range: of zones for spot, of what a second-hand rate replaced. `price` and `source` are the row
    and where it was read.
    """

    instance: str
    option: PurchaseOption
    region: str | None
    origin: Origin
    list_usd_per_hour: float
    low_list_usd_per_hour: float
    high_list_usd_per_hour: float
    discount: float
    price: Price | None = None
    source: Source | None = None
    notes: tuple[str, ...] = ()

    @property
    def usd_per_hour(self) -> float:
        """What an instance-hour costs after the discount."""
        return self.list_usd_per_hour * (1 - self.discount)

    @property
    def low_usd_per_hour(self) -> float:
        """What it costs at the lower end of its range."""
        return self.low_list_usd_per_hour * (1 - self.discount)

    @property
    def high_usd_per_hour(self) -> float:
        """What it costs at the upper end of its range."""
        return self.high_list_usd_per_hour * (1 - self.discount)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoTariff:
    """An option without a price, what is `known` of it (may be nothing), and the way out."""

    instance: str
    option: PurchaseOption
    known: str
    way_out: str

    @property
    def reason(self) -> str:
        """All of it in one line."""
        return _sentence(self.instance, (self,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """All that an instance can be bought for, in the order of preference at equal cost.

    `rules` are those of the seller; None where none are known and all is paid by the hour.
    `store` is where checkpoints are kept, None where that is not charged.
    """

    instance: Instance
    rules: PurchaseRules | None
    terms: PriceTerms
    tariffs: tuple[Tariff, ...]
    refused: tuple[NoTariff, ...]
    store: Storage | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why some options have no price, and the way out, in one line; nothing if all have."""
        return (_sentence(self.instance.name, self.refused),) if self.refused else ()


def load_offers(catalog: Catalog, instance: Instance, terms: PriceTerms) -> Offers:
    """Return the offers of an instance on these terms."""
    assumed = terms.assumed.get(instance.name)
    like = instance if assumed is None else load_instance(catalog, assumed.of)
    return offers_of(
        instance,
        terms,
        prices=find_prices(catalog, like.name),
        rules=load_purchase_rules(catalog, instance.provider),
        like=like,
    )


def offers_of(
    instance: Instance,
    terms: PriceTerms,
    *,
    prices: PriceList | None,
    rules: PurchaseRules | None,
    like: Instance | None = None,
) -> Offers:
    """Return the offers of an instance; `prices` are those of the instance `like`.

    `like` is another instance only where a multiple of its price is assumed.
    """
    sold_as = like or instance
    own = terms.own.get(instance.name)
    options = terms.options or (("quote",) if own is not None else COMMITTED)
    found: list[Tariff | NoTariff] = [
        _found(instance, sold_as, option, own, prices, rules, terms) for option in options
    ]
    return Offers(
        instance=instance,
        rules=rules,
        terms=terms,
        tariffs=tuple(tariff for tariff in found if isinstance(tariff, Tariff)),
        refused=tuple(refused for refused in found if isinstance(refused, NoTariff)),
        store=_store(instance, rules, terms),
    )


def _store(instance: Instance, rules: PurchaseRules | None, terms: PriceTerms) -> Storage | None:
    """Return the store that is asked for; refuse one that the seller is not known to have."""
    if terms.kept is None:
        return None
    if rules is None:
        raise InputError(f"no store for checkpoints is known of {instance.provider}")
    for store in rules.storage:
        if store.name == terms.kept.store:
            return store
    raise UnknownNameError("store", terms.kept.store, [store.name for store in rules.storage])


def _found(
    instance: Instance,
    like: Instance,
    option: PurchaseOption,
    own: float | None,
    prices: PriceList | None,
    rules: PurchaseRules | None,
    terms: PriceTerms,
) -> Tariff | NoTariff:
    found = (
        _listed(instance, like, option, prices, rules, terms)
        if own is None
        else _own_tariff(instance, option, own, terms)
    )
    if isinstance(found, NoTariff) or option not in FOR_A_TERM or terms.term_years is None:
        return found
    sold = rules.commitment.years if rules else ()
    stated = found.price.term_years if found.price else None
    if terms.term_years in sold and stated in (None, terms.term_years):
        return found
    years = (stated,) if terms.term_years in sold else sold
    return NoTariff(
        instance=instance.name,
        option=option,
        known=f"known for terms of {', '.join(map(str, years)) or 'no'} years, "
        f"not {terms.term_years}",
        way_out=_way_out(instance),
    )


def _own_tariff(
    instance: Instance, option: PurchaseOption, usd: float, terms: PriceTerms
) -> Tariff:
    notes = ["the user's own price"]
    if terms.discount:
        notes.append("taken as it is: the discount is off published prices only")
    if option == "quote":
        notes.append("paid by the second; name a purchase option to be billed by its rules")
    elif option not in instance.purchase:
        notes.append(f"{instance.name} is not known to be sold as {option}")
    return Tariff(
        instance=instance.name,
        option=option,
        region=terms.region,
        origin="own",
        list_usd_per_hour=usd,
        low_list_usd_per_hour=usd,
        high_list_usd_per_hour=usd,
        discount=0.0,
        notes=tuple(notes),
    )


def _listed(
    instance: Instance,
    like: Instance,
    option: PurchaseOption,
    prices: PriceList | None,
    rules: PurchaseRules | None,
    terms: PriceTerms,
) -> Tariff | NoTariff:
    rows = [
        row
        for region in _regions(option, prices, rules, terms)
        if prices is not None
        and (row := prices.price_at(region=region, option=option, on=terms.on)) is not None
        and row.usd_per_hour is not None
    ]
    if prices is None or not rows:
        return NoTariff(
            instance=instance.name,
            option=option,
            known=_known(like, option, prices, terms),
            way_out=_way_out(instance),
        )
    least = min(row.usd_per_hour or 0.0 for row in rows)
    row = next(row for row in rows if (row.usd_per_hour or 0.0) <= least * (1 + _SAME_PRICE))
    assumed = terms.assumed.get(instance.name)
    times = assumed.times if assumed else 1.0
    rate = row.usd_per_hour or 0.0
    return Tariff(
        instance=instance.name,
        option=option,
        region=row.region,
        origin="assumed" if assumed else "published",
        list_usd_per_hour=times * rate,
        low_list_usd_per_hour=times * (row.low_usd_per_hour or rate),
        high_list_usd_per_hour=times * (row.high_usd_per_hour or rate),
        discount=terms.discount,
        price=row,
        source=prices.source_of(row),
        notes=(
            *_row_notes(row, prices, terms, assumed),
            *_changed_since(row, like, rules, terms),
            *_cheaper(row, prices, rules, terms),
        ),
    )


def _regions(
    option: PurchaseOption, prices: PriceList | None, rules: PurchaseRules | None, terms: PriceTerms
) -> tuple[str, ...]:
    """Return the regions to look in: the one asked for, else the provider's, else any named."""
    if terms.region is not None:
        return (terms.region,)
    if prices is None:
        return ()
    known = _priced_regions(option, prices, terms)
    preferred = rules.regions if rules else ()
    return tuple(region for region in preferred if region in known) or known


def _cheaper(
    row: Price, prices: PriceList, rules: PurchaseRules | None, terms: PriceTerms
) -> tuple[str, ...]:
    """Return where it is cheaper than in the regions looked at, where nobody named one."""
    if terms.region is not None or rules is None:
        return ()
    rates = {
        other.usd_per_hour: region
        for region in reversed(_priced_regions(row.option, prices, terms))
        if (other := prices.price_at(region=region, option=row.option, on=terms.on)) is not None
        and other.usd_per_hour is not None
    }
    least = min(rates)
    if row.usd_per_hour is None or least >= row.usd_per_hour * (1 - _SAME_PRICE):
        return ()
    return (f"cheaper in {rates[least]}: {significant(least, 6)} USD/h",)


def _priced_regions(option: str, prices: PriceList, terms: PriceTerms) -> tuple[str, ...]:
    """Return the regions with a rate for an option on the day, by name."""
    named = {row.region for row in prices.price if row.option == option and _is_named(row)}
    return tuple(
        region
        for region in sorted(named)
        if (row := prices.price_at(region=region, option=option, on=terms.on)) is not None
        and row.usd_per_hour is not None
    )


def _is_named(row: Price) -> bool:
    """Tell whether the row's region is one, not words such as "most regions"."""
    return " " not in row.region and row.region != ANY


def _row_notes(
    row: Price, prices: PriceList, terms: PriceTerms, assumed: Multiple | None
) -> tuple[str, ...]:
    notes = []
    if assumed:
        notes.append(f"assumed: {assumed.times:g} x the price of {assumed.of}")
    if row.note:
        notes.append(row.note)
    if row.option == "reserved" and row.term_years is None:
        notes.append("the length of the term is not stated")
    unplaced = [
        other
        for other in prices.price
        if other.option == row.option
        and not _is_named(other)
        and not _same(other.usd_per_hour, row.usd_per_hour)
        and row.applies_from < other.applies_from <= terms.on
    ]
    notes += [
        f"a newer rate of {_usd(other)} USD/h is quoted on {other.date_to} for "
        f"{other.region!r} ({other.note or 'no remark'})"
        for other in unplaced
    ]
    return tuple(notes)


def _changed_since(
    row: Price, instance: Instance, rules: PurchaseRules | None, terms: PriceTerms
) -> tuple[str, ...]:
    """Return the announced changes of rates that the row was read before."""
    return tuple(
        f"read before the change of {change.on}: {change.words}"
        for change in (rules.change if rules else ())
        if row.date_to < change.on <= terms.on and change.concerns(instance.name, row.option)
    )


def _sentence(instance: str, refused: Sequence[NoTariff]) -> str:
    options = ", ".join(none.option for none in refused)
    known = [*dict.fromkeys(none.known for none in refused if none.known)]
    return "; ".join(
        [f"no published price of {instance} as {options}", *known, f"give {refused[0].way_out}"]
    )


def _way_out(instance: Instance) -> str:
    return f'--price {instance.name}=USD or --assume-price "{instance.name}=Nx OTHER"'


def _known(
    like: Instance, option: PurchaseOption, prices: PriceList | None, terms: PriceTerms
) -> str:
    """Return where or when there is a price, else why there is none."""
    elsewhere = _elsewhere(option, prices, terms)
    if elsewhere:
        return elsewhere
    if like.purchase and option not in like.purchase:
        return f"{like.name} is sold as {', '.join(like.purchase)}"
    return _why(option, prices, terms)


def _elsewhere(option: PurchaseOption, prices: PriceList | None, terms: PriceTerms) -> str:
    """Return where or when there is a price, if there is one."""
    rows = [
        row for row in (prices.price if prices else ()) if row.option == option and row.usd_per_hour
    ]
    there = {row.region: _usd(row) for row in rows if row.applies_from <= terms.on}
    if there:
        listed = [f"{region} ({usd} USD/h)" for region, usd in sorted(there.items())]
        return f"{option} on {terms.on} is published in {', '.join(listed)}"
    later = min((row.applies_from for row in rows), default=None)
    return f"the earliest price as {option} is of {later}" if later else ""


def _why(option: PurchaseOption, prices: PriceList | None, terms: PriceTerms) -> str:
    """Return the note of the last price row without a rate."""
    rows = [row for row in (prices.price if prices else ()) if row.option in (option, ANY)]
    silent = [row for row in rows if row.usd_per_hour is None and row.applies_from <= terms.on]
    return (silent[-1].note or "") if silent else ""


def _same(one: float | None, other: float | None) -> bool:
    """Return whether two rates are one; what is no rate is no other."""
    return one is None or other is None or abs(one - other) <= _SAME_PRICE * other


def _usd(row: Price) -> str:
    return significant(row.usd_per_hour or 0.0, 6)
