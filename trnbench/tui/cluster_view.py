"""Common base of Layouts, Schedule and Memory: a cluster, a layout there, and their forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from trnbench.facts import parsing
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record
from trnbench.facts.workload.layout import ANY, KNOBS, Knob, Value
from trnbench.facts.workload.partial_layout import PartialLayout, TrainCase, knob_parser, knob_texts
from trnbench.show.row import Row
from trnbench.tui.forms import BATCHES, LAYOUT, NODES, SEQUENCES, field, name_field, precision_field
from trnbench.tui.view import FORM_HINT, View
from trnbench.tui.views import PLACE_OF
from trnbench.tui.widgets.field import FieldSpec, Form

OF_JOB = tuple(name for name, knob in KNOBS.items() if knob.needed)
"""Knobs of the job, equal in all layouts of the job."""
BY_HAND = tuple(name for name in KNOBS if name not in OF_JOB)
JOB = ("model", "instance", "nodes", *OF_JOB)


class Cluster(Record):
    """A training job on a cluster, as texts of fields; `layout` has the knobs that are set."""

    job: Mapping[str, str]
    layout: Mapping[str, str]


FIRST_CLUSTER = Cluster(
    job={
        "model": "llama3.1-70b",
        "instance": "trn1.32xlarge",
        "nodes": "32",
        "global_batch": "1024",
        "sequence": "8192",
        "precision": "bf16-master",
    },
    layout={},
)


def cluster_of(row: Row) -> Cluster:
    """The cluster and the layout of a row of a comparison or of a search."""
    return Cluster(job={key: _text(row.get(key)) for key in JOB}, layout=layout_of(row))


def layout_of(row: Row) -> dict[str, str]:
    """The knobs of a row that make its layout, as texts."""
    return {key: _text(row.get(key)) for key in BY_HAND}


def partial_layout_of(row: Row) -> PartialLayout:
    return PartialLayout(**{key: row.get(key) for key in BY_HAND})


def _text(cell: object) -> str:
    if isinstance(cell, bool):
        return "on" if cell else "off"
    return "" if cell is None else str(cell)


CARD = ("tp", "pp", "cp", "ep", "micro_batch", "recompute", "zero", "schedule")
"""Knobs of a layout that are always in sight."""
OF_JOBS = "adapters, answers and rewards"
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
    return [knob_field(KNOBS[name]) for name in BY_HAND]


def knob_field(knob: Knob) -> FieldSpec:
    asked = (ANY,) if knob.on_request else ()
    return FieldSpec(
        key=knob.name,
        label=knob.title if len(knob.title) <= LABEL else knob.short,
        advice="any" if knob.searched else "default",
        parse=_optional(knob),
        choices=("", *asked, *(DEGREES if knob.counts else knob_texts(knob))),
        group=OF_JOBS if knob.of_jobs else LAYOUT,
    )


def _optional(knob: Knob) -> Callable[[str], Value | None]:
    """A parser for which no text leaves a knob open; `any` lets a search choose."""
    parse = knob_parser(knob, knob.title)
    if not knob.on_request:
        return parsing.optional(parse)
    return lambda text: parse(text) if text.strip() else None


class ClusterView(View):
    """A view of the cluster that was chosen last, here or in another view."""

    def __init__(self) -> None:
        super().__init__()
        self._cluster: Cluster | None = None

    def side(self) -> Widget:
        """The forms of the job and of a layout by hand."""
        self._cluster = self.trnbench.cluster
        fields = job_fields(self.trnbench.catalog, self._cluster.job)
        side = VerticalScroll(
            Form(fields, id=f"{self.NAME}-job"),
            Static("layout by hand", classes="heading"),
            Form(layout_fields(), id=f"{self.NAME}-hand", card=lambda texts: CARD),
            classes="side",
            can_focus=False,
        )
        side.border_title = "question"
        side.border_subtitle = FORM_HINT
        return side

    def trail(self) -> Sequence[str]:
        """The model with the length of its run, the cluster, and the view above."""
        texts, run = self.job_form.texts, self.trnbench.scenario
        length = run.get("tokens", "") if run.get("model") == texts["model"] else ""
        question = ", ".join(filter(None, (texts["model"], length)))
        above = self.trnbench.above.get(self.NAME)
        step = above if PLACE_OF[above] == PLACE_OF[self.NAME] else ""
        return (question, f"{texts['instance']} x {texts['nodes']}", step)

    def details(self) -> str:
        texts = self.job_form.texts
        return f"batch {texts['global_batch']}, sequence {texts['sequence']}, {texts['precision']}"

    def on_screen_resume(self) -> None:
        if self._cluster is not None and self.trnbench.cluster is not self._cluster:
            self.take_cluster()

    def take_cluster(self) -> None:
        """Write the cluster that was chosen last into the forms."""
        self._cluster = self.trnbench.cluster
        for form, texts in (
            (self.job_form, self._cluster.job),
            (self.hand_form, self._cluster.layout),
        ):
            form.put(texts)
            form.look()
        self.state_facts()

    def choose_cluster(self, cluster: Cluster) -> None:
        self._cluster = self.trnbench.cluster = cluster

    @property
    def job_form(self) -> Form:
        return self.query_one(f"#{self.NAME}-job", Form)

    @property
    def hand_form(self) -> Form:
        return self.query_one(f"#{self.NAME}-hand", Form)

    @property
    def job(self) -> TrainCase:
        """The job of the form's last good values."""
        value = self.job_form.values
        layout = PartialLayout(**{name: value.pop(name) for name in OF_JOB})
        return TrainCase(layout=layout, **value)

    @property
    def layout_by_hand(self) -> PartialLayout:
        return PartialLayout(**self.hand_form.values)
