"""What views ask of the application that shows them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trnbench.facts.catalog.search import Catalog
from trnbench.tui.cluster import Cluster

if TYPE_CHECKING:
    from trnbench.show.report import Report
    from trnbench.verbs.asking.option import Given


class Application(Protocol):
    """The application, as views know it."""

    catalog: Catalog
    today: datetime.date
    cluster: Cluster
    """Cluster of the views that look at a single cluster."""
    scenario: dict[str, str]
    """Texts of the fields that Compare and Plan share."""
    first_run: bool
    """True where no session was left before."""
    folder: Path
    """Folder of written files."""

    @property
    def view_names(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def specs_facts(self) -> tuple[str, ...]: ...

    def texts_of(self, view: str) -> Mapping[str, str]: ...

    def action_view(self, name: str) -> None: ...

    def take_scenario(self, scenario: Given) -> None: ...

    def choose_cluster(self, cluster: Cluster) -> None: ...

    def export_rows(self, report: Report | None, stem: str, output_format: str) -> None: ...

    def copy_command(self, command: str, what: str) -> None: ...
