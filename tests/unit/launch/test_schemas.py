"""Job files against what their readers accept: service models of boto3, sourced lists of keys."""

from __future__ import annotations

import ast
import json
import re

import pytest
import yaml
from botocore import loaders, model, validate

from tests.unit.launch.test_nxdt import plan_of
from trnbench.launch.catalogue import FRAMEWORKS, SCHEDULERS
from trnbench.launch.schedulers.services import SAGEMAKER_TYPES

LAYOUT = {"tp": 8, "dp": 8, "zero": 1, "global_batch": 64, "sequence": 4096}
SERVICES = {
    "sagemaker": ("sagemaker", "CreateTrainingJob", "training-job.json"),
    "batch": ("batch", "RegisterJobDefinition", "job-definition.json"),
    "ecs": ("ecs", "RegisterTaskDefinition", "task-definition.json"),
}
# AWS ParallelCluster 3 (cluster-vanilla.yaml of awsome-distributed-training, validators of 3.12).
PARALLELCLUSTER = {
    *("Region", "Image", "Os", "HeadNode", "InstanceType", "Networking", "SubnetId", "Ssh"),
    *("KeyName", "LocalStorage", "RootVolume", "Size", "Scheduling", "Scheduler", "SlurmQueues"),
    *("Name", "CapacityType", "SubnetIds", "PlacementGroup", "Enabled", "ComputeSettings"),
    *("EphemeralVolume", "MountDir", "ComputeResources", "MinCount", "MaxCount", "Efa"),
    *("CapacityReservationTarget", "CapacityReservationId", "SharedStorage", "StorageType"),
    *("FsxLustreSettings", "StorageCapacity", "DeploymentType", "CustomActions", "Script"),
    "OnNodeConfigured",
}
# SkyPilot YAML reference.
SKYPILOT = {
    *("name", "workdir", "num_nodes", "resources", "file_mounts", "run", "infra", "instance_type"),
    *("image_id", "network_tier", "disk_size", "/data", "/checkpoints", "source", "mode"),
}
# eksctl v1alpha5, PyTorchJob v1, TrainJob v1alpha1, RayJob v1, and pods of Kubernetes.
KUBERNETES = {
    *("apiVersion", "kind", "metadata", "name", "region", "version", "iam", "withOIDC", "spec"),
    *("managedNodeGroups", "instanceType", "minSize", "desiredCapacity", "maxSize", "efaEnabled"),
    *("availabilityZones", "privateNetworking", "capacityReservation", "instanceMarketOptions"),
    *("capacityReservationTarget", "capacityReservationID", "marketType", "template", "containers"),
    *("pytorchReplicaSpecs", "Master", "Worker", "replicas", "restartPolicy", "nodeSelector"),
    *("node.kubernetes.io/instance-type", "tolerations", "key", "operator", "effect", "volumes"),
    *("configMap", "persistentVolumeClaim", "claimName", "emptyDir", "medium", "image", "command"),
    *("resources", "requests", "limits", "cpu", "memory", "aws.amazon.com/neuron", "mountPath"),
    *("vpc.amazonaws.com/efa", "nvidia.com/gpu", "volumeMounts", "runtimeRef", "apiGroup"),
    *("trainer", "numNodes", "numProcPerNode", "resourcesPerNode", "runtimePatches", "manager"),
    *("trainingRuntimeSpec", "replicatedJobs", "entrypoint", "submissionMode", "rayClusterSpec"),
    *("shutdownAfterJobFinishes", "headGroupSpec", "rayStartParams", "dashboard-host", "num-cpus"),
    *("workerGroupSpecs", "groupName", "minReplicas", "maxReplicas"),
}
# Arguments of Megatron-LM as of 2026-08 as its documentation and examples name them.
MEGATRON = {
    *("use-mcore-models", "num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads"),
    *("kv-channels", "group-query-attention", "num-query-groups", "max-position-embeddings"),
    *("position-embedding-type", "rotary-base", "swiglu", "normalization", "disable-bias-linear"),
    *("add-qkv-bias", "qk-layernorm", "attention-dropout", "hidden-dropout", "num-experts"),
    *("untie-embeddings-and-output-weights", "moe-router-topk", "moe-ffn-hidden-size"),
    *("moe-grouped-gemm", "moe-token-dispatcher-type", "moe-expert-capacity-factor"),
    *("moe-flex-dispatcher-backend", "overlap-moe-expert-parallel-comm"),
    *("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size"),
    *("expert-model-parallel-size", "expert-tensor-parallel-size", "cp-comm-type"),
    *("num-virtual-stages-per-pipeline-rank", "micro-batch-size", "global-batch-size"),
    *("seq-length", "sequence-parallel", "use-distributed-optimizer", "overlap-grad-reduce"),
    *("overlap-param-gather", "use-megatron-fsdp", "data-parallel-sharding-strategy"),
    *("no-gradient-accumulation-fusion", "ckpt-format", "recompute-granularity"),
    *("recompute-modules", "recompute-method", "recompute-num-layers", "attention-backend"),
    *("pipeline-model-parallel-layout", "hierarchical-context-parallel-sizes"),
    *(
        "fp4-format",
        "fp4-recipe",
        "bf16",
        "fp16",
        "fp8-format",
        "fp8-recipe",
        "train-iters",
        "lr",
        "lr-decay-style",
    ),
    *("weight-decay", "clip-grad", "data-path", "split", "eval-iters", "tokenizer-type"),
    *("tokenizer-model", "save", "load", "save-interval", "log-interval", "log-throughput"),
    "tensorboard-dir",
}
# Fields of the configuration of torchtitan as of 2026-08, and (of batches and recompute) before.
TORCHTITAN = {
    *("parallelism", "training", "optimizer", "metrics", "checkpoint", "dataloader", "compile"),
    *("activation_checkpoint", "hf_assets_path", "dump_folder", "steps", "dtype", "dataset"),
    *("mixed_precision_param", "lr", "log_freq", "enable", "interval", "backend", "mode"),
    *("max_context_length", "num_tokens_per_microbatch_per_dp_rank", "num_tokens_per_train_step"),
    *("seq_len", "local_batch_size", "global_batch_size", "num_pp_microbatches"),
    *("data_parallel_replicate_degree", "data_parallel_shard_degree", "tensor_parallel_degree"),
    *("pipeline_parallel_degree", "context_parallel_degree", "expert_parallel_degree"),
    *("enable_sequence_parallel", "fsdp_reshard_after_forward", "pipeline_parallel_schedule"),
    *("pipeline_parallel_layers_per_stage", "pipeline_parallel_microbatch_size"),
    *("pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers"),
}


def job_of(scheduler, framework="nxdt", instance="trn1.32xlarge", nodes=2, **changes):
    plan = plan_of("llama3.1-8b", instance, nodes, **LAYOUT)
    if changes:
        from trnbench.facts.records import replace

        plan = replace(plan, **changes)
    return SCHEDULERS[scheduler].files(plan, FRAMEWORKS[framework], "stamp")


def keys_of(value):
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    return set()


@pytest.mark.parametrize("scheduler", SERVICES)
@pytest.mark.parametrize("instance", ["trn1.32xlarge", "p5.48xlarge"])
def test_a_service_of_aws_takes_the_request(scheduler, instance):
    service, operation, name = SERVICES[scheduler]
    framework = "nxdt" if instance.startswith("trn") else "megatron"
    job = job_of(scheduler, framework, instance, nodes=1 if scheduler == "ecs" else 2)
    text = re.sub(r"\$\{(\w+?)_?ARN\}", "arn:aws:iam::123456789012:role/one", job.texts[name])
    text = re.sub(r"\$\{\w+_S3\}", "s3://bucket/folder", text)
    request = json.loads(re.sub(r"\$\{\w+\}", "value", text))
    known = model.ServiceModel(loaders.Loader().load_service_model(service, "service-2"), service)
    shape = known.operation_model(operation).input_shape
    report = validate.ParamValidator().validate(request, shape)
    assert not report.has_errors(), report.generate_report()


def test_training_jobs_take_the_instance_types_listed():
    loaded = loaders.Loader().load_service_model("sagemaker", "service-2")
    known = loaded["shapes"]["TrainingInstanceType"]["enum"]
    assert {f"ml.{name}" for name in SAGEMAKER_TYPES} <= set(known)


@pytest.mark.parametrize(
    ("scheduler", "keys"),
    [
        ("parallelcluster", PARALLELCLUSTER),
        ("skypilot", SKYPILOT),
        ("eks", KUBERNETES),
        ("ray", KUBERNETES),
    ],
)
@pytest.mark.parametrize("reserved", [False, True])
def test_other_job_files_have_only_keys_that_their_readers_know(scheduler, keys, reserved):
    job = job_of(scheduler, reserved=reserved)
    for name, text in job.texts.items():
        if name.endswith(".yaml"):
            assert keys_of(yaml.safe_load(text)) - {"resources"} <= keys, name


FULL = {"tp": 2, "pp": 2, "dp": 4, "zero": 1, "recompute": "full", "sequence": 4096}
DRAWN = {"pp": 2, "cp": 4, "context_parallel": "hybrid:2", "pipeline_layout": "Et*15|t*17L"}
DEEP = {**FULL, "schedule": "interleaved", "vpp": 2, "recompute": "selective", "global_batch": 64}


@pytest.mark.parametrize(
    ("model", "knobs"),
    [
        ("llama3.1-8b", {**FULL, "global_batch": 64}),
        ("llama3.1-70b", {**DEEP, "attention": "naive"}),
        ("mixtral-8x7b", {"tp": 1, "dp": 16, "ep": 4, "zero": 3, "global_batch": 64}),
        ("llama3.1-8b", {"tp": 2, "cp": 2, "dp": 4, "global_batch": 64, "precision": "fp8"}),
        ("llama3.1-8b", {**DRAWN, "global_batch": 64, "precision": "nvfp4", "recompute": "norms"}),
    ],
)
def test_arguments_are_those_that_megatron_knows(model, knobs):
    plan = plan_of(model, "p5.48xlarge", 2, **{"sequence": 4096, **knobs})
    words = FRAMEWORKS["megatron"].arguments(plan)
    flags = {one.removeprefix("--") for one in words if one.startswith("--")}
    assert flags <= MEGATRON
    assert {"num-layers", "tensor-model-parallel-size", "train-iters", "save"} <= flags


@pytest.mark.parametrize("instance", ["p5.48xlarge", "trn2.48xlarge"])
@pytest.mark.parametrize("knobs", [{"dp": 16, "zero": 3}, {**DEEP, "zero": 3, "tp": 2}])
def test_a_configuration_sets_fields_that_torchtitan_knows(instance, knobs):
    plan = plan_of("llama3.1-8b", instance, 2, **{"global_batch": 64, "sequence": 4096, **knobs})
    (text,) = FRAMEWORKS["torchtitan"].files(plan, "stamp").values()
    told = {
        target.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    assert told <= TORCHTITAN
    assert {"tensor_parallel_degree", "num_tokens_per_train_step", "steps"} <= told


def test_a_capacity_block_is_held_whole_and_in_no_placement_group():
    texts = job_of("parallelcluster", reserved=True).texts
    (queue,) = yaml.safe_load(texts["cluster.yaml"])["Scheduling"]["SlurmQueues"]
    (machine,) = queue["ComputeResources"]
    assert queue["CapacityType"] == "CAPACITY_BLOCK"
    assert queue["Networking"]["PlacementGroup"] == {"Enabled": False}
    assert machine["MinCount"] == machine["MaxCount"] == 2
    assert machine["CapacityReservationTarget"]["CapacityReservationId"] == "${RESERVATION_ID}"


def test_devices_of_a_host_are_its_own():
    """trn1.32xlarge: 16 chips, 8 EFA interfaces; an UltraServer is four hosts of 16 and 16."""
    definition = json.loads(job_of("batch").texts["job-definition.json"])
    (group,) = definition["nodeProperties"]["nodeRangeProperties"]
    paths = [one["hostPath"] for one in group["container"]["linuxParameters"]["devices"]]
    assert sum("uverbs" in path for path in paths) == 8
    assert sum("neuron" in path for path in paths) == 16
    job = yaml.safe_load(job_of("eks", instance="trn2-ultraserver").texts["trainjob.yaml"])
    trainer = job["spec"]["trainer"]
    assert trainer["numNodes"] == 8
    wanted = {"aws.amazon.com/neuron": 16, "vpc.amazonaws.com/efa": 16}
    assert trainer["resourcesPerNode"] == {"requests": wanted, "limits": wanted}


def test_a_value_is_put_in_place_however_odd_it_is(tmp_path):
    """start.sh fills in what it hands over: & and / mean nothing to it."""
    import subprocess

    from trnbench.launch.written import from_template

    (tmp_path / "job.yaml").write_text("image: '${IMAGE}'\n")
    (tmp_path / "values.env").write_text("IMAGE='a/b:c&d\\e'\n")
    scheduler = SCHEDULERS["eks"]
    text = from_template(
        "start.sh",
        stamp="stamp",
        scheduler=scheduler,
        needed=["IMAGE"],
        filled=["job.yaml"],
        names=["IMAGE"],
        start=['cat "$here/filled/job.yaml"'],
    )
    (tmp_path / "start.sh").write_text(text)
    order = ["bash", str(tmp_path / "start.sh")]
    done = subprocess.run(order, capture_output=True, text=True, check=True)
    assert yaml.safe_load(done.stdout) == {"image": "a/b:c&d\\e"}


@pytest.mark.parametrize(
    ("framework", "job", "who"),
    [
        ("megatron", "dpo", "NeMo RL"),
        ("megatron-bridge", "grpo", "NeMo RL"),
        ("torchtitan", "grpo", "torchtitan/rl"),
        ("nxdt", "dpo", "--job orpo predicts steps without it"),
    ],
)
def test_a_job_that_is_not_written_is_refused_with_who_runs_it(framework, job, who):
    facts = FRAMEWORKS[framework]
    assert job not in facts.jobs
    assert who in facts.no_jobs[job]
