"""The measuring use case: workloads run on the machine at hand, kept as rows of evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from trnbench.answers.measure import MeasureAnswer, MeasuredRow
from trnbench.app.measured_machine import evidence_of, verdict_of
from trnbench.app.use_case import Cancel, Progress, answered_by, never, quiet
from trnbench.evidence.measure.device import DeviceChoice
from trnbench.evidence.measure.given_decoders import decoder_sizes
from trnbench.evidence.measure.session import run_session
from trnbench.evidence.measure.suites import KINDS, SuiteName
from trnbench.evidence.measure.worker import WorkRequest
from trnbench.facts import parsing
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.parsing import maybe, read
from trnbench.facts.records import asdict

MeasureKind = Literal["all", "matrix", "collective", "train"]
HOST_DEVICES = 8
BUDGET = "5m"


def run(
    catalog: Catalog,
    request: WorkRequest,
    *,
    progress: Progress = quiet,
    cancel: Cancel = never,
) -> MeasureAnswer:
    """Return what was measured."""
    session = run_session(request, progress=progress, cancel=cancel)
    rows = tuple(MeasuredRow(cells=cells) for cells in session.rows)
    kinds = {row.text("kind") for row in rows}
    return MeasureAnswer(
        device=session.device,
        rows=rows,
        missing=tuple(kind for kind in request.kinds if kind not in kinds),
        verdict=verdict_of(catalog, evidence_of(rows)) if "train" in kinds else None,
        skipped=tuple(session.skipped),
        remarks=tuple(session.remarks),
        stopped=session.stopped,
    )


@answered_by(run)
def measure(
    kind: MeasureKind = "all",
    *,
    suite: SuiteName = "quick",
    device: DeviceChoice = "auto",
    host_devices: int | str = HOST_DEVICES,
    budget: float | str = BUDGET,
    name: str | None = None,
    seed: int | str = 0,
    decoder: str | Sequence[str] = (),
    catalog: Catalog | None = None,
    progress: Progress = quiet,
    cancel: Cancel = never,
) -> WorkRequest:
    """Return workloads timed on all devices of the machine at hand at once.

    `kind`: matrix (products, passes over memory, launches), collective, train (steps of three
    small decoders), or all. `suite`: quick or full. `device`: auto, cpu, cuda or neuron; of a host
    without others, `host_devices` are made. No measurement begins after `budget` seconds. `name`:
    what the machine is called in the rows; unasked host-cpu, or after its chip. `decoder`: sizes of
    decoders to train in place of those three, such as layers=4,hidden=512,tp=2.

    >>> from trnbench import measure
    >>> answer = measure("matrix", device="cpu", host_devices=2, budget="0.1s")
    >>> [row.text("kernel") for row in answer.rows]
    ['program', 'kernel']
    """
    del catalog, progress, cancel
    parsing.literal("kind", kind, MeasureKind)
    return WorkRequest(
        kinds=KINDS if kind == "all" else (kind,),
        suite=parsing.literal("--suite", suite, SuiteName),
        device=parsing.literal("--device", device, DeviceChoice),
        host_devices=read(parsing.whole("--host-devices", most=512), host_devices),
        budget_s=read(parsing.duration("--budget"), budget),
        instance=maybe(parsing.file_name, name),
        seed=read(parsing.whole("--seed", least=0), seed),
        decoders=tuple(map(decoder_sizes, parsing.texts(decoder))),
    )


def inputs_of(request: WorkRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    return asdict(request)
