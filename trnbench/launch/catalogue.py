"""Known frameworks and schedulers, and the pairs that fit on an instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trnbench.errors import InputError
from trnbench.facts.calibration.software import software_called
from trnbench.facts.calibration.stack_of import Stacks
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_platform
from trnbench.launch.frameworks import bridge, megatron, nxdt, optimum, torchtitan
from trnbench.launch.schedulers import hosts, kubernetes, services
from trnbench.launch.software import Framework, Scheduler

FRAMEWORKS: Mapping[str, Framework] = {
    module.FACTS.name: module.FACTS for module in (nxdt, optimum, torchtitan, megatron, bridge)
}
SCHEDULERS: Mapping[str, Scheduler] = {
    scheduler.name: scheduler
    for scheduler in (
        *(hosts.TORCHRUN, hosts.SLURM, hosts.PARALLELCLUSTER, kubernetes.EKS),
        *(services.SAGEMAKER, services.BATCH, services.ECS, kubernetes.RAY, services.SKYPILOT),
    )
}


def frameworks_on(catalog: Catalog, platform: Platform) -> tuple[Framework, ...]:
    return tuple(
        framework
        for name, framework in FRAMEWORKS.items()
        if (software := software_called(catalog, name)) and software.runs_on(platform)
    )


def usual_framework(catalog: Catalog, instance: str) -> str:
    """Name of the framework behind an instance type's usual stack, or of the first that runs."""
    platform, stacks = load_platform(catalog, instance), Stacks(catalog)
    usual = stacks.of("", "", platform).stack.name
    here = [framework.name for framework in frameworks_on(catalog, platform)]
    if not here:
        raise InputError(f"no framework that files are written for runs on {instance}")
    alike = [name for name in here if stacks.by_name(name, platform).stack.name == usual]
    return [*alike, *here][0]


def framework_for(catalog: Catalog, platform: Platform, name: str, job: str | None) -> Framework:
    """The framework of this name, or the first behind this stack that has the job."""
    if name in FRAMEWORKS:
        return FRAMEWORKS[name]
    stacks = Stacks(catalog)
    stack = stacks.by_name(name, platform).stack.name
    here = frameworks_on(catalog, platform)
    alike = [
        framework
        for framework in here
        if stacks.by_name(framework.name, platform).stack.name == stack
    ]
    if not alike:
        names = ", ".join(framework.name for framework in here) or "none"
        raise InputError(
            f"--stack {name}: no framework that files are written for stands for it on "
            f"{platform.instance.name}; frameworks there: {names}"
        )
    return next(
        (framework for framework in alike if job is None or job in framework.jobs), alike[0]
    )


def schedulers_on(platform: Platform) -> tuple[Scheduler, ...]:
    return tuple(
        scheduler for scheduler in SCHEDULERS.values() if scheduler.cannot(platform) is None
    )


def pair_reasons(
    catalog: Catalog, platform: Platform, framework: Framework, scheduler: Scheduler
) -> Iterator[str]:
    """Yield reasons why a framework and a scheduler do not fit on a platform."""
    name = platform.instance.name
    here = frameworks_on(catalog, platform)
    if framework not in here:
        names = ", ".join(other.name for other in here) or "none"
        yield f"{framework.title} does not run on {name}; frameworks that do: {names}"
    why = scheduler.cannot(platform)
    if why is not None:
        names = ", ".join(other.name for other in schedulers_on(platform))
        yield f"{scheduler.title}: {why}; schedulers that can: {names}"
