"""The scenario as a form: its fields, and the scenario and texts that they amount to."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from trnbench import parsing
from trnbench.catalog.search import Catalog
from trnbench.scenario import Scenario
from trnbench.tui.forms import (
    BATCHES,
    NODES,
    SEQUENCES,
    field,
    list_of,
    name_field,
    plain,
    precision_field,
)
from trnbench.tui.widgets.field import FieldSpec, Form

PURCHASES = ("on-demand", "spot", "reserved", "savings-plan", "capacity-block", "quote")
REGIONS = ("us-east-1", "us-east-2", "us-west-2", "eu-north-1")
FIRST_INSTANCES = "trn1.32xlarge, trn1n.32xlarge, trn2.48xlarge, trn2-ultraserver, p5.48xlarge"


def scenario_fields(catalog: Catalog, today: datetime.date) -> list[FieldSpec]:
    """Return the fields, filled with the job that the view opens with."""
    purchase = list_of(parsing.one_of("purchase option", PURCHASES))
    instances = list_of(parsing.one_of("instance", catalog.names("instances")))
    known = (entry.name for entry in catalog.entries("instances"))
    prices = "name=USD/h, or name=4xOTHER"
    return [
        name_field(catalog, "model", "llama3.1-70b"),
        field("tokens", parsing.count, "2T"),
        field("sequence", parsing.sequence, advice="the model's, at most 8192", choices=SEQUENCES),
        field("global_batch", parsing.whole, advice="1024 or just above", choices=BATCHES),
        precision_field(advice="bf16-master"),
        field("nodes", parsing.whole, advice="fewest in time", choices=(*NODES, "256")),
        field(
            "deadline",
            parsing.duration,
            advice="60 d, unless nodes",
            choices=("30 d", "60 d", "90 d"),
        ),
        field("purchase", purchase, advice="whatever is committed", choices=PURCHASES),
        field("region", plain(_region(catalog)), advice="the cheapest", choices=REGIONS),
        field("discount", parsing.share, advice="none; e.g. 18%"),
        field("price_date", parsing.date, today.isoformat()),
        field("instances", instances, FIRST_INSTANCES, choices=(FIRST_INSTANCES, *known)),
        field("prices", list_of(_own_price), advice=prices, label="own prices"),
    ]


def scenario_of(form: Form) -> Scenario:
    """Return the scenario of the form's last good values."""
    value = form.values
    own = value.pop("prices") or ()
    return Scenario(
        deadline_s=value.pop("deadline"),
        purchase=value.pop("purchase") or (),
        discount=value.pop("discount") or 0.0,
        prices=tuple(text for text in own if not _is_assumed(text)),
        assumed_prices=tuple(text for text in own if _is_assumed(text)),
        **value,
    )


def texts_of(scenario: Scenario) -> dict[str, str]:
    """Return the texts of the fields that make this scenario."""

    def text(value: object) -> str:
        return "" if value is None else str(value)

    from trnbench.app.command_lines import count_text, share_text, time_text

    same = ("model", "sequence", "global_batch", "precision", "nodes", "region", "price_date")
    own = (*scenario.prices, *scenario.assumed_prices)
    return {
        **{name: text(getattr(scenario, name)) for name in same},
        "tokens": count_text(scenario.tokens),
        "deadline": "" if scenario.deadline_s is None else time_text(scenario.deadline_s),
        "purchase": ", ".join(scenario.purchase),
        "discount": share_text(scenario.discount) if scenario.discount else "",
        "instances": ", ".join(scenario.instances),
        "prices": ", ".join(price.replace(" ", "") for price in own),
    }


def _region(catalog: Catalog) -> Callable[[str], str]:
    """Return a parser of regions in which some price list has a row."""

    def parsed(text: str) -> str:
        from trnbench.plan.price_terms import check_region

        check_region(catalog, text)
        return text

    return parsed


def _is_assumed(text: str) -> bool:
    return any(sign in text.partition("=")[2] for sign in "x*X")


def _own_price(text: str) -> str:
    from trnbench.plan.price_terms import parse_assumption, parse_own_price

    if _is_assumed(text):
        parse_assumption(text)
    else:
        parse_own_price(text)
    return text
