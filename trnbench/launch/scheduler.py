"""Facts of a scheduler: the machines it starts, its files, and how hosts find each other."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping

from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import Record
from trnbench.launch.framework import Framework, Texts
from trnbench.launch.plan import LaunchPlan, host_type


class JobFiles(Record, eq=False):
    """Files of a scheduler, and how to submit them."""

    texts: Texts
    filled: tuple[str, ...] = ()
    """Files that get the user's values before they are submitted."""
    start: tuple[str, ...]
    """Lines of bash that submit the job."""


class Scheduler(Record, eq=False):
    """A way to start processes on hosts, as of a version and a day."""

    name: str
    title: str
    versions: str
    source: str
    date: datetime.date
    where: tuple[str, ...]
    """Lines of bash that set NODE_RANK, the number of this host, and HEAD, the address of the
    first."""
    cannot: Callable[[Platform], str | None]
    """Why the scheduler cannot start an instance; None where it can."""
    refusals: Callable[[LaunchPlan], Iterator[str]]
    """Reasons why a plan cannot be started."""
    files: Callable[[LaunchPlan, Framework, str], JobFiles]
    defaults: Mapping[str, str]
    """User values that the scheduler settles."""
    assumes: tuple[str, ...] = ()


def anything(platform: Platform) -> str | None:
    return None


def ec2(platform: Platform) -> str | None:
    """Refuse platforms that are not a published EC2 instance type."""
    instance = platform.instance
    if host_type(instance) is None:
        return f"{instance.name} is no EC2 instance type that is published"
    return None


def no_refusals(plan: LaunchPlan) -> Iterator[str]:
    return iter(())


def in_turn(framework: Framework, command: str) -> str:
    """Command line that runs a command, after compiling where there is a compiler."""
    return f"COMPILE=1 {command} && {command}" if framework.compiler else command


def environment_of(plan: LaunchPlan, framework: Framework) -> dict[str, str]:
    """Environment of every process: the framework's and the network's.

    FI_* as in the set-up of several Trn1 nodes of the Neuron SDK and torchtitan's Slurm sample.
    """
    environment = dict(framework.environment(plan))
    if plan.host_adapters and plan.hosts > 1:
        environment |= {
            "FI_PROVIDER": "efa",
            "FI_EFA_USE_DEVICE_RDMA": "1",
            "FI_EFA_FORK_SAFE": "1",
        }
    return environment
