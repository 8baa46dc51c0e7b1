"""The job and the layout as forms, for the views that look at one cluster in detail."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from textual.containers import VerticalScroll
from textual.widgets import Static

from trnbench import parsing
from trnbench.catalog.search import Catalog
from trnbench.errors import InputError
from trnbench.tui.cluster import DEGREES, MODES
from trnbench.tui.layout_questions import Job
from trnbench.tui.widgets.field import FieldSpec, Form

CHOICES = {
    "recompute": ("none", "selective", "full"),
    "schedule": ("1f1b", "gpipe", "interleaved", "zb-h1"),
    "zero": ("0", "1", "2", "3"),
}
STEPS = ("", "1", "2", "4", "8", "16", "32", "64")


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
    """Return the fields of a layout; what is empty is chosen by a search."""
    return [
        *(
            FieldSpec(
                key=name,
                label=name.replace("_", "-"),
                advice="any",
                parse=parsing.optional(parsing.whole(name)),
                choices=STEPS,
            )
            for name in DEGREES
        ),
        *(
            FieldSpec(
                key=name,
                label=name,
                advice="any",
                parse=parsing.optional(_zero if name == "zero" else _mode(name)),
                choices=("", *CHOICES[name]),
            )
            for name in MODES
        ),
    ]


def job_of(form: Form) -> Job:
    """Return the job of the form's last good values."""
    value = {key: form.value(key) for key in form.fields}
    return Job(
        model=str(value["model"]),
        instance=str(value["instance"]),
        nodes=value["nodes"],  # type: ignore[arg-type]
        global_batch=value["global_batch"],  # type: ignore[arg-type]
        sequence=value["sequence"],  # type: ignore[arg-type]
        precision=str(value["precision"]),
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


def layout_values(form: Form) -> tuple[tuple[str, object], ...]:
    """Return the settings of a layout by name; None is open."""
    return tuple((name, form.value(name)) for name in (*DEGREES, *MODES))


def _precision(text: str) -> str:
    from trnbench.program.precision import recipe_named

    return recipe_named(text).name


def _zero(text: str) -> int:
    if text not in CHOICES["zero"]:
        raise InputError(f"zero must be 0, 1, 2 or 3, found {text!r}")
    return int(text)


def _mode(name: str) -> Callable[[str], str]:
    return parsing.one_of(name, CHOICES[name])
