"""The cluster under inspection: a model on a number of instances, and a layout there."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.records import Record, field
from trnbench.facts.workload.layout import KNOBS
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.show.row import Row

OF_JOB = tuple(name for name, knob in KNOBS.items() if knob.needed)
"""Knobs of the job, equal in all layouts of the job."""
BY_HAND = tuple(name for name in KNOBS if name not in OF_JOB)
JOB = ("model", "instance", "nodes", *OF_JOB)


class Cluster(Record):
    """A training job on a cluster, as texts of fields; `layout` has the knobs that are set."""

    job: Mapping[str, str] = field(
        default_factory=lambda: {
            "model": "llama3.1-70b",
            "instance": "trn1.32xlarge",
            "nodes": "32",
            "global_batch": "1024",
            "sequence": "8192",
            "precision": "bf16-master",
        }
    )
    layout: Mapping[str, str] = field(default_factory=dict)


def cluster_of(row: Row) -> Cluster:
    """The cluster and the layout of a row of a comparison or of a search."""
    return Cluster(
        job={key: _text(row.get(key)) for key in JOB},
        layout=layout_of(row),
    )


def layout_of(row: Row) -> dict[str, str]:
    """The knobs of a row that make its layout, as texts."""
    return {key: _text(row.get(key)) for key in BY_HAND}


def partial_layout_of(row: Row) -> PartialLayout:
    return PartialLayout(**{key: row.get(key) for key in BY_HAND})


def _text(cell: object) -> str:
    if isinstance(cell, bool):
        return "on" if cell else "off"
    return "" if cell is None else str(cell)
