"""Slurm on machines that AWS ParallelCluster 3 makes.

Sources: aws-parallelcluster 3.12 (validators, launch templates; capacity blocks since 3.8.0) and
awsome-distributed-training, 2.aws-parallelcluster.
"""

from __future__ import annotations

import datetime

from trnbench.facts.records import replace
from trnbench.launch.framework import Framework
from trnbench.launch.plan import LaunchPlan
from trnbench.launch.scheduler import JobFiles, ec2
from trnbench.launch.schedulers.hosts import SLURM, slurm_files
from trnbench.launch.written import yaml_text

_CLUSTER = "cluster.yaml"
_SHARED = "/fsx"


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
                "MountDir": _SHARED,
                "StorageType": "FsxLustre",
                "FsxLustreSettings": {"StorageCapacity": 1200, "DeploymentType": "SCRATCH_2"},
            }
        ],
    }


def _files(plan: LaunchPlan, framework: Framework, stamp: str) -> JobFiles:
    job = slurm_files(plan, framework, stamp)
    make = (
        'pcluster create-cluster --cluster-name "${JOB_NAME}" '
        f'--cluster-configuration "$here/filled/{_CLUSTER}"'
    )
    start = (
        "if ! command -v sbatch >/dev/null; then",
        "  # Not on the cluster: make it.",
        f"  {make}",
        f'  echo "once it is up, copy this folder below {_SHARED}; run start.sh on its head node"',
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
    files=_files,
    defaults={"CHECKPOINT_DIR": f"{_SHARED}/checkpoints", "COMPILE_CACHE": f"{_SHARED}/compiled"},
    assumes=(
        f"this folder is copied below {_SHARED} of the cluster, which every node sees",
        "NODE_CONFIGURED_SCRIPT installs the framework and the drivers of the chips on each node",
        "head node, disks and the 1.2 TB of scratch storage are a start: change cluster.yaml",
    ),
)
