"""Common base of Compare and Plan: a scenario as a form, and a sentence with the verdict."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import ClassVar

from textual import on
from textual.binding import BindingType

from trnbench.facts import parsing
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.units import counted
from trnbench.facts.workload.choices import USUAL_INSTANCES
from trnbench.tui.forms import (
    BATCHES,
    NODES,
    SEQUENCES,
    field,
    list_of,
    name_field,
    plain,
    precision_field,
    stack_field,
    titles,
)
from trnbench.tui.view import LaunchingView
from trnbench.tui.widgets.field import Field, FieldSpec, Form
from trnbench.tui.widgets.frame import hidden
from trnbench.verbs.asking.option import Given

PURCHASES = ("on-demand", "spot", "reserved", "savings-plan", "capacity-block", "quote")
REGIONS = ("us-east-1", "us-east-2", "us-west-2", "eu-north-1")
SCENARIO_KEYS = (
    *("model", "tokens", "phases", "sequence", "global_batch", "precision", "nodes", "deadline"),
    *("purchase", "region", "discount", "price_date", "instances", "prices", "stack"),
    *("speed", "mfu", "migration_cost"),
)
"""Fields that make a scenario; forms may have more."""
SIZES = (*NODES, "256")
DAYS = ("30 d", "60 d", "90 d")
FIRST_INSTANCES = ", ".join(USUAL_INSTANCES)


def scenario_fields(catalog: Catalog, today: datetime.date) -> list[FieldSpec]:
    """The fields, filled with the job that the view opens with."""
    region = plain(_region(catalog))
    instances = list_of(parsing.one_of("instance", catalog.names("instances")))
    names = (entry.name for entry in catalog.entries("instances"))
    prices = "trn2.48xlarge=30"
    return [
        name_field(catalog, "model", "llama3.1-70b"),
        field("tokens", parsing.count, "2T"),
        field("phases", plain(_phases), advice="none; 90%@8k; 10%@64k,cp=8"),
        field("sequence", parsing.sequence, advice="min(model max, 8192)", choices=SEQUENCES),
        field("global_batch", parsing.whole, advice="1024 (rounded up)", choices=BATCHES),
        precision_field(advice="bf16-master"),
        field("nodes", parsing.whole, advice="fewest that meet the deadline", choices=SIZES),
        field("deadline", parsing.duration, advice="60 d (ignored if nodes set)", choices=DAYS),
        field(
            "purchase",
            list_of(parsing.one_of("purchase option", PURCHASES)),
            advice="cheapest, no spot",
            choices=PURCHASES,
            known=lambda: [(name, "") for name in PURCHASES],
            several=True,
        ),
        field("region", region, advice="the cheapest", choices=REGIONS, known=_regions(catalog)),
        field("discount", parsing.share, advice="none; e.g. 18%"),
        field("price_date", parsing.date, today.isoformat()),
        field(
            "instances",
            instances,
            FIRST_INSTANCES,
            choices=(FIRST_INSTANCES, *names),
            known=titles(catalog, "instances"),
            several=True,
        ),
        field("prices", list_of(_own_price), advice=prices, label="own prices"),
        stack_field(catalog),
        *(
            field(name, list_of(_supposed(catalog, name)), advice=advice, label=label)
            for name, advice, label in (
                ("speed", "trn2.48xlarge=-10%", ""),
                ("mfu", "trn2.48xlarge=20%", "MFU"),
                ("migration_cost", "trn2.48xlarge=250K", "migration"),
            )
        ),
    ]


def plan_fields() -> list[FieldSpec]:
    """The fields that a plan has besides its scenario."""
    objectives = ("cost", "time", "pareto")
    objective = plain(parsing.one_of("objective", objectives))
    return [
        field("budget", parsing.money, advice="none; e.g. 5M"),
        field("objective", objective, advice="cost", choices=objectives),
        field("confidence", parsing.confidence, advice="by the estimate", choices=("80%", "90%")),
        field("max_nodes", parsing.whole, advice="512", choices=("64", "128", "256")),
        field("confirm", parsing.whole, advice="none; plays the best", label="simulate"),
    ]


_CONFIGURED = {
    "region": "region",
    "discount": "discount",
    "price": "prices",
    "on": "instances",
    "stack": "stack",
}
"""Option that the user's `trnbench.toml` has a default of -> field of the form."""


def configured_texts() -> dict[str, str]:
    """The texts of the fields that the user's `trnbench.toml` fills in."""
    from trnbench.verbs.asking.configuration import configuration

    texts = {}
    for option, value in configuration().options("compare").items():
        words = value.split(",") if isinstance(value, str) else value
        texts[_CONFIGURED[option]] = ", ".join(words)
    return texts


def scenario_line(texts: Mapping[str, str]) -> str:
    """A scenario in a line, the most important part first."""
    words = [texts["model"], texts["tokens"]]
    for key, text in (
        ("phases", "in parts {}"),
        ("nodes", "on {} nodes"),
        ("deadline", "within {}"),
        ("sequence", "sequence {}"),
        ("global_batch", "batch {}"),
        ("precision", "{}"),
        ("purchase", "{}"),
        ("region", "{}"),
        ("discount", "less {}"),
        ("stack", "stack {}"),
        ("prices", "own prices {}"),
        ("speed", "speed {}"),
        ("mfu", "MFU {}"),
        ("migration_cost", "migration cost {}"),
    ):
        words += [text.format(texts[key])] if texts.get(key) else []
    return ", ".join(words)


def scenario_of(form: Form) -> Given:
    """The options of the form's last good values."""
    from trnbench.verbs.compare.scenario import scenario_options

    values = form.values
    own = values["prices"] or ()
    values["prices"] = tuple(text for text in own if not _is_assumed(text))
    values["assumed_prices"] = tuple(text for text in own if _is_assumed(text))
    options = scenario_options().items()
    return {option.name: values[key] for key, option in options if values[key] not in (None, ())}


def texts_of(scenario: Given) -> dict[str, str]:
    """The texts of the fields that make this scenario."""
    from trnbench.verbs.compare.scenario import scenario_options

    texts = {}
    for key, option in scenario_options().items():
        value = option.value(scenario.get(option.name))
        if isinstance(value, tuple):
            texts[key] = ("; " if key == "phases" else ", ").join(map(str, value))
        else:
            texts[key] = option.text(value) if value else ""
    own = [text for key in ("prices", "assumed_prices") if (text := texts.pop(key))]
    spaced = ", ".join(own)
    return {**texts, "prices": ", ".join(spaced.replace(" ", "").split(",")) if own else ""}


def _phases(text: str) -> tuple[str, ...]:
    """The parts that a text lists with semicolons; knobs of a part have commas."""
    from trnbench.verbs.asking.run_parts import parts_of

    phases = tuple(part.strip() for part in text.split(";") if part.strip())
    parts_of(1.0, None, phases)
    return phases


def _region(catalog: Catalog) -> Callable[[str], str]:
    """A parser of regions in which some price list has a row."""

    def parsed(text: str) -> str:
        from trnbench.money.price_terms import check_region

        check_region(catalog, text)
        return text

    return parsed


def _regions(catalog: Catalog) -> Callable[[], Sequence[tuple[str, str]]]:
    """Function that lists the regions of the price lists, with the number of prices in each."""

    @cache
    def listed() -> Sequence[tuple[str, str]]:
        from trnbench.money.price_terms import regions

        return [
            (name, f"{counted(count, 'instance')} with a price") for name, count in regions(catalog)
        ]

    return listed


def _supposed(catalog: Catalog, name: str) -> Callable[[str], str]:
    """A parser of suppositions about an instance type, of --speed, --mfu or --migration-cost."""

    def parsed(text: str) -> str:
        from trnbench.verbs.quotes.what_if import WhatIf

        of_type = text.partition("=")[0].strip()
        found: str = getattr(WhatIf(**{name: (text,)}).settled_on(catalog, (of_type,)), name)[0]
        return found

    return parsed


def _is_assumed(text: str) -> bool:
    return any(sign in text.partition("=")[2] for sign in "x*X")


def _own_price(text: str) -> str:
    from trnbench.money.price_terms import parse_assumption, parse_own_price, parse_price_change
    from trnbench.verbs.quotes.buying import IF_ASKED

    if _is_assumed(text):
        parse_assumption(text)
    elif parse_price_change(text.removesuffix(IF_ASKED)) is None:
        parse_own_price(text.removesuffix(IF_ASKED))
    return text


class ScenarioView(LaunchingView):
    """A view of the scenario that was edited last, here or in another view."""

    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("m", "pick('model')", "Model", "view.model", "Choose the model from a list"),
        hidden(
            "i", "pick('instances')", "Instances", "view.instances", "Choose instances from a list"
        ),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._taken: dict[str, str] | None = None

    @property
    def form(self) -> Form:
        return self.query_one(Form)

    @property
    def scenario(self) -> Given:
        return scenario_of(self.form)

    def trail(self) -> Sequence[str]:
        return (scenario_line(self.form.texts),)

    def take(self, scenario: Given) -> None:
        self._put(texts_of(scenario))

    def begin(self) -> None:
        """Take the scenario that another view has edited, if any; then ask."""
        self._put(self.trnbench.scenario)
        self._share()
        self.state_facts()
        super().begin()

    def on_screen_resume(self) -> None:
        if self._taken is not None and self._taken is not self.trnbench.scenario:
            self._put(self.trnbench.scenario)

    def _put(self, texts: dict[str, str]) -> None:
        self._taken = texts
        self.form.put(texts)
        self.form.look()

    @on(Field.Changed)
    def _edited(self) -> None:
        self._share()
        self.state_facts()
        self.action_again()

    def _share(self) -> None:
        texts = self.form.texts
        self._taken = self.trnbench.scenario = {key: texts[key] for key in SCENARIO_KEYS}
