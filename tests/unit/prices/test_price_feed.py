"""Rates in the files of others: what counts, what is left out and why, and how they are joined."""

from __future__ import annotations

import datetime
import io
import json
import os
from pathlib import Path

import pytest

from trnbench.errors import DataFileError
from trnbench.facts.catalog.provenance import Source
from trnbench.facts.catalog.search import Catalog, Folder
from trnbench.facts.prices.feed.files import read_price_file
from trnbench.facts.prices.feed.json_stream import JsonReader
from trnbench.facts.prices.feed.ledger import appended, compared, price_file_head
from trnbench.facts.prices.feed.reading import FoundRate
from trnbench.facts.prices.price import Price, PriceList, load_prices

DAY = datetime.date(2026, 11, 22)
NAMES = {"trn1.32xlarge": "trn1.32xlarge", "u-trn2x64": "trn2-ultraserver"}
LINUX = {
    "instanceType": "trn1.32xlarge",
    "regionCode": "us-east-1",
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "tenancy": "Shared",
    "marketoption": "OnDemand",
}


def dimension(unit, **amounts):
    return {"unit": unit, "pricePerUnit": amounts}


def term(*dimensions, since="2026-11-01T00:00:00Z", **about):
    return {
        "effectiveDate": since,
        "termAttributes": about,
        "priceDimensions": {str(i): one for i, one in enumerate(dimensions)},
    }


def offer_file(products, on_demand, reserved=None, *, first="products"):
    parts = {
        "products": {sku: {"sku": sku, "attributes": of} for sku, of in products.items()},
        "terms": {"OnDemand": on_demand, "Reserved": reserved or {}},
    }
    order = [first, *(key for key in parts if key != first)]
    return {"publicationDate": "2026-11-20T01:00:00Z", **{key: parts[key] for key in order}}


def read(tmp_path, content, name="file.json"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_price_file(path, NAMES, DAY)


def usd(reading):
    return {(r.instance, r.region, r.option, r.terms): r.usd_per_hour for r in reading.rates}


@pytest.mark.parametrize("first", ["products", "terms"])
def test_an_offer_file_in_either_order(tmp_path, first):
    year = {
        "LeaseContractLength": "1yr",
        "OfferingClass": "standard",
        "PurchaseOption": "Partial Upfront",
    }
    windows = {**LINUX, "operatingSystem": "Windows"}
    other = {**LINUX, "instanceType": "m5.large"}
    content = offer_file(
        {"A": LINUX, "B": windows, "C": other},
        {
            "A": {"A.1": term(dimension("Hrs", USD="21.5"))},
            "B": {"B.1": term(dimension("Hrs", USD="30"))},
        },
        {"A": {"A.2": term(dimension("Hrs", USD="5"), dimension("Quantity", USD="8760"), **year)}},
        first=first,
    )
    found = read(tmp_path, content)
    place = ("trn1.32xlarge", "us-east-1")
    assert usd(found) == {
        (*place, "on-demand", None): 21.5,
        (*place, "reserved", "1 year, standard, partial upfront"): 6.0,
    }
    assert found.ignored == 2
    assert {rate.day for rate in found.rates} == {datetime.date(2026, 11, 20)}
    assert {rate.unchanged_since for rate in found.rates} == {datetime.date(2026, 11, 1)}


def test_other_money_is_left_out_and_told(tmp_path):
    found = read(
        tmp_path, offer_file({"A": LINUX}, {"A": {"A.1": term(dimension("Hrs", CNY="99"))}})
    )
    assert found.rates == ()
    assert "CNY" in found.warnings[0]


def test_of_two_skus_the_newer_then_the_dearer_counts_and_is_told(tmp_path):
    def two(one, other):
        terms = {"A": {"A.1": one}, "B": {"B.1": other}}
        return read(tmp_path, offer_file({"A": LINUX, "B": LINUX}, terms))

    same = two(term(dimension("Hrs", USD="20")), term(dimension("Hrs", USD="20")))
    assert [rate.usd_per_hour for rate in same.rates] == [20]
    assert same.warnings == ()
    dearer = two(term(dimension("Hrs", USD="21")), term(dimension("Hrs", USD="20")))
    assert [rate.usd_per_hour for rate in dearer.rates] == [21]
    assert "two rates" in dearer.warnings[0]
    newer = two(
        term(dimension("Hrs", USD="21"), since="2026-01-01T00:00:00Z"),
        term(dimension("Hrs", USD="20")),
    )
    assert [rate.usd_per_hour for rate in newer.rates] == [20]


def test_an_offer_file_in_csv(tmp_path):
    lines = [
        '"FormatVersion","v1.0"',
        '"Disclaimer","none"',
        '"Publication Date","2026-11-20T00:00:00Z"',
        '"SKU","TermType","Unit","PricePerUnit","Currency","LeaseContractLength","PurchaseOption",'
        '"OfferingClass","EffectiveDate","Instance Type","Region Code",'
        '"Operating System","Tenancy"',
        '"A","OnDemand","Hrs","21.5","USD","","","","2026-11-01","trn1.32xlarge","us-east-1","Linux","Shared"',
        '"A","Reserved","Hrs","5","USD","3yr","Partial Upfront","standard","2026-11-01",'
        '"trn1.32xlarge","us-east-1","Linux","Shared"',
        '"A","Reserved","Quantity","26280","USD","3yr","Partial Upfront","standard","2026-11-01",'
        '"trn1.32xlarge","us-east-1","Linux","Shared"',
        '"B","OnDemand","Hrs","9","USD","","","","2026-11-01","trn1.32xlarge","us-east-1","Linux","Host"',
    ]
    found = usd(read(tmp_path, "\n".join(lines), "index.csv"))
    place = ("trn1.32xlarge", "us-east-1")
    assert found == {
        (*place, "on-demand", None): 21.5,
        (*place, "reserved", "3 years, standard, partial upfront"): 6.0,
    }


def test_ec2instances_info(tmp_path):
    linux = {
        "ondemand": "21.5",
        "spot_avg": "3.0",
        "reserved": {"yrTerm3Convertible.noUpfront": "9", "yrTerm1Standard.allUpfront": ""},
    }
    regions = {"us-east-1": {"linux": linux, "mswin": {"ondemand": "30"}}, "eu-west-1": "gone"}
    found = read(tmp_path, [{"instance_type": "trn1.32xlarge", "pricing": regions}, {"a": 1}])
    place = ("trn1.32xlarge", "us-east-1")
    assert usd(found) == {
        (*place, "on-demand", None): 21.5,
        (*place, "spot", None): 3.0,
        (*place, "reserved", "3 years, convertible, no upfront"): 9.0,
    }


def test_skypilot_has_a_line_for_each_zone(tmp_path):
    heading = "InstanceType,AcceleratorName,Price,SpotPrice,Region,AvailabilityZone"
    rows = [f"trn1.32xlarge,Trainium,21.5,{spot},us-east-1,z" for spot in (2, 9, 4)]
    found = read(tmp_path, "\n".join([heading, *rows, "m5.large,,1,1,us-east-1,z"]), "vms.csv")
    (demand,) = [rate for rate in found.rates if rate.option == "on-demand"]
    (spot,) = [rate for rate in found.rates if rate.option == "spot"]
    assert demand.usd_per_hour == 21.5
    assert (spot.low_usd_per_hour, spot.usd_per_hour, spot.high_usd_per_hour) == (2, 4, 9)
    assert spot.zones == 3
    assert found.ignored == 1


def test_a_spot_history_is_weighted_by_time(tmp_path):
    def change(hour, rate, zone):
        at = f"2026-11-20T{hour:02}:00:00Z"
        return {
            "AvailabilityZone": f"us-east-2{zone}",
            "InstanceType": "trn1.32xlarge",
            "ProductDescription": "Linux/UNIX",
            "SpotPrice": str(rate),
            "Timestamp": at,
        }

    # Zone a: 2 USD for 18 of 20 hours, then 10; zone b: 4 USD throughout.
    history = [change(0, 2, "a"), change(18, 10, "a"), change(0, 4, "b"), change(20, 4, "b")]
    found = read(tmp_path, {"SpotPriceHistory": history, "NextToken": ""})
    (rate,) = found.rates
    assert (rate.usd_per_hour, rate.low_usd_per_hour) == (3, 2)
    assert rate.high_usd_per_hour == 4  # 10 USD for a tenth of the time is beyond the upper level
    assert rate.zones == 2


def test_blocks_are_told_by_the_hour_of_a_machine(tmp_path):
    block = {
        "UltraserverType": "u-trn2x64",
        "UltraserverCount": 2,
        "AvailabilityZone": "us-east-2b",
        "StartDate": "2026-12-01T11:30:00Z",
        "CapacityBlockDurationHours": 23,
        "CapacityBlockDurationMinutes": 60,
        "UpfrontFee": "4800",
        "CurrencyCode": "USD",
    }
    found = read(tmp_path, {"CapacityBlockOfferings": [block, {**block, "CurrencyCode": "CNY"}]})
    assert usd(found) == {("trn2-ultraserver", "us-east-2", "capacity-block", None): 100.0}
    assert "CNY" in found.warnings[0]


BLOCK = {
    **{"InstanceType": "trn1.32xlarge", "InstanceCount": 2, "AvailabilityZone": "us-east-1a"},
    **{"StartDate": "2026-12-01T11:30:00Z", "UpfrontFee": "48", "CapacityBlockDurationHours": 24},
}
PLAN = {
    "properties": [
        {"name": "instanceType", "value": "trn1.32xlarge"},
        {"name": "region", "value": "us-east-1"},
    ],
    **{"rate": "9.5", "savingsPlanOffering": {"durationSeconds": 31_536_000}},
}
DEMAND = {
    "termAttributes": {},
    "priceDimensions": {"a": {"unit": "Hrs", "pricePerUnit": {"USD": "21.5"}}},
}


def saved(kind, part):
    """A file of one offer; `part` is what of it has another shape."""
    if kind == "offer":
        return offer_file({"A": LINUX}, {"A": {"t": DEMAND | part}})
    if kind == "block":
        return {"CapacityBlockOfferings": [BLOCK | part]}
    return {"searchResults": [PLAN | part]}


@pytest.mark.parametrize(
    ("kind", "part", "rates"),
    [
        *(("block", {}, 1), ("plan", {}, 1), ("offer", {}, 1)),
        ("block", {"InstanceCount": "x"}, 0),
        ("block", {"InstanceCount": 1e400}, 0),
        ("block", {"CapacityBlockDurationHours": {}}, 0),
        ("block", {"UpfrontFee": 10**400}, 0),
        ("block", {"UpfrontFee": "1e30"}, 0),
        ("plan", {"properties": 7}, 0),
        ("plan", {"properties": [7]}, 0),
        ("plan", {"savingsPlanOffering": ""}, 0),
        ("plan", {"savingsPlanOffering": {"durationSeconds": "x"}}, 0),
        ("offer", {"termAttributes": ""}, 1),
        ("offer", {"termAttributes": "x"}, 1),
        ("offer", {"priceDimensions": {"a": ""}}, 0),
        ("offer", {"priceDimensions": ""}, 0),
    ],
)
def test_rows_in_another_shape_are_left_out(tmp_path, kind, part, rates):
    found = read(tmp_path, saved(kind, part))
    assert len(found.rates) == rates
    if kind != "offer" and not rates:
        assert found.ignored == 1


def test_pipes_and_endless_numbers_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataFileError, match="is a pipe"):
        read_price_file(tmp_path / "pipe", NAMES, DAY)
    digits = '{"CapacityBlockOfferings": [{"InstanceCount": ' + "9" * 5000 + "}]}"
    with pytest.raises(DataFileError, match="a number of too many digits"):
        read(tmp_path, digits)


OWN = "instance,region,purchase,usd_per_hour,date_from,source\n"


def test_an_own_table(tmp_path):
    found = read(tmp_path, OWN + "trn1.32xlarge,us-east-1,reserved,9.5,2026-11-01,contract 7\n")
    (rate,) = found.rates
    assert (rate.usd_per_hour, rate.day, rate.source) == (
        9.5,
        datetime.date(2026, 11, 1),
        "contract 7",
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("trn1.32xlarg,us-east-1,on-demand,1,2026-11-01,x", "did you mean 'trn1.32xlarge'"),
        ("trn1.32xlarge,us-east-1,ondemand,1,2026-11-01,x", "did you mean 'on-demand'"),
        ("trn1.32xlarge,us-east-1,on-demand,0,2026-11-01,x", "not a number from"),
        ("trn1.32xlarge,us-east-1,on-demand,nan,2026-11-01,x", "not a number from"),
        ("trn1.32xlarge,us-east-1,on-demand,1e30,2026-11-01,x", "not a number from"),
        ("trn1.32xlarge,us-east-1,on-demand,1,01/11/2026,x", "not a date"),
        ("trn1.32xlarge,us-east-1,on-demand,1,2026-11-01,x\u200e", "control character U+200E"),
        ("trn1.32xlarge,us-east-1,on-demand,1,2026-11-01,", "source is empty"),
        ("trn1.32xlarge,us east,on-demand,1,2026-11-01,x", "not the name of a region"),
        ("trn1.32xlarge,us-east-1,on-demand,1,2026-11-01,x,y", "more cells than columns"),
    ],
)
def test_every_fault_of_an_own_table_is_named_by_line(tmp_path, line, says):
    with pytest.raises(DataFileError) as caught:
        read(tmp_path, OWN + line + "\n", "own.csv")
    assert says in str(caught.value.faults[0])
    assert caught.value.faults[0].path == "line 2"


@pytest.mark.parametrize(
    "content",
    [
        '{"products": {"A": {"attributes"',
        "[{",
        "",
        "hello",
        '{"a": 1}',
        "instance,region\n",
        "[" * 99_999,
    ],
)
def test_what_is_no_list_of_prices_is_refused_in_one_line(tmp_path, content):
    with pytest.raises(DataFileError):
        read(tmp_path, content)


def test_a_reader_needs_no_more_than_a_piece_at_a_time(monkeypatch):
    from trnbench.facts.prices.feed import json_stream

    monkeypatch.setattr(json_stream, "PIECE", 5)
    content = {"a": {"b": [1, 23.5e3, 'text with \\ and " and é'], "c": {}}, "d": [], "e": 12345}
    for indent in (None, 2):
        reader = JsonReader(io.StringIO(json.dumps(content, indent=indent)), Path("x"))
        assert {key: reader.value() for key in reader.members()} == content
        reader = JsonReader(io.StringIO(json.dumps(content, indent=indent)), Path("x"))
        seen = []
        for key in reader.members():
            seen.append(key)
            reader.skip(2)
        assert seen == ["a", "d", "e"]


def rate(usd_per_hour, day=DAY, **more):
    about = {"instance": "trn1.32xlarge", "region": "us-east-1", "option": "on-demand"} | more
    return FoundRate(usd_per_hour=usd_per_hour, day=day, **about)


def joined(folder, *rates, source="AWS"):
    """Add rates to the list in a folder, and return its text and the list as it is then read."""
    path = folder / "mine" / "prices" / "trn1.32xlarge.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    shipped = folder / "shipped" / "prices" / "trn1.32xlarge.toml"
    shipped.parent.mkdir(parents=True, exist_ok=True)
    shipped.write_text(
        'name = "trn1.32xlarge"\ntitle = "t"\nkind = "vendor"\nprice = [\n'
        '  { region = "us-east-1", option = "on-demand", usd_per_hour = "21.5 USD/h", '
        'date_from = 2026-01-01, date_to = 2026-01-01, source = "aws-2026-11-22" },\n]\n'
        '[sources]\naws-2026-11-22 = { title = "shipped", date = 2026-01-01 }\n'
    )
    catalog = Catalog((Folder(folder / "mine", "user"), Folder(folder / "shipped", "built in")))
    known = load_prices(catalog, "trn1.32xlarge")
    found = compared(rates, known, Source(title=source, date=DAY), "vendor")
    text = path.read_text() if path.exists() else price_file_head("trn1.32xlarge", "A title")
    sources = dict(known.provenance.sources)
    mine = {name.split(" in ")[0]: one for name, one in sources.items() if " in " in name}
    path.write_text(appended(text, mine, [one for one in found if one.change != "known"]))
    fresh = Catalog(catalog.folders)
    return found, path.read_text(), load_prices(fresh, "trn1.32xlarge")


def test_read_rates_join_shipped_ones_and_never_overwrite(tmp_path):
    found, text, prices = joined(tmp_path, rate(20.0))
    assert [one.change for one in found] == ["changed"]
    at = prices.price_at(region="us-east-1", option="on-demand", on=DAY)
    assert at is not None
    assert at.usd_per_hour == 20
    assert prices.source_of(at) == Source(title="AWS", date=DAY)
    before = prices.price_at(region="us-east-1", option="on-demand", on=datetime.date(2026, 6, 1))
    assert before is not None
    assert before.usd_per_hour == 21.5
    source = prices.source_of(before)
    assert source is not None
    assert source.title == "shipped"
    # The same again is not written; another rate stands behind what was there, byte for byte.
    again, same, _ = joined(tmp_path, rate(20.0))
    assert [one.change for one in again] == ["known"]
    assert same == text
    _, more, prices = joined(tmp_path, rate(19.0), source="another")
    assert more.startswith(text.rstrip("\n"))
    at = prices.price_at(region="us-east-1", option="on-demand", on=DAY)
    assert at is not None
    assert at.usd_per_hour == 19


def test_a_rate_read_before_one_that_is_known_says_so(tmp_path):
    found, _, prices = joined(tmp_path, rate(25.0, day=datetime.date(2025, 6, 1)))
    assert [one.change for one in found] == ["older"]
    at = prices.price_at(region="us-east-1", option="on-demand", on=DAY)
    assert at is not None
    assert at.usd_per_hour == 21.5


def test_an_unchanged_rate_holds_since_it_was_first_read(tmp_path):
    found, _, prices = joined(tmp_path, rate(21.5))
    assert [one.change for one in found] == ["unchanged"]
    assert prices.price[-1].unchanged_since == datetime.date(2026, 1, 1)


def test_of_several_terms_the_least_binding_unless_one_is_asked_for():
    def row(terms, usd_per_hour, day):
        return Price(
            region="r",
            option="reserved",
            terms=terms,
            usd_per_hour=usd_per_hour,
            date_from=day,
            date_to=day,
        )

    first, last = datetime.date(2026, 1, 1), datetime.date(2026, 2, 1)
    rows = (
        row("1 year, standard, no upfront", 13, first),
        row("1 year, standard, all upfront", 12, last),
        row("3 years, standard, no upfront", 8, last),
    )
    prices = PriceList(name="a", title="A", price=rows)

    def at(years):
        found = prices.price_at(region="r", option="reserved", on=last, term_years=years)
        assert found is not None
        return found.usd_per_hour

    assert [at(None), at(1), at(3)] == [13, 13, 8]
