"""The scenario as a form: its fields, and the scenario and texts that they amount to."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from trnbench import parsing
from trnbench.catalog.search import Catalog
from trnbench.scenario import Scenario
from trnbench.tui.widgets.field import FieldSpec, Form

PURCHASES = ("on-demand", "spot", "reserved", "savings-plan", "capacity-block", "quote")
FIRST_INSTANCES = (
    *("trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge", "trn2-ultraserver", "p5.48xlarge"),
)


def scenario_fields(catalog: Catalog, today: datetime.date) -> list[FieldSpec]:
    """Return the fields, filled with the job that the view opens with."""
    models = tuple(entry.name for entry in catalog.entries("models"))
    instances = tuple(entry.name for entry in catalog.entries("instances"))
    regions = ("", "us-east-1", "us-east-2", "us-west-2", "eu-north-1")
    return [
        FieldSpec(
            key="model",
            label="model",
            text="llama3.1-70b",
            parse=parsing.one_of("model", catalog.names("models")),
            choices=models,
        ),
        FieldSpec(key="tokens", label="tokens", text="2T", parse=parsing.count("tokens")),
        FieldSpec(
            key="sequence",
            label="sequence",
            advice="the model's, at most 8192",
            parse=parsing.optional(parsing.sequence("sequence")),
            choices=("", "2048", "4096", "8192", "32768"),
        ),
        FieldSpec(
            key="global_batch",
            label="global batch",
            advice="1024 or just above",
            parse=parsing.optional(parsing.whole("global batch")),
            choices=("", "512", "1024", "2048", "4096"),
        ),
        FieldSpec(
            key="precision",
            label="precision",
            advice="bf16-master",
            parse=parsing.optional(_precision),
            choices=("", "bf16-master", "bf16-sr", "fp8", "fp32"),
        ),
        FieldSpec(
            key="nodes",
            label="nodes",
            advice="fewest in time",
            parse=parsing.optional(parsing.whole("nodes")),
            choices=("", "16", "32", "64", "128", "256"),
        ),
        FieldSpec(
            key="deadline",
            label="deadline",
            advice="60 d, unless nodes",
            parse=parsing.optional(parsing.duration("deadline")),
            choices=("", "30 d", "60 d", "90 d"),
        ),
        FieldSpec(
            key="purchase",
            label="purchase",
            advice="whatever is committed",
            parse=_several("purchase", parsing.one_of("purchase option", PURCHASES)),
            choices=("", *PURCHASES),
        ),
        FieldSpec(
            key="region",
            label="region",
            advice="the cheapest",
            parse=parsing.optional(_region(catalog)),
            choices=regions,
        ),
        FieldSpec(
            key="discount",
            label="discount",
            advice="none; e.g. 18%",
            parse=parsing.share("discount"),
        ),
        FieldSpec(
            key="price_date",
            label="price date",
            text=today.isoformat(),
            parse=parsing.date("price date"),
        ),
        FieldSpec(
            key="instances",
            label="instances",
            text=", ".join(FIRST_INSTANCES),
            parse=parsing.several(
                "instances", parsing.one_of("instance", catalog.names("instances"))
            ),
            choices=(", ".join(FIRST_INSTANCES), *instances),
        ),
        FieldSpec(
            key="prices",
            label="own prices",
            advice="name=USD/h, or name=4xOTHER",
            parse=_several("own prices", _own_price),
        ),
    ]


def scenario_of(form: Form) -> Scenario:
    """Return the scenario of the form's last good values."""
    value = {key: form.value(key) for key in form.fields}
    own = value.pop("prices") or ()
    assert isinstance(own, tuple)
    return Scenario(
        deadline_s=value.pop("deadline"),  # type: ignore[arg-type]
        purchase=value.pop("purchase") or (),  # type: ignore[arg-type]
        prices=tuple(text for text in own if not _is_assumed(text)),
        assumed_prices=tuple(text for text in own if _is_assumed(text)),
        **value,  # type: ignore[arg-type]
    )


def texts_of(scenario: Scenario) -> dict[str, str]:
    """Return the texts of the fields that make this scenario."""

    def text(value: object) -> str:
        return "" if value is None else str(value)

    from trnbench.app.command_lines import count_text, share_text, time_text

    deadline_s = scenario.deadline_s
    return {
        "model": scenario.model,
        "tokens": count_text(scenario.tokens),
        "sequence": text(scenario.sequence),
        "global_batch": text(scenario.global_batch),
        "precision": text(scenario.precision),
        "nodes": text(scenario.nodes),
        "deadline": "" if deadline_s is None else time_text(deadline_s),
        "purchase": ", ".join(scenario.purchase),
        "region": text(scenario.region),
        "discount": share_text(scenario.discount) if scenario.discount else "",
        "price_date": text(scenario.price_date),
        "instances": ", ".join(scenario.instances),
        "prices": ", ".join(
            own.replace(" ", "") for own in (*scenario.prices, *scenario.assumed_prices)
        ),
    }


def _several(what: str, one: Callable[[str], str]) -> Callable[[str], tuple[str, ...] | None]:
    return parsing.optional(parsing.several(what, one))


def _precision(text: str) -> str:
    from trnbench.program.precision import recipe_named

    return recipe_named(text).name


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
