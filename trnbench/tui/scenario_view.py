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
from trnbench.facts.workload.choices import USUAL_INSTANCES, USUAL_MODEL, USUAL_TOKENS
from trnbench.facts.workload.layout import KNOBS
from trnbench.tui.cluster_view import OF_JOBS, knob_field
from trnbench.tui.forms import (
    BATCHES,
    LAYOUT,
    NODES,
    PURCHASE,
    RUN,
    SEQUENCES,
    SOFTWARE,
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
from trnbench.verbs.asking.option import Given, Option

PURCHASES = ("on-demand", "spot", "reserved", "savings-plan", "capacity-block", "quote")
REGIONS = ("us-east-1", "us-east-2", "us-west-2", "eu-north-1")
SIZES = (*NODES, "256")
DAYS = ("30 d", "60 d", "90 d")
FIRST_INSTANCES = ", ".join(USUAL_INSTANCES)


CARDS: Mapping[str, Sequence[str]] = {
    "pretrain": ("tokens", "deadline", "instances", "price_date", "purchase"),
    "finetune": ("samples", "sequence", "deadline", "instances", "purchase"),
    "lora": ("samples", "adapter_rank", "deadline", "instances", "purchase"),
    "dpo": ("samples", "sequence", "deadline", "instances", "purchase"),
    "grpo": ("samples", "response", "deadline", "instances", "purchase"),
}
"""By job, what everybody says of it besides the model; jobs alike are named once."""
ALIKE = {"orpo": "dpo", "ppo": "grpo"}
FIRST_SAMPLES = "50K"


def card_of(texts: Mapping[str, str]) -> Sequence[str]:
    """The fields of the job at hand."""
    job = texts.get("job") or "pretrain"
    return ("job", "model", *CARDS[ALIKE.get(job, job)])


def scenario_fields(catalog: Catalog, today: datetime.date) -> list[FieldSpec]:
    """The fields that most people need, filled with the job that the view opens with."""
    instances = list_of(parsing.one_of("instance", catalog.names("instances")))
    names = (entry.name for entry in catalog.entries("instances"))
    jobs = (*CARDS, *ALIKE)
    return [
        field("job", plain(parsing.one_of("job", jobs)), advice="pretrain", choices=jobs),
        name_field(catalog, "model", USUAL_MODEL),
        field(
            "tokens",
            parsing.count,
            parsing.count_text(USUAL_TOKENS),
            advice="none; or samples",
            group=RUN,
        ),
        field("samples", parsing.count, advice="none; e.g. 50K", group=RUN),
        knob_field(KNOBS["adapter_rank"]),
        knob_field(KNOBS["response"]),
        field(
            "sequence",
            parsing.sequence,
            advice="min(model max, 8192)",
            choices=SEQUENCES,
            group=RUN,
        ),
        field("deadline", parsing.deadline, advice="60 d", choices=DAYS, group=RUN),
        field(
            "instances",
            instances,
            FIRST_INSTANCES,
            choices=(FIRST_INSTANCES, *names),
            known=titles(catalog, "instances"),
            several=True,
        ),
        field("price_date", parsing.date, today.isoformat(), group=PURCHASE),
        field(
            "purchase",
            list_of(parsing.one_of("purchase option", PURCHASES)),
            advice="cheapest, no spot",
            choices=PURCHASES,
            known=lambda: [(name, "") for name in PURCHASES],
            several=True,
            group=PURCHASE,
        ),
    ]


def other_fields(catalog: Catalog) -> list[FieldSpec]:
    """All other options of a run and of its purchase, in groups."""
    from trnbench.verbs.compare.scenario import scenario_options

    region = plain(_region(catalog))
    by_hand = [
        field("phases", plain(_phases), advice="none; 90%@8k; 10%@64k", group=RUN),
        field("global_batch", parsing.whole, advice="1024 (or so)", choices=BATCHES, group=RUN),
        precision_field(advice="bf16-master"),
        field("nodes", parsing.whole, advice="fewest in time", choices=SIZES, group=RUN),
        field(
            "region",
            region,
            advice="the cheapest",
            choices=REGIONS,
            known=_regions(catalog),
            group=PURCHASE,
        ),
        field("discount", parsing.share, advice="none; e.g. 18%", group=PURCHASE),
        field(
            "prices",
            list_of(_own_price),
            advice="trn2.48xlarge=30",
            label="own prices",
            group=PURCHASE,
        ),
        stack_field(catalog),
    ]
    named = {spec.key: spec for spec in by_hand}
    made = [
        named.get(key) or _option_field(catalog, key, option)
        for key, option in scenario_options().items()
        if key not in _ELSEWHERE
    ]
    return sorted(made, key=lambda spec: _HEADINGS.index(spec.group))


_ELSEWHERE = (
    *("job", "model", "tokens", "samples", "adapter_rank", "response", "sequence", "deadline"),
    *("instances", "price_date", "purchase", "assumed_prices"),
)
"""Options with a field of the card, and prices that share the field of own prices."""
_HEADINGS = (RUN, PURCHASE, "what if", SOFTWARE, LAYOUT, OF_JOBS)
_TITLES: Mapping[str, tuple[str, str]] = {
    **{"max_nodes": ("most nodes", RUN), "headroom": ("headroom", RUN)},
    **{"confidence": ("confidence", RUN), "prefer": ("prefer", RUN)},
    **{"buyable_only": ("buyable only", PURCHASE), "term_years": ("term, years", PURCHASE)},
    **{"commitment": ("commitment", PURCHASE), "keep_checkpoints": ("checkpoints", PURCHASE)},
    **{"max_price_age": ("price age", PURCHASE), "speed": ("speed", "what if")},
    **{"mfu": ("MFU", "what if"), "migration_cost": ("migration", "what if")},
    **{"logical_size": ("lnc", SOFTWARE), "assume_supported": ("unsupported", SOFTWARE)},
    **{"supported_only": ("supported", SOFTWARE), "compile_cache": ("compiling", SOFTWARE)},
    **{"failures_per_node_day": ("failures/day", SOFTWARE)},
    "checkpoint_interval": ("ckpt. every", SOFTWARE),
}
"""Label and heading of an option, where it is no knob and its name is no label."""


def _option_field(catalog: Catalog, key: str, option: Option) -> FieldSpec:
    """The field of an option of the command, by what the option says of itself."""

    if key in KNOBS:
        return knob_field(KNOBS[key])
    label, group = _TITLES.get(key, (key.replace("_", " "), SOFTWARE))

    def parsed(text: str) -> object:
        if not text.strip():
            return None
        if option.is_switch:
            return parsing.one_of(label, ("on", "off"))(text) == "on"
        if group == "what if":
            return parsing.several(label, _supposed(catalog, key))(text)
        return option.value(text.replace(" ", "").split(",") if option.several else text)

    default = "" if option.default in (None, False, ()) else str(option.default)
    return FieldSpec(
        key=key,
        label=label,
        parse=parsed,
        advice=default or (option.metavar or "off").split(",")[0],
        choices=("", "on") if option.is_switch else ("", *option.choices) * bool(option.choices),
        group=group,
    )


def plan_fields() -> list[FieldSpec]:
    """The fields that a plan has besides its scenario."""
    objectives = ("cost", "time", "pareto")
    objective = plain(parsing.one_of("objective", objectives))
    return [
        field("budget", parsing.money, advice="none; e.g. 5M", group=RUN),
        field("objective", objective, advice="cost", choices=objectives, group=RUN),
        field("confirm", parsing.whole, advice="none", label="simulate", group=RUN),
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
    job = texts.get("job", "")
    length = texts.get("tokens") or f"{texts.get('samples') or '?'} samples"
    words = [texts["model"], *([job] if job not in ("", "pretrain") else []), length]
    shown = ("job", "model", "tokens", "samples", "instances", "price_date")
    for key, text in texts.items():
        if text and key not in shown:
            name = key.replace("_", " ")
            words.append(_SAID.get(key, f"{name} {{}}").format(text))
    return ", ".join(words)


_SAID = {
    **{"phases": "in parts {}", "nodes": "on {} nodes", "deadline": "within {}", "precision": "{}"},
    **{"purchase": "{}", "region": "{}", "discount": "less {}", "prices": "own prices {}"},
}


def scenario_of(form: Form) -> Given:
    """The options of the form's last good values."""
    from trnbench.verbs.compare.scenario import scenario_options

    values = form.values
    own = values.get("prices") or ()
    values["prices"] = tuple(text for text in own if not _is_assumed(text))
    values["assumed_prices"] = tuple(text for text in own if _is_assumed(text))
    options = scenario_options().items()
    given = {option.name: values.get(key) for key, option in options}
    return {name: value for name, value in given.items() if value not in (None, ())}


def texts_of(scenario: Given) -> dict[str, str]:
    """The texts of the fields that make this scenario."""
    from trnbench.verbs.compare.scenario import scenario_options

    texts = {}
    for key, option in scenario_options().items():
        value = option.value(scenario[option.name]) if option.name in scenario else None
        if isinstance(value, bool):
            texts[key] = "on" if value else "off"
        elif isinstance(value, tuple):
            texts[key] = ("; " if key == "phases" else ", ").join(map(str, value))
        else:
            texts[key] = "" if value is None else str(option.text(value))
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

    def make_form(self) -> Form:
        return Form(
            self.fields(),
            id=f"{self.NAME}-form",
            card=self.card,
            more=lambda: other_fields(self.trnbench.catalog),
        )

    def card(self, texts: Mapping[str, str]) -> Sequence[str]:
        return card_of(texts)

    @property
    def form(self) -> Form:
        return self.query_one(Form)

    @property
    def scenario(self) -> Given:
        return scenario_of(self.form)

    def trail(self) -> Sequence[str]:
        return (scenario_line(self.form.texts),)

    def take(self, scenario: Given) -> None:
        specs = (field.spec for field in self.form.fields.values())
        empty = {spec.key: "" if spec.advice else spec.text for spec in specs}
        told = {key: text for key, text in texts_of(scenario).items() if text}
        self._put({**empty, **told})

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
    def _edited(self, event: Field.Changed) -> None:
        if event.field.spec.key == "job":
            self._lengthen()
        self._share()
        self.state_facts()
        self.action_again()

    def _lengthen(self) -> None:
        """Say how long the job is in what is counted for it."""
        texts, wanted = self.form.texts, "samples" in card_of(self.form.texts)
        if wanted and not texts["samples"]:
            self.form.put({"samples": FIRST_SAMPLES, "tokens": ""})
        elif not wanted and not texts["tokens"]:
            self.form.put({"samples": "", "tokens": self.form.fields["tokens"].spec.text})
        self.form.look()

    def _share(self) -> None:
        own = {spec.key for spec in plan_fields()}
        texts = {key: text for key, text in self.form.texts.items() if key not in own}
        self._taken = self.trnbench.scenario = texts
