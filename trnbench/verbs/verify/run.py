"""The verification use case: did a launched run go as predicted."""

from __future__ import annotations

from trnbench.evidence.explain.effects import Pricer
from trnbench.evidence.explain.observed import RunCompared
from trnbench.facts.catalog.search import Catalog
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.explain.run import compared
from trnbench.verbs.verify.question import VerifyQuestion


def run(catalog: Catalog, question: VerifyQuestion, *, progress: Progress = quiet) -> RunCompared:
    """Return whether a launched run goes as predicted: its measured step against the 80 % interval.

    `folder` is what `launch` wrote, `logs` what the run has logged (files or folders), or CSV files
    of its steps.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from trnbench.verbs.launch.run import launch
    >>> from trnbench.verbs.verify.run import verify
    >>> from trnbench.verbs.launch.folders import write_launch
    >>> on = {"on": "trn1.32xlarge:4", "stack": "nxdt", "scheduler": "slurm"}
    >>> job = launch("llama2-7b", tp=8, pp=1, micro_batch=1, **on)
    >>> with TemporaryDirectory() as folder:
    ...     write_launch(f"{folder}/job", job, on)
    ...     _ = Path(f"{folder}/run.log").write_text("step time: 3000 s\\n")
    ...     verify(f"{folder}/job", f"{folder}/run.log").steps[0].went
    'slower'
    """
    return compared(catalog, question.asked_of_explain(catalog), Pricer(), progress=progress)


verify = verb_of("verify", VerifyQuestion, run)
