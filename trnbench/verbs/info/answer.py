"""What is known of a kind of model with a training stack on an instance."""

from __future__ import annotations

from typing import Literal

from trnbench.facts.records import Record
from trnbench.facts.workload.choices import Job
from trnbench.show.row import Row, cells

SupportStatus = Literal["fitted", "modelled", "untested", "refused"]
"""From the most that is known to the least."""


class JobCell(Record):
    """A job with a stack, on whichever of its instances.

    `fitted`: the stack's numbers were fitted to some of `measured_rows` that ran the job;
    `modelled`: it runs the job, and its numbers come from other jobs or assumptions; `untested` and
    `refused` as of kinds of models, with who says so in `reason`.
    """

    job: Job
    stack: str
    status: SupportStatus
    measured_rows: int
    reason: str | None = None

    @property
    def row(self) -> Row:
        """The row of machine outputs."""
        return cells(self, "stack job status measured_rows reason")


class SupportCell(Record):
    """A kind of model with a stack on an instance.

    `fitted`: the stack's numbers were fitted to `measured_rows` of them here; `modelled`: it runs
    them, and its numbers come from elsewhere; `untested`: nobody says that it runs them; `refused`:
    its makers say that it does not, in `reason`.
    """

    family: str
    stack: str
    instance: str
    status: SupportStatus
    measured_rows: int
    reason: str | None = None

    @property
    def row(self) -> Row:
        """The row of machine outputs."""
        return cells(self, "family stack instance status measured_rows reason")
