"""Common base of Layouts and Schedule: the forms of a cluster, and of a layout by hand."""

from __future__ import annotations

from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from trnbench.facts.workload.partial_layout import PartialLayout, TrainCase
from trnbench.tui.cluster import Cluster
from trnbench.tui.layout_form import job_fields, job_of, layout_by_hand, layout_fields
from trnbench.tui.view import View, form_hint
from trnbench.tui.widgets.field import Form


class ClusterView(View):
    """A view of the cluster that was chosen last, here or in another view."""

    DEFAULT_CSS = """
    ClusterView .side Form { height: auto; }
    ClusterView .heading { height: 1; padding: 0 1; text-style: bold; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._cluster: Cluster | None = None

    def side(self) -> Widget:
        """The forms of the job and of a layout by hand."""
        self._cluster = self.trnbench.cluster
        fields = job_fields(self.trnbench.catalog, self._cluster.job)
        return VerticalScroll(
            Static("cluster", classes="heading"),
            Form(fields, id=f"{self.NAME}-job"),
            Static("layout by hand", classes="heading"),
            Form(layout_fields(), id=f"{self.NAME}-hand"),
            form_hint(),
            classes="side",
            can_focus=False,
        )

    def subject(self) -> str:
        """The job in a line."""
        texts = self.job_form.texts
        return (
            f"{texts['model']} on {texts['nodes']} x {texts['instance']}, batch "
            f"{texts['global_batch']}, sequence {texts['sequence']}, {texts['precision']}"
        )

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
        return job_of(self.job_form)

    @property
    def layout_by_hand(self) -> PartialLayout:
        return layout_by_hand(self.hand_form)
