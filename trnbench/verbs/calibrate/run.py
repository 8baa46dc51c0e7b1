"""The calibration use case: measured steps, published or one's own, made into calibration files."""

from __future__ import annotations

from collections.abc import Sequence

from trnbench.errors import InputError
from trnbench.evidence.fit.calibrate import calibrate as fitted
from trnbench.evidence.fit.collectives import fit_collectives
from trnbench.evidence.fit.files import Calibrated, CalibratedCollectives, stack_name
from trnbench.evidence.fit.memory import fits_by_stack
from trnbench.evidence.fit.rows import marked_rows, measured_kernels, measured_rows
from trnbench.evidence.fit.start import start_of
from trnbench.evidence.rows import COLLECTIVES, GPU_KERNELS, KERNELS, STEPS, EvidenceFile, steps_of
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.units import counted
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.measured_files import measured_files
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.calibrate.question import CalibrateQuestion
from trnbench.verbs.measure.machine import beside, with_machines


def run(
    catalog: Catalog, question: CalibrateQuestion, *, progress: Progress = quiet
) -> Calibrated | CalibratedCollectives:
    """Return a training stack fitted to measured steps, near what was known of it before.

    `measurements`: CSV files of measured steps, or logs of steps. Model, place and knobs of the
    layout fill what logs and tables lack. Output of nccom-test and nccl-tests, or CSV files of
    collectives, make a stack of links of the instance `on`. Steps are fitted with it. `stack`
    defaults to all that rows name, and their chips. An unknown `stack` begins as the one that
    `start` names, or as software of a kind: eager, compiled, graph. In a file that marks rows with
    `use` = fit, only those are fitted; `all_rows` takes all, `also` single ones.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from trnbench import calibrate
    >>> with TemporaryDirectory() as folder:
    ...     log = Path(folder) / "run.log"
    ...     _ = log.write_text("".join(f"step {i} | step time: 11.0 s\\n" for i in range(10)))
    ...     ran = {"model": "llama3.1-8b", "on": "trn1.32xlarge", "tp": 8, "micro_batch": 1}
    ...     calibrated = calibrate(log, stack="nxd-trn1", global_batch=64, sequence="4k", **ran)
    >>> len(calibrated.calibration.rows)
    1
    """
    read = measured_files(catalog, question.measurements, question.given)
    remarks = tuple(remark for file in read for remark in file.remarks)
    catalog, files = with_machines(catalog, read), steps_of(read, "fitted")
    sweeps = [file for file in files if file.set in COLLECTIVES]
    links = None
    if sweeps:
        progress(0, 1, "fitting collectives")
        links = _links(catalog, sweeps, question, remarks)
        files = [file for file in files if file not in sweeps]
        if not files:
            if question.start or question.all_rows or question.also:
                raise InputError(
                    "--from, --all-rows and --also are of training steps: none is here"
                )
            return links
        # Steps are fitted on the links as they were measured.
        catalog = beside(catalog, [{("calibration", links.name): links.text()}])
    timed_alone = (KERNELS, GPU_KERNELS) if question.stack is None else ()
    kernels = [file for file in files if file.set in timed_alone]
    for file in files:
        if file.set != STEPS and file not in kernels:
            raise InputError(
                f"{file.name}: has {file.set}; a training stack is fitted to training steps"
            )
    files = [file for file in files if file not in kernels]
    progress(0, 1, "reading rows")
    if not question.all_rows:
        files = marked_rows(files, also=question.also)
    begun = start_of(catalog, question.stack, files, question.start) if question.stack else None
    evidence = measured_rows(catalog, files, stack=begun.stack if begun else None)
    if not evidence.rows:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in evidence.unused[:3])
        raise InputError(f"no row can be fitted{': ' if reasons else ''}{reasons}")
    alone = measured_kernels(catalog, kernels, evidence.rows)
    rows = (*evidence.rows, *alone.rows)
    progress(0, 1, f"fitting {counted(len(rows), 'row')}")
    chips = {row.chip for row in evidence.rows}
    found = fitted(rows, held=chips if question.stack is not None else ())
    return Calibrated(
        catalog=catalog,
        calibration=found,
        memory=fits_by_stack(evidence.held),
        unused=(*evidence.unused, *alone.unused),
        date=question.day,
        start=begun,
        remarks=remarks,
        collectives=links,
    )


calibrate = verb_of("calibrate", CalibrateQuestion, run)


def _links(
    catalog: Catalog,
    sweeps: Sequence[EvidenceFile],
    question: CalibrateQuestion,
    remarks: tuple[str, ...],
) -> CalibratedCollectives:
    found = fit_collectives(catalog, sweeps)
    return CalibratedCollectives(
        fit=found,
        name=stack_name(question.stack, found.instance),
        date=question.day,
        catalog=catalog,
        remarks=remarks,
    )
