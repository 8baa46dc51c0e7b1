"""Existing hosts: torchrun over ssh, and Slurm.

Sources: sbatch of NxD Training's and torchtitan's examples; torchrun's elastic launch.
"""

from __future__ import annotations

import datetime

from trnbench.launch.framework import Framework
from trnbench.launch.plan import LaunchPlan
from trnbench.launch.scheduler import JobFiles, Scheduler, anything, no_refusals
from trnbench.launch.written import from_template

_ON_SLURM = (
    "NODE_RANK=$SLURM_NODEID",
    'HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
)


def _torchrun(plan: LaunchPlan, framework: Framework, stamp: str) -> JobFiles:
    if plan.hosts == 1:
        return JobFiles(texts={}, start=_once(framework, 'bash "$here/train.sh"'))
    return JobFiles(
        texts={"on-all-hosts.sh": from_template("hosts.sh", stamp=stamp, plan=plan)},
        start=_once(framework, 'bash "$here/on-all-hosts.sh"'),
    )


def _once(framework: Framework, command: str) -> tuple[str, ...]:
    return (*((f"COMPILE=1 {command}",) if framework.compiler else ()), command)


def slurm_files(plan: LaunchPlan, framework: Framework, stamp: str) -> JobFiles:
    """Batch script, and the lines that submit it."""
    options = (
        f"--job-name={plan.name}",
        f"--nodes={plan.hosts}",
        *("--ntasks-per-node=1", "--exclusive", "--output=%x-%j.log"),
    )
    submit = 'sbatch ${PARTITION:+--partition="$PARTITION"}'
    start = (
        'cd "$here"',
        *(
            (
                f"compiled=$({submit} --parsable --export=ALL,COMPILE=1 job.sbatch)",
                f'{submit} --dependency="afterok:${{compiled%%;*}}" job.sbatch',
            )
            if framework.compiler
            else (f"{submit} job.sbatch",)
        ),
    )
    script = from_template("job.sbatch", stamp=stamp, options=options)
    return JobFiles(texts={"job.sbatch": script}, start=start)


TORCHRUN = Scheduler(
    name="torchrun",
    title="torchrun over ssh",
    versions="PyTorch 2",
    source="torchrun (Elastic Launch), PyTorch docs",
    date=datetime.date(2026, 8, 22),
    where=("NODE_RANK=${NODE_RANK:-0}", "HEAD=${HEAD:-127.0.0.1}"),
    cannot=anything,
    refusals=no_refusals,
    files=_torchrun,
    defaults={},
    assumes=("the hosts reach each other by ssh without a password",),
)
SLURM = Scheduler(
    name="slurm",
    title="Slurm",
    versions="sbatch",
    source="NxD Training 1.6.0 train_setup.sh; torchtitan multinode_trainer.slurm",
    date=datetime.date(2026, 8, 22),
    where=_ON_SLURM,
    cannot=anything,
    refusals=no_refusals,
    files=slurm_files,
    defaults={},
    assumes=("this folder is on a file system that every node of the cluster sees",),
)
