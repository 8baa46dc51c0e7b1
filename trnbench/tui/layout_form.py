"""The job and the layout as forms, for the views that look at a cluster in detail."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trnbench.facts import parsing
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.workload.layout import ANY, KNOBS, Knob, Value
from trnbench.facts.workload.partial_layout import PartialLayout, TrainCase, knob_parser, knob_texts
from trnbench.tui.cluster import BY_HAND, OF_JOB
from trnbench.tui.forms import BATCHES, NODES, SEQUENCES, field, name_field, precision_field
from trnbench.tui.widgets.field import FieldSpec, Form

DEGREES = ("1", "2", "4", "8", "16", "32", "64")
LABEL = 12
"""Letters of a field's label."""


def job_fields(catalog: Catalog, texts: Mapping[str, str]) -> list[FieldSpec]:
    """The fields of the job, with these texts in them."""
    return [
        name_field(catalog, "model", texts["model"]),
        name_field(catalog, "instance", texts["instance"]),
        field("nodes", parsing.whole, texts["nodes"], choices=("1", "2", "4", "8", *NODES)),
        field("global_batch", parsing.whole, texts["global_batch"], choices=("256", *BATCHES)),
        field("sequence", parsing.sequence, texts["sequence"], choices=SEQUENCES),
        precision_field(texts["precision"]),
    ]


def layout_fields() -> list[FieldSpec]:
    """The fields of a layout; an empty field is chosen by a search, or has its default."""
    return [_field(KNOBS[name]) for name in BY_HAND]


def _field(knob: Knob) -> FieldSpec:
    asked = (ANY,) if knob.on_request else ()
    return FieldSpec(
        key=knob.name,
        label=knob.title if len(knob.title) <= LABEL else knob.short,
        advice="any" if knob.searched else "default",
        parse=_optional(knob),
        choices=("", *asked, *(DEGREES if knob.counts else knob_texts(knob))),
    )


def _optional(knob: Knob) -> Callable[[str], Value | None]:
    """A parser for which no text leaves a knob open; `any` lets a search choose."""
    one = knob_parser(knob, knob.title)
    if not knob.on_request:
        return parsing.optional(one)
    return lambda text: one(text) if text.strip() else None


def job_of(form: Form) -> TrainCase:
    value = form.values
    layout = PartialLayout(**{name: value.pop(name) for name in OF_JOB})
    return TrainCase(layout=layout, **value)


def layout_by_hand(form: Form) -> PartialLayout:
    return PartialLayout(**form.values)
