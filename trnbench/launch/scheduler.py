"""What is known of a scheduler: the machines it starts, what it reads, how hosts find another."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping

from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import Record
from trnbench.launch.framework import Framework, Texts
from trnbench.launch.plan import LaunchPlan, host_type


class JobFiles(Record, eq=False):
    """What a scheduler reads, and how it is handed over.

    `texts` are its files; those named in `filled` get the user's values before they are handed
    over. `start` are the lines of bash that do it.
    """

    texts: Texts
    filled: tuple[str, ...] = ()
    start: tuple[str, ...]


class Scheduler(Record, eq=False):
    """A way to start processes on hosts, as of a version and a day.

    `where` are lines of bash that set NODE_RANK, the number of this host, and HEAD, the address of
    the first. `cannot` says why an instance is not its to start, None where it is; `refusals` why
    a plan is not. `defaults` are user values that it settles.
    """

    name: str
    title: str
    versions: str
    source: str
    date: datetime.date
    where: tuple[str, ...]
    cannot: Callable[[Platform], str | None]
    refusals: Callable[[LaunchPlan], Iterator[str]]
    files: Callable[[LaunchPlan, Framework, str], JobFiles]
    defaults: Mapping[str, str]
    assumes: tuple[str, ...] = ()


def anything(platform: Platform) -> str | None:
    """Refuse nothing: whoever has the machine can start it."""
    return None


def ec2(platform: Platform) -> str | None:
    """Refuse what is not a published EC2 instance type."""
    instance = platform.instance
    if host_type(instance) is None:
        return f"{instance.name} is no EC2 instance type that is published"
    return None


def no_refusals(plan: LaunchPlan) -> Iterator[str]:
    """Refuse no plan."""
    return iter(())


def in_turn(framework: Framework, command: str) -> str:
    """Return a command line that runs a command, after compiling where there is a compiler."""
    return f"COMPILE=1 {command} && {command}" if framework.compiler else command


def environment_of(plan: LaunchPlan, framework: Framework) -> dict[str, str]:
    """Return the environment of every process: the framework's, and that of the network.

    FI_* as in the set-up of several Trn1 nodes of the Neuron SDK and torchtitan's Slurm sample.
    """
    found = dict(framework.environment(plan))
    if plan.host_adapters and plan.hosts > 1:
        found |= {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "FI_EFA_FORK_SAFE": "1"}
    return found
