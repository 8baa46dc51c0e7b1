"""Offers of an instance: one tariff for each purchase option, or the reason why there is none.

A published rate is the newest not after the price date. Nothing is priced silently: a missing rate
comes with a reason and a remedy, and own rates are marked as such.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Literal

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.catalog.provenance import Source
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Instance, PurchaseOption
from trnbench.facts.hardware.library import load_instance
from trnbench.facts.prices.price import ANY, Price, PriceList, find_prices
from trnbench.facts.prices.purchase import PurchaseRules, Storage, load_purchase_rules
from trnbench.facts.records import Record
from trnbench.facts.units import DAY_S, significant
from trnbench.money.price_terms import COMMITTED, FOR_A_TERM, PriceTerms

Origin = Literal["published", "own", "assumed"]

QUOTE: PurchaseOption = "quote"
"""A price of the user's own, given with the question or in a file."""

_SAME_PRICE = 1e-3
"""Relative difference below which prices count as equal, as sources round differently."""


class Tariff(Record):
    """A rate at which an instance can be bought; USD per instance-hour before the discount."""

    instance: str
    option: PurchaseOption
    region: str | None
    origin: Origin
    list_usd_per_hour: float
    low_list_usd_per_hour: float
    """Lower end where the row gives a range: of zones for spot, of sources for second-hand
    rates."""
    high_list_usd_per_hour: float
    discount: float
    price: Price | None = None
    """Row of the price list."""
    source: Source | None = None
    """Where the row was read."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Says that the row was read too long ago."""

    @property
    def price_to(self) -> datetime.date | None:
        return self.price.date_to if self.price else None

    @property
    def usd_per_hour(self) -> float:
        return self.list_usd_per_hour * (1 - self.discount)

    @property
    def low_usd_per_hour(self) -> float:
        return self.low_list_usd_per_hour * (1 - self.discount)

    @property
    def high_usd_per_hour(self) -> float:
        return self.high_list_usd_per_hour * (1 - self.discount)


class NoTariff(Record):
    """An option without a price."""

    instance: str
    option: PurchaseOption
    known: str
    """Knowledge about the option's price, as text; may be empty."""


class Offers(Record):
    """All offers for an instance, in the order of preference at equal cost."""

    instance: Instance
    rules: PurchaseRules | None
    """Rules of the seller; None where they are unknown and all is paid by the hour."""
    terms: PriceTerms
    tariffs: tuple[Tariff, ...]
    refused: tuple[NoTariff, ...]
    store: Storage | None = None
    """Store of kept checkpoints; None where storage is not charged."""

    @property
    def once_usd(self) -> float:
        """USD paid once beside the bill."""
        return self.terms.once.get(self.instance.name, 0.0)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why some options have no price, and the remedy, in one line; empty if all have one."""
        return (_sentence(self.instance.name, self.refused),) if self.refused else ()


def load_offers(catalog: Catalog, instance: Instance, terms: PriceTerms) -> Offers:
    """Offers of an instance on these terms."""
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
    """Offers of an instance; `prices` are those of the instance `like`.

    `like` is another instance only where a multiple of its price is assumed.
    """
    buyer = _Buyer(
        instance=instance, like=like or instance, prices=prices, rules=rules, terms=terms
    )
    quoted = instance.name in terms.own or any(row.option == QUOTE for row in buyer.rows)
    options = terms.options or ((QUOTE,) if quoted else COMMITTED)
    tariffs = [buyer.tariff(option) for option in options]
    return Offers(
        instance=instance,
        rules=rules,
        terms=terms,
        tariffs=tuple(tariff for tariff in tariffs if isinstance(tariff, Tariff)),
        refused=tuple(refused for refused in tariffs if isinstance(refused, NoTariff)),
        store=_store(instance, rules, terms),
    )


def _store(instance: Instance, rules: PurchaseRules | None, terms: PriceTerms) -> Storage | None:
    """The asked-for store; an unknown one is refused."""
    if terms.kept is None:
        return None
    if rules is None:
        raise InputError(f"no store for checkpoints is known of {instance.provider}")
    for store in rules.storage:
        if store.name == terms.kept.store:
            return store
    raise UnknownNameError("store", terms.kept.store, [store.name for store in rules.storage])


class _Buyer(Record, eq=False):
    """Buyer's view of one instance; `prices` are of the instance `like`."""

    instance: Instance
    like: Instance
    prices: PriceList | None
    rules: PurchaseRules | None
    terms: PriceTerms

    @property
    def rows(self) -> tuple[Price, ...]:
        return self.prices.price if self.prices else ()

    def tariff(self, option: PurchaseOption) -> Tariff | NoTariff:
        """The rate under an option, for the asked-for term, or why there is none."""
        usd, wanted = self.terms.own.get(self.instance.name), self.terms.term_years
        tariff = self._listed(option) if usd is None else self._own(option, usd)
        if isinstance(tariff, NoTariff) or option not in FOR_A_TERM or wanted is None:
            return tariff
        sold = self.rules.commitment.years if self.rules else ()
        stated = tariff.price.term_years if tariff.price else None
        if wanted in sold and stated in (None, wanted):
            return tariff
        years = ", ".join(map(str, (stated,) if wanted in sold else sold)) or "no"
        known = f"known for terms of {years} years, not {wanted}"
        return NoTariff(instance=self.instance.name, option=option, known=known)

    def _own(self, option: PurchaseOption, usd: float) -> Tariff:
        notes = ["own price"]
        if self.terms.discount:
            notes.append("no discount: that is off published prices only")
        if option == QUOTE:
            notes.append("paid by the second; name a purchase option to be billed by its rules")
        elif option not in self.instance.purchase:
            notes.append(f"{self.instance.name} is not known to be sold as {option}")
        return Tariff(
            instance=self.instance.name,
            option=option,
            region=self.terms.region,
            origin="own",
            list_usd_per_hour=usd,
            low_list_usd_per_hour=usd,
            high_list_usd_per_hour=usd,
            discount=0.0,
            notes=tuple(notes),
        )

    def _listed(self, option: PurchaseOption) -> Tariff | NoTariff:
        rows = [row for region in self._regions(option) if (row := self._row(region, option))]
        if self.prices is None or not rows:
            return NoTariff(instance=self.instance.name, option=option, known=self._known(option))
        least = min(map(_rate, rows))
        row = next(row for row in rows if _rate(row) <= least * (1 + _SAME_PRICE))
        assumed = self.terms.assumed.get(self.instance.name)
        factor = self.terms.factors.get(self.instance.name)
        times, rate = (assumed.times if assumed else 1.0) * (factor or 1.0), _rate(row)
        moved = (f"what if: {100 * (factor - 1):+g} %",) if factor else ()
        return Tariff(
            instance=self.instance.name,
            option=option,
            region=row.region,
            origin="assumed" if assumed or factor else "own" if option == QUOTE else "published",
            list_usd_per_hour=times * rate,
            low_list_usd_per_hour=times * (row.low_usd_per_hour or rate),
            high_list_usd_per_hour=times * (row.high_usd_per_hour or rate),
            discount=0.0 if option == QUOTE else self.terms.discount,
            price=row,
            source=self.prices.source_of(row),
            notes=(*moved, *self._notes(row), *self._changed_since(row), *self._cheaper(row)),
            warnings=self._too_old(row),
        )

    def _row(self, region: str, option: str) -> Price | None:
        """The valid row of a region and option on these terms, if it has a rate."""
        if self.prices is None:
            return None
        on, years = self.terms.on, self.terms.term_years
        row = self.prices.price_at(region=region, option=option, on=on, term_years=years)
        return None if row is None or row.usd_per_hour is None else row

    def _regions(self, option: PurchaseOption) -> tuple[str, ...]:
        """Regions to search: the asked-for one, else the provider's, else all that have a rate."""
        if self.terms.region is not None:
            return (self.terms.region,)
        known = self._priced_regions(option)
        preferred = self.rules.regions if self.rules else ()
        return tuple(region for region in preferred if region in known) or known or (ANY,)

    def _priced_regions(self, option: str) -> tuple[str, ...]:
        named = {row.region for row in self.rows if row.option == option and _is_named(row)}
        return tuple(region for region in sorted(named) if self._row(region, option))

    def _cheaper(self, row: Price) -> tuple[str, ...]:
        """Note on a cheaper region outside those searched, unless the user named one."""
        if self.terms.region is not None or self.rules is None:
            return ()
        rates = {
            _rate(other): region
            for region in reversed(self._priced_regions(row.option))
            if (other := self._row(region, row.option))
        }
        least = min(rates)
        if least >= _rate(row) * (1 - _SAME_PRICE):
            return ()
        return (f"cheaper in {rates[least]}: {significant(least, 6)} USD/h",)

    def _notes(self, row: Price) -> tuple[str, ...]:
        notes = []
        if assumed := self.terms.assumed.get(self.instance.name):
            notes.append(f"assumed: {assumed.times:g} x the price of {assumed.of}")
        if row.note:
            notes.append(row.note)
        if row.option == "reserved" and row.term_years is None:
            notes.append("the length of the term is not stated")
        notes += [
            f"a newer rate of {_usd(other)} USD/h is quoted on {other.date_to} for "
            f"{other.region!r} ({other.note or 'no remark'})"
            for other in self.rows
            if other.option == row.option
            and not _is_named(other)
            and not _same(other.usd_per_hour, row.usd_per_hour)
            and row.applies_from < other.applies_from <= self.terms.on
        ]
        return tuple(notes)

    def _changed_since(self, row: Price) -> tuple[str, ...]:
        """Announced changes of rates after the day on which the row was read."""
        return tuple(
            f"read before the change of {change.on}: {change.words}"
            for change in (self.rules.change if self.rules else ())
            if row.date_to < change.on <= self.terms.on
            and row.option in change.options
            and self.like.name.startswith(change.families)
        )

    def _known(self, option: PurchaseOption) -> str:
        """Places or days with a price, else the reason why there is none."""
        rows = [row for row in self.rows if row.option == option and row.usd_per_hour]
        there = {row.region: _usd(row) for row in rows if row.applies_from <= self.terms.on}
        if there:
            listed = ", ".join(f"{region} ({usd} USD/h)" for region, usd in sorted(there.items()))
            return f"{option} on {self.terms.on} is published in {listed}"
        if rows:
            return f"the earliest price as {option} is of {min(row.applies_from for row in rows)}"
        if self.like.purchase and option not in self.like.purchase:
            return f"{self.like.name} is sold as {', '.join(self.like.purchase)}"
        silent = [
            row.note or ""
            for row in self.rows
            if row.option in (option, ANY)
            and row.usd_per_hour is None
            and row.applies_from <= self.terms.on
        ]
        return silent[-1] if silent else ""

    def _too_old(self, row: Price) -> tuple[str, ...]:
        """Warning that a rate was read too long before the price date."""
        age, most_s = (self.terms.on - row.date_to).days, self.terms.max_age_s
        if most_s is None or age * DAY_S <= most_s:
            return ()
        return (
            f"the {row.option} rate of {self.like.name} was read on {row.date_to}, {age} days "
            f"before the price date and more than {significant(most_s / DAY_S)}: `trnbench prices "
            "refresh` reads today's",
        )


def _is_named(row: Price) -> bool:
    # Some rows name areas such as "most regions".
    return " " not in row.region and row.region != ANY


def _sentence(instance: str, refused: Sequence[NoTariff]) -> str:
    options = ", ".join(none.option for none in refused)
    known = [*dict.fromkeys(none.known for none in refused if none.known)]
    way_out = f'give --price {instance}=USD or --assume-price "{instance}=Nx OTHER"'
    return "; ".join([f"no published price of {instance} as {options}", *known, way_out])


def _same(one: float | None, other: float | None) -> bool:
    # An unknown rate is not a different one.
    return one is None or other is None or abs(one - other) <= _SAME_PRICE * other


def _rate(row: Price) -> float:
    return row.usd_per_hour or 0.0


def _usd(row: Price) -> str:
    return significant(_rate(row), 6)
