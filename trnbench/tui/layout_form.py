"""The job and the layout as forms, for the views that look at one cluster in detail."""

from __future__ import annotations

from collections.abc import Mapping

from textual.containers import VerticalScroll
from textual.widgets import Static

from trnbench import parsing
from trnbench.catalog.search import Catalog
from trnbench.tui.cluster import BY_HAND, OF_JOB
from trnbench.tui.layout_questions import ClusterJob
from trnbench.tui.widgets.field import FieldSpec, Form
from trnbench.workload.knob_text import knob_parser, knob_texts
from trnbench.workload.layout import KNOBS, Knob
from trnbench.workload.partial_layout import PartialLayout

DEGREES = ("1", "2", "4", "8", "16", "32", "64")
LABEL = 12
"""Letters of a field's label."""


def job_fields(catalog: Catalog, texts: dict[str, str]) -> list[FieldSpec]:
    """Return the fields of the job, with these texts in them."""
    models = tuple(entry.name for entry in catalog.entries("models"))
    instances = tuple(entry.name for entry in catalog.entries("instances"))
    return [
        FieldSpec(
            key="model",
            label="model",
            text=texts["model"],
            parse=parsing.one_of("model", catalog.names("models")),
            choices=models,
        ),
        FieldSpec(
            key="instance",
            label="instance",
            text=texts["instance"],
            parse=parsing.one_of("instance", catalog.names("instances")),
            choices=instances,
        ),
        *(
            FieldSpec(key=key, label=label, text=texts[key], parse=parse(label), choices=choices)
            for key, label, parse, choices in (
                ("nodes", "nodes", parsing.whole, ("1", "2", "4", "8", "16", "32", "64", "128")),
                (
                    "global_batch",
                    "global batch",
                    parsing.whole,
                    ("256", "512", "1024", "2048", "4096"),
                ),
                ("sequence", "sequence", parsing.sequence, ("2048", "4096", "8192", "32768")),
            )
        ),
        FieldSpec(
            key="precision",
            label="precision",
            text=texts["precision"],
            parse=_precision,
            choices=("bf16-master", "bf16-sr", "fp8", "fp32"),
        ),
    ]


def layout_fields() -> list[FieldSpec]:
    """Return the fields of a layout; what is empty is chosen by a search, or has its default."""
    return [_field(KNOBS[name]) for name in BY_HAND]


def _field(knob: Knob) -> FieldSpec:
    return FieldSpec(
        key=knob.name,
        label=knob.title if len(knob.title) <= LABEL else knob.short,
        advice="any" if knob.searched else "default",
        parse=parsing.optional(knob_parser(knob, knob.title)),
        choices=("", *(DEGREES if knob.is_degree else knob_texts(knob))),
    )


def job_of(form: Form) -> ClusterJob:
    """Return the job of the form's last good values."""
    value = {key: form.value(key) for key in form.fields}
    return ClusterJob(
        model=str(value["model"]),
        instance=str(value["instance"]),
        nodes=value["nodes"],  # type: ignore[arg-type]
        layout=PartialLayout(**{name: value[name] for name in OF_JOB}),
    )


def side_forms(catalog: Catalog, job: Mapping[str, str], view: str) -> VerticalScroll:
    """Return the forms beside a view: the job `VIEW-job`, and the layout by hand `VIEW-hand`."""
    return VerticalScroll(
        Static("cluster", classes="heading"),
        Form(job_fields(catalog, dict(job)), id=f"{view}-job"),
        Static("layout by hand", classes="heading"),
        Form(layout_fields(), id=f"{view}-hand"),
        classes="side",
        can_focus=False,
    )


def layout_by_hand(form: Form) -> PartialLayout:
    """Return the layout of the form's last good values."""
    return PartialLayout(**{name: form.value(name) for name in BY_HAND})


def _precision(text: str) -> str:
    from trnbench.program.precision import recipe_named

    return recipe_named(text).name
