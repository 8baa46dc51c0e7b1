"""Statements on all steps in files: the run of a log, or columns that a table lacks."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.errors import InputError
from trnbench.facts.parsing import clusters, whole
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.verbs.asking.knobs import GIVEN_KNOBS
from trnbench.verbs.asking.question import Question, group, option


def _cluster(text: str) -> str:
    if len(clusters(text)) != 1:
        raise InputError("--on: measured steps are of one cluster")
    return text.strip()


class GivenPlace(Question):
    """The model of a run, and its cluster."""

    model: str | None = option(
        "The model, if the file does not say.",
        default=None,
        completes=("models",),
    )
    on: str | None = option(
        "Where it ran, if the file does not say.",
        default=None,
        parse=_cluster,
        metavar="INSTANCE[:NODES]",
        completes=("instances",),
    )

    @property
    def instance(self) -> str | None:
        """The instance type."""
        return None if self.on is None else clusters(self.on)[0][0]

    @property
    def nodes(self) -> int | None:
        """The number of instances, where it is said."""
        return clusters(self.on)[0][1] if self.on and ":" in self.on else None


class GivenRun(GivenPlace):
    """A run: where it was, and the knobs of its layout that are known."""

    layout: PartialLayout = group(GIVEN_KNOBS)
    logical_size: int | None = option(
        "Physical NeuronCores in a logical one.", default=None, name="lnc", read=whole, shown=False
    )

    @property
    def cells(self) -> Mapping[str, str]:
        """The cells of every row of a table."""
        from trnbench.evidence.columns import cells_of

        said = {name: str(value) for name, value in self._where.items() if value is not None}
        return {**said, **cells_of(self.layout.given)}

    @property
    def plain(self) -> dict[str, object] | None:
        """The run as plain data; None where nothing is said."""
        return {**self._where, **self.layout.plain} if self.cells else None

    @property
    def _where(self) -> dict[str, object]:
        lnc = {} if self.logical_size is None else {"lnc": self.logical_size}
        return {"model": self.model, "instance": self.instance, "nodes": self.nodes, **lnc}

    def inputs(self) -> dict[str, object]:
        """Return the run as plain data under one key."""
        return {"given": self.plain}
