"""Environment of the Neuron runtime and compiler that frameworks on PyTorch/XLA share.

Source: AWS Neuron SDK, nxd-training environment variables, runtime configuration guide and logical
core configuration, 2026-08-21.
"""

from __future__ import annotations

from trnbench.launch.plan import LaunchPlan

LAST_FULL_STACK = "Neuron SDK 2.28"
"""Later releases had NxD Training in maintenance, then without it in images."""
PARALLEL_COMPILE = "neuron_parallel_compile"


def xla_environment(plan: LaunchPlan) -> dict[str, str]:
    """Environment of the Neuron runtime, for SDKs up to 2.30."""
    environment = {
        "NEURON_RT_NUM_CORES": str(plan.host_ranks),
        "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS": "5",
        "NEURON_RT_EXEC_TIMEOUT": "100",
        "NEURON_PROCESS_TAG": plan.name,
        "NEURON_COMPILE_CACHE_URL": "${COMPILE_CACHE}",
        "MALLOC_ARENA_MAX": "128" if plan.layout.pp > 1 else "64",
    }
    if plan.cores_per_rank > 1 or plan.logical_size is not None:
        environment["NEURON_LOGICAL_NC_CONFIG"] = str(plan.cores_per_rank)
    return environment
