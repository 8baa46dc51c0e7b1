"""Amazon EKS (eksctl, PyTorchJob, TrainJob) and Ray on it (KubeRay).

Sources: eksctl v1alpha5 schema and awsome-distributed-training 4.amazon-eks; Neuron SDK deploy/eks
(device plugin, resources); kubeflow/trainer 2.3 and training-operator v1; KubeRay v1 and Ray Train.
"""

from __future__ import annotations

import datetime
import json

from trnbench.launch.plan import LaunchPlan
from trnbench.launch.software import (
    LAUNCH_FOLDER,
    ON_SHARED,
    SHARED_FOLDER,
    Framework,
    JobFiles,
    Scheduler,
    in_turn,
)
from trnbench.launch.written import from_template, yaml_text

_NEURON_CHART = "oci://public.ecr.aws/neuron/neuron-helm-chart"
_ON_RAY = "ray_job.py"


def _resources(plan: LaunchPlan) -> dict[str, object]:
    device = "aws.amazon.com/neuron" if plan.neuron else "nvidia.com/gpu"
    wanted = {device: plan.host_chips}
    if plan.host_adapters and plan.hosts > 1:
        wanted["vpc.amazonaws.com/efa"] = plan.host_adapters
    # Requests of such resources equal their limits.
    return {"requests": dict(wanted), "limits": dict(wanted)}


def _mounts() -> list[dict[str, object]]:
    places = {"launch": LAUNCH_FOLDER, "shared": SHARED_FOLDER, "memory": "/dev/shm"}
    return [{"name": name, "mountPath": path} for name, path in places.items()]


def _volumes(plan: LaunchPlan) -> list[dict[str, object]]:
    # Containers get 64 MB of /dev/shm by default, too little for processes that share data there.
    return [
        {"name": "launch", "configMap": {"name": plan.name}},
        {"name": "shared", "persistentVolumeClaim": {"claimName": "${CLAIM}"}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]


def _on_nodes(plan: LaunchPlan) -> dict[str, object]:
    taint = "aws.amazon.com/neuron" if plan.neuron else "nvidia.com/gpu"
    return {
        "nodeSelector": {"node.kubernetes.io/instance-type": plan.host_type},
        "tolerations": [{"key": taint, "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": _volumes(plan),
    }


def _cluster(plan: LaunchPlan) -> dict[str, object]:
    group: dict[str, object] = {
        "name": "train",
        "instanceType": plan.host_type,
        **{"minSize": plan.hosts, "desiredCapacity": plan.hosts, "maxSize": plan.hosts},
        "availabilityZones": ["${ZONE}"],
        "privateNetworking": True,
        "efaEnabled": bool(plan.host_adapters),
    }
    if plan.reserved:
        target = {"capacityReservationTarget": {"capacityReservationID": "${RESERVATION_ID}"}}
        group |= {"capacityReservation": target}
        group |= {"instanceMarketOptions": {"marketType": "capacity-block"}}
    return {
        "apiVersion": "eksctl.io/v1alpha5",
        "kind": "ClusterConfig",
        "metadata": {"name": plan.name, "region": "${REGION}", "version": "1.34"},
        "iam": {"withOIDC": True},
        "managedNodeGroups": [group],
    }


def _pytorch_job(plan: LaunchPlan, command: list[str]) -> dict[str, object]:
    container = {
        **{"name": "pytorch", "image": "${IMAGE}", "command": command},
        **{"resources": _resources(plan), "volumeMounts": _mounts()},
    }
    pod = {"spec": {**_on_nodes(plan), "containers": [container]}}
    # The first worker is the master, so each host is a replica of one kind.
    worker = {"restartPolicy": "OnFailure", "template": pod}
    others = {"Worker": {"replicas": plan.hosts - 1, **worker}} if plan.hosts > 1 else {}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": plan.name},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, **worker}, **others}},
    }


def _train_job(plan: LaunchPlan, command: list[str]) -> dict[str, object]:
    pod = {"spec": {**_on_nodes(plan), "containers": [{"name": "node", "volumeMounts": _mounts()}]}}
    job = {"name": "node", "template": {"spec": {"template": pod}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": plan.name},
        "spec": {
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": "ClusterTrainingRuntime",
                "name": "torch-distributed",
            },
            "trainer": {
                "numNodes": plan.hosts,
                # One process a host, which starts the others: "auto" would count GPUs, or CPUs.
                "numProcPerNode": 1,
                "image": "${IMAGE}",
                "command": command,
                "resourcesPerNode": _resources(plan),
            },
            "runtimePatches": [
                {
                    "manager": "trnbench.dev/launch",
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
                }
            ],
        },
    }


def _making(plan: LaunchPlan) -> tuple[str, ...]:
    """Lines of bash that make the cluster, on request."""
    # `create` refuses a name that is there, `apply` replaces; on the side of the server, because
    # the client's way keeps a second copy in an annotation of 256 KiB at most.
    plugin = f"  helm upgrade --install neuron-helm-chart {_NEURON_CHART} --set npd.enabled=false"
    return (
        'if [ "${1:-job}" = cluster ]; then',
        '  eksctl create cluster -f "$here/filled/cluster.yaml"',
        *((plugin,) if plan.neuron else ()),
        "  exit",
        "fi",
        f'kubectl create configmap {plan.name} --from-file="$here" --dry-run=client -o yaml |'
        " kubectl apply --server-side -f -",
    )


def _eks(plan: LaunchPlan, framework: Framework, stamp: str) -> JobFiles:
    command = ["bash", "-c", in_turn(framework, f"bash {LAUNCH_FOLDER}/train.sh")]
    documents = {
        "cluster.yaml": _cluster(plan),
        "pytorchjob.yaml": _pytorch_job(plan, command),
        "trainjob.yaml": _train_job(plan, command),
    }
    return JobFiles(
        texts={name: yaml_text(document, head=(stamp,)) for name, document in documents.items()},
        filled=tuple(documents),
        start=(*_making(plan), 'kubectl apply -f "$here/filled/${JOB_KIND}.yaml"'),
    )


def _ray(plan: LaunchPlan, framework: Framework, stamp: str) -> JobFiles:
    def group(resources: object, nodes: dict[str, object]) -> dict[str, object]:
        container = {
            **{"name": "ray", "image": "${IMAGE}", "resources": resources},
            "volumeMounts": _mounts(),
        }
        return {"spec": {**nodes, "containers": [container]}}

    # The head starts nothing itself: with no processors to give, Ray places no worker on it.
    head = {"requests": {"cpu": 4, "memory": "16Gi"}, "limits": {"cpu": 4, "memory": "16Gi"}}
    job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": plan.name},
        "spec": {
            "entrypoint": f"python {LAUNCH_FOLDER}/{_ON_RAY}",
            **{"submissionMode": "K8sJobMode", "shutdownAfterJobFinishes": True},
            "rayClusterSpec": {
                "headGroupSpec": {
                    "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0"},
                    "template": group(head, {"volumes": _volumes(plan)}),
                },
                "workerGroupSpecs": [
                    {
                        "groupName": "hosts",
                        **dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), plan.hosts),
                        # Whole hosts are given out: Ray counts NeuronCores of some types alone.
                        # Encoded twice, as the text passes a shell that takes one level of quotes.
                        "rayStartParams": {"resources": json.dumps(json.dumps({"host": 1}))},
                        "template": group(_resources(plan), _on_nodes(plan)),
                    }
                ],
            },
        },
    }
    turns = ["1", "0"] if framework.compiler else ["0"]
    texts = {
        "cluster.yaml": yaml_text(_cluster(plan), head=(stamp,)),
        "rayjob.yaml": yaml_text(job, head=(stamp,)),
        _ON_RAY: from_template(
            "ray_job.py", stamp=stamp, plan=plan, turns=turns, folder=LAUNCH_FOLDER
        ),
    }
    filled = ("cluster.yaml", "rayjob.yaml")
    start = (*_making(plan), 'kubectl apply -f "$here/filled/rayjob.yaml"')
    return JobFiles(texts=texts, filled=filled, start=start)


EKS = Scheduler(
    name="eks",
    title="Amazon EKS",
    versions="eksctl v1alpha5, Kubernetes 1.34, PyTorchJob v1 or TrainJob v1alpha1",
    source="eksctl schema, Neuron SDK deploy/eks, kubeflow/trainer 2.3",
    date=datetime.date(2026, 8, 21),
    # The operator of PyTorchJob sets RANK and MASTER_ADDR, that of TrainJob PET_*.
    where=("NODE_RANK=${PET_NODE_RANK:-${RANK:-0}}", "HEAD=${PET_MASTER_ADDR:-$MASTER_ADDR}"),
    files=_eks,
    defaults={**ON_SHARED, "JOB_KIND": "pytorchjob"},
    assumes=(
        "`bash start.sh cluster` makes the cluster, `bash start.sh` hands over the job; eksctl "
        "installs the plugin of EFA where it is enabled",
        "Kubeflow's training operator (PyTorchJob) or trainer (TrainJob) is installed",
        "a file system that every pod may write is claimed by CLAIM",
    ),
)
RAY = Scheduler(
    name="ray",
    title="Ray on Amazon EKS",
    versions="KubeRay v1, Ray Train 2",
    source="KubeRay v1, Ray Train, Neuron SDK deploy/eks",
    date=datetime.date(2026, 8, 21),
    where=("NODE_RANK=${NODE_RANK:?}", "HEAD=${HEAD:?}"),
    files=_ray,
    defaults=ON_SHARED,
    assumes=(
        "`bash start.sh cluster` makes the cluster, `bash start.sh` hands over the job",
        "the KubeRay operator is installed, and the image has Ray and the framework",
        "Ray starts one worker a host, which starts its processes by torchrun",
        "a file system that every pod may write is claimed by CLAIM",
    ),
)
