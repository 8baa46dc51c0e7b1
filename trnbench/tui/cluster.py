"""The cluster that is looked at in detail: a model on so many instances, and a layout there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trnbench.answers.row import Row

DEGREES = ("tp", "pp", "dp", "cp", "ep", "vpp", "micro_batch")
MODES = ("zero", "recompute", "schedule")
JOB = ("model", "instance", "nodes", "global_batch", "sequence", "precision")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What is trained where, as texts of fields; `layout` has those settings that are chosen."""

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
    """Return the cluster and the layout of a row of a comparison or of a search."""
    return Cluster(
        job={key: _text(row.get(key)) for key in JOB},
        layout=layout_of(row),
    )


def layout_of(row: Row) -> dict[str, str]:
    """Return the settings of a row that make its layout."""
    return {key: _text(row.get(key)) for key in (*DEGREES, *MODES)}


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)
