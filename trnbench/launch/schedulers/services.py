"""Services of AWS that run containers, and SkyPilot.

Sources: botocore 1.43.67 (SageMaker CreateTrainingJob, Batch RegisterJobDefinition, ECS
RegisterTaskDefinition), aws-neuron-samples of AWS Batch, the ECS guide on Neuron devices; SkyPilot
YAML reference.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from trnbench.facts.hardware.instance import Platform
from trnbench.launch.plan import LaunchPlan, host_type
from trnbench.launch.software import (
    LAUNCH_FOLDER,
    ON_SHARED,
    SHARED_FOLDER,
    Framework,
    JobFiles,
    Scheduler,
    ec2,
    in_turn,
)
from trnbench.launch.written import json_text, yaml_text

_REGION = '--region "${REGION}"'
_SEND = 'aws s3 sync "$here" "${LAUNCH_S3}" --exclude "filled/*"'
_FETCH = f"aws s3 cp --recursive ${{LAUNCH_S3}} {LAUNCH_FOLDER}"
# Shares of a host that a container may ask for: AWS's sample for trn1.32xlarge asks for 96 of 128
# processors, and agents need some of the memory.
_CPU_SHARE, _MEMORY_SHARE = 0.75, 0.9
SAGEMAKER_TYPES = (
    *("trn1.2xlarge", "trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge", "p4d.24xlarge"),
    *("p4de.24xlarge", "p5.4xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"),
    *("p6-b200.48xlarge", "p6-b300.48xlarge"),
)
"""Instance types of SageMaker training jobs, without `ml.`."""
_LONGEST_S = 432_000
_INPUT = "/opt/ml/input/data"


def _sagemaker(plan: LaunchPlan, framework: Framework, stamp: str) -> JobFiles:
    def channel(name: str, url: str) -> dict[str, object]:
        place = {
            **{"S3DataType": "S3Prefix", "S3Uri": url},
            "S3DataDistributionType": "FullyReplicated",
        }
        # Scripts are copied before the start; data and weights are streamed when they are read.
        mode = "File" if name == "launch" else "FastFile"
        source = {"S3DataSource": place}
        return {"ChannelName": name, "DataSource": source, "InputMode": mode}

    script = in_turn(framework, f"bash {_INPUT}/launch/train.sh")
    machines: dict[str, object] = {
        "InstanceType": f"ml.{plan.host_type}",
        "InstanceCount": plan.hosts,
        "VolumeSizeInGB": 500,
    }
    if plan.reserved:
        machines["TrainingPlanArn"] = "${TRAINING_PLAN_ARN}"
    job = {
        "TrainingJobName": "${JOB_NAME}",
        "RoleArn": "${ROLE_ARN}",
        "AlgorithmSpecification": {
            "TrainingImage": "${IMAGE}",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["bash", "-c"],
            "ContainerArguments": [script],
        },
        "InputDataConfig": [
            channel("launch", "${LAUNCH_S3}"),
            channel("training", "${DATA_S3}"),
            channel("model", "${MODEL_S3}"),
        ],
        "OutputDataConfig": {"S3OutputPath": "${OUTPUT_S3}"},
        "CheckpointConfig": {"S3Uri": "${CHECKPOINT_S3}", "LocalPath": "/opt/ml/checkpoints"},
        "ResourceConfig": machines,
        "StoppingCondition": {"MaxRuntimeInSeconds": _LONGEST_S},
        "Tags": [{"Key": "written-by", "Value": "trnbench"}],
    }
    return _given_to("sagemaker create-training-job", "training-job.json", job)


def _given_to(service: str, name: str, content: object, *calls: str) -> JobFiles:
    """A JSON file that a call of a service is given, before further calls."""
    given = f'aws {service} {_REGION} --cli-input-json "file://$here/filled/{name}"'
    return JobFiles(texts={name: json_text(content)}, filled=(name,), start=(_SEND, given, *calls))


def _sagemaker_cannot(platform: Platform) -> str | None:
    kind = host_type(platform.instance)
    if kind in SAGEMAKER_TYPES and platform.instance.hosts == 1:
        return None
    return f"no training job takes {platform.instance.name}"


def _devices(plan: LaunchPlan) -> list[dict[str, str]]:
    # A container sees only devices that are named; GPUs are asked for as a resource instead.
    adapters = plan.host_adapters if plan.hosts > 1 else 0
    chips = plan.host_chips if plan.neuron else 0
    paths = [f"/dev/infiniband/uverbs{number}" for number in range(adapters)]
    return [{"hostPath": path} for path in (*paths, *(f"/dev/neuron{n}" for n in range(chips)))]


def _room(plan: LaunchPlan) -> tuple[int, int]:
    """Virtual processors and memory (MiB) of a host that a container may ask for."""
    # Services want numbers even where the host's are unknown: the least that can be asked for.
    cpus, memory_mib = plan.host_cpus or 1, plan.host_memory_mib or 1024
    return int(cpus * _CPU_SHARE), int(memory_mib * _MEMORY_SHARE)


def _needs(plan: LaunchPlan) -> list[dict[str, str]]:
    cpus, memory_mib = _room(plan)
    wanted = {"VCPU": cpus, "MEMORY": memory_mib}
    if not plan.neuron:
        wanted["GPU"] = plan.host_chips
    return [{"type": kind, "value": str(amount)} for kind, amount in wanted.items()]


def _file_system() -> dict[str, object]:
    return {"name": "shared", "efsVolumeConfiguration": {"fileSystemId": "${FILE_SYSTEM_ID}"}}


def _script(framework: Framework) -> list[str]:
    train = in_turn(framework, f"bash {LAUNCH_FOLDER}/train.sh")
    return ["bash", "-c", f"{_FETCH} && {train}"]


def _batch(plan: LaunchPlan, framework: Framework, stamp: str) -> JobFiles:
    container = {
        "image": "${IMAGE}",
        "instanceType": plan.host_type,
        "command": _script(framework),
        "jobRoleArn": "${ROLE_ARN}",
        "resourceRequirements": _needs(plan),
        "user": "root",
        "linuxParameters": {"devices": _devices(plan), "sharedMemorySize": 65_536},
        # EFA registers memory that must stay locked, more than any default limit.
        "ulimits": [{"name": "memlock", "hardLimit": -1, "softLimit": -1}],
        "volumes": [_file_system()],
        "mountPoints": [{"sourceVolume": "shared", "containerPath": SHARED_FOLDER}],
    }
    nodes = {
        "numNodes": plan.hosts,
        "mainNode": 0,
        "nodeRangeProperties": [{"targetNodes": "0:", "container": container}],
    }
    definition = {
        "jobDefinitionName": plan.name,
        "type": "multinode",
        "nodeProperties": nodes,
        "tags": {"written-by": "trnbench"},
    }
    submit = (
        f'aws batch submit-job {_REGION} --job-name "${{JOB_NAME}}" --job-queue "${{JOB_QUEUE}}" '
        f"--job-definition {plan.name}"
    )
    return _given_to("batch register-job-definition", "job-definition.json", definition, submit)


def _ecs(plan: LaunchPlan, framework: Framework, stamp: str) -> JobFiles:
    cpus, memory_mib = _room(plan)
    kind, value = ("NeuronDevice", "ALL") if plan.neuron else ("GPU", str(plan.host_chips))
    container = {
        "name": "train",
        "image": "${IMAGE}",
        "essential": True,
        "command": _script(framework),
        "cpu": 1024 * cpus,
        "memory": memory_mib,
        "resourceRequirements": [{"type": kind, "value": value}],
        "linuxParameters": {"sharedMemorySize": 65_536},
        "mountPoints": [{"sourceVolume": "shared", "containerPath": SHARED_FOLDER}],
    }
    definition = {
        "family": plan.name,
        "requiresCompatibilities": ["MANAGED_INSTANCES"],
        "networkMode": "host",
        "taskRoleArn": "${ROLE_ARN}",
        "executionRoleArn": "${ROLE_ARN}",
        "volumes": [_file_system()],
        "containerDefinitions": [container],
    }
    run = f'aws ecs run-task {_REGION} --cluster "${{CLUSTER}}" --task-definition {plan.name}'
    return _given_to("ecs register-task-definition", "task-definition.json", definition, run)


def _ecs_cannot(platform: Platform) -> str | None:
    if platform.instance.hosts > 1:
        return f"it starts hosts one by one, and {platform.instance.name} has several"
    return ec2(platform)


def _one_host(plan: LaunchPlan) -> Iterator[str]:
    if plan.hosts > 1:
        yield (
            f"Amazon ECS starts tasks one by one, and this job needs {plan.hosts} hosts together; "
            "try one host, or another scheduler"
        )


def _sky(plan: LaunchPlan, framework: Framework, stamp: str) -> JobFiles:
    task = {
        "name": plan.name,
        "workdir": ".",
        "num_nodes": plan.hosts,
        "resources": {
            "infra": "aws/${REGION}",
            "instance_type": plan.host_type,
            "image_id": "${IMAGE_ID}",
            "network_tier": "best",
            "disk_size": 512,
        },
        "file_mounts": {
            "/data": {"source": "${DATA_S3}", "mode": "MOUNT"},
            "/checkpoints": {"source": "${CHECKPOINT_S3}", "mode": "MOUNT"},
        },
        "run": in_turn(framework, "bash train.sh") + "\n",
    }
    return JobFiles(
        texts={"task.yaml": yaml_text(task, head=(stamp,))},
        filled=("task.yaml",),
        start=('cd "$here"', f"sky launch --cluster {plan.name} filled/task.yaml"),
    )


SAGEMAKER = Scheduler(
    name="sagemaker",
    title="Amazon SageMaker training job",
    versions="CreateTrainingJob, botocore 1.43.67",
    source="botocore 1.43.67, SageMaker",
    date=datetime.date(2026, 8, 7),
    where=(
        "where=/opt/ml/input/config/resourceconfig.json",
        "NODE_RANK=$(python3 -c 'import json, sys; said = json.load(open(sys.argv[1])); "
        'print(sorted(said["hosts"]).index(said["current_host"]))\' "$where")',
        "HEAD=$(python3 -c 'import json, sys; "
        'print(sorted(json.load(open(sys.argv[1]))["hosts"])[0])\' "$where")',
    ),
    cannot=_sagemaker_cannot,
    files=_sagemaker,
    defaults={
        "DATA_DIR": f"{_INPUT}/training",
        "MODEL_DIR": f"{_INPUT}/model",
        "TOKENIZER_DIR": f"{_INPUT}/model",
        "CHECKPOINT_DIR": "/opt/ml/checkpoints",
    },
    assumes=(
        "a job is ended after 5 days (MaxRuntimeInSeconds of training-job.json)",
        "a job name is used once: change JOB_NAME before each start",
    ),
)
BATCH = Scheduler(
    name="batch",
    title="AWS Batch",
    versions="multi-node parallel job, botocore 1.43.67",
    source="botocore 1.43.67, Batch; aws-neuron-samples, aws-batch",
    date=datetime.date(2026, 8, 7),
    where=(
        "NODE_RANK=$AWS_BATCH_JOB_NODE_INDEX",
        "# The main node does not learn its own address.",
        "own=$(hostname -i)",
        "HEAD=${AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS:-${own%% *}}",
    ),
    files=_batch,
    defaults=ON_SHARED,
    assumes=(
        "the queue's compute environment launches this type with its EFA interfaces, in one "
        "placement group or reservation",
        "the image has the AWS command line and the framework",
    ),
)
ECS = Scheduler(
    name="ecs",
    title="Amazon ECS",
    versions="managed instances, botocore 1.43.67",
    source="botocore 1.43.67, ECS; ECS developer guide, Neuron devices",
    date=datetime.date(2026, 8, 7),
    where=("NODE_RANK=0", "HEAD=127.0.0.1"),
    cannot=_ecs_cannot,
    refusals=_one_host,
    files=_ecs,
    defaults=ON_SHARED,
    assumes=(
        "CLUSTER has a capacity provider of managed instances that allows this type",
        "the image has the AWS command line and the framework",
    ),
)
SKYPILOT = Scheduler(
    name="skypilot",
    title="SkyPilot",
    versions="task YAML of 2026",
    source="SkyPilot YAML reference",
    date=datetime.date(2026, 8, 21),
    where=("NODE_RANK=$SKYPILOT_NODE_RANK", 'HEAD=$(head -n 1 <<<"$SKYPILOT_NODE_IPS")'),
    files=_sky,
    defaults={
        "DATA_DIR": "/data",
        "CHECKPOINT_DIR": "/checkpoints/run",
        "COMPILE_CACHE": "/checkpoints/compiled",
    },
    assumes=(
        "SkyPilot's catalogue lists this instance type in REGION",
        "CODE_DIR and MODEL_DIR are in the image",
    ),
)
