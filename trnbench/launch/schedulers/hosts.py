"""Existing hosts (torchrun over ssh, Slurm), and Slurm on machines of AWS ParallelCluster 3.

Sources: sbatch of NxD Training's and torchtitan's examples; torchrun's elastic launch;
aws-parallelcluster 3.12 (validators, launch templates; capacity blocks since 3.8.0) and
awsome-distributed-training, 2.aws-parallelcluster.
"""

from __future__ import annotations

import datetime

from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import replace
from trnbench.launch.plan import LaunchPlan
from trnbench.launch.software import Framework, JobFiles, Scheduler, ec2
from trnbench.launch.written import from_template, yaml_text

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


def _anything(platform: Platform) -> str | None:
    return None  # its owner can start it


TORCHRUN = Scheduler(
    name="torchrun",
    title="torchrun over ssh",
    versions="PyTorch 2",
    source="torchrun (Elastic Launch), PyTorch docs",
    date=datetime.date(2026, 8, 22),
    where=("NODE_RANK=${NODE_RANK:-0}", "HEAD=${HEAD:-127.0.0.1}"),
    cannot=_anything,
    files=_torchrun,
    assumes=("the hosts reach each other by ssh without a password",),
)
SLURM = Scheduler(
    name="slurm",
    title="Slurm",
    versions="sbatch",
    source="NxD Training 1.6.0 train_setup.sh; torchtitan multinode_trainer.slurm",
    date=datetime.date(2026, 8, 22),
    where=_ON_SLURM,
    cannot=_anything,
    files=slurm_files,
    assumes=("this folder is on a file system that every node of the cluster sees",),
)


_CLUSTER = "cluster.yaml"
_FSX = "/fsx"


def _cluster(plan: LaunchPlan) -> dict[str, object]:
    machine: dict[str, object] = {
        "Name": "nodes",
        "InstanceType": plan.host_type,
        # Reserved machines are paid anyway: they are started with the cluster.
        "MinCount": plan.hosts if plan.reserved else 0,
        "MaxCount": plan.hosts,
    }
    if plan.host_adapters:
        machine["Efa"] = {"Enabled": True}
    if plan.reserved:
        # A block is no placement group's, and is held whole.
        machine["CapacityReservationTarget"] = {"CapacityReservationId": "${RESERVATION_ID}"}
    return {
        "Region": "${REGION}",
        "Image": {"Os": "ubuntu2204"},
        "HeadNode": {
            "InstanceType": "m5.8xlarge",
            "Networking": {"SubnetId": "${HEAD_SUBNET_ID}"},
            "Ssh": {"KeyName": "${KEY_NAME}"},
            "LocalStorage": {"RootVolume": {"Size": 500}},
        },
        "Scheduling": {
            "Scheduler": "slurm",
            "SlurmQueues": [
                {
                    "Name": "train",
                    "CapacityType": "CAPACITY_BLOCK" if plan.reserved else "ONDEMAND",
                    "Networking": {
                        "SubnetIds": ["${SUBNET_ID}"],
                        "PlacementGroup": {"Enabled": not plan.reserved},
                    },
                    "ComputeSettings": {
                        "LocalStorage": {
                            "EphemeralVolume": {"MountDir": "/scratch"},
                            "RootVolume": {"Size": 512},
                        }
                    },
                    "CustomActions": {"OnNodeConfigured": {"Script": "${NODE_CONFIGURED_SCRIPT}"}},
                    "ComputeResources": [machine],
                }
            ],
        },
        "SharedStorage": [
            {
                "Name": "fsx",
                "MountDir": _FSX,
                "StorageType": "FsxLustre",
                "FsxLustreSettings": {"StorageCapacity": 1200, "DeploymentType": "SCRATCH_2"},
            }
        ],
    }


def _cluster_files(plan: LaunchPlan, framework: Framework, stamp: str) -> JobFiles:
    job = slurm_files(plan, framework, stamp)
    make = (
        'pcluster create-cluster --cluster-name "${JOB_NAME}" '
        f'--cluster-configuration "$here/filled/{_CLUSTER}"'
    )
    start = (
        "if ! command -v sbatch >/dev/null; then",
        "  # Not on the cluster: make it.",
        f"  {make}",
        f'  echo "once it is up, copy this folder below {_FSX}; run start.sh on its head node"',
        "  exit",
        "fi",
        *job.start,
    )
    cluster = yaml_text(_cluster(plan), head=(stamp,))
    return JobFiles(texts={**job.texts, _CLUSTER: cluster}, filled=(_CLUSTER,), start=start)


PARALLELCLUSTER = replace(
    SLURM,
    name="parallelcluster",
    title="Slurm on AWS ParallelCluster",
    versions="ParallelCluster 3.8 and later",
    source="aws-parallelcluster 3.12; awsome-distributed-training",
    date=datetime.date(2026, 2, 21),
    cannot=ec2,
    files=_cluster_files,
    defaults={"CHECKPOINT_DIR": f"{_FSX}/checkpoints", "COMPILE_CACHE": f"{_FSX}/compiled"},
    assumes=(
        f"this folder is copied below {_FSX} of the cluster, which every node sees",
        "NODE_CONFIGURED_SCRIPT installs the framework and the drivers of the chips on each node",
        "head node, disks and the 1.2 TB of scratch storage are a start: change cluster.yaml",
    ),
)
