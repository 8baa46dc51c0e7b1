"""The training stack behind a row of measured steps, by the name of the row's software.

The stack that names the software, where it ran as that stack runs. Otherwise the stack of related
software; else that of its kind, as its file or its words say; else that of most software.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

from trnbench.errors import InputError
from trnbench.facts.calibration.chip_efficiency import ChipEfficiency
from trnbench.facts.calibration.population import drawn, load_population
from trnbench.facts.calibration.software import (
    Execution,
    TrainingSoftware,
    all_software,
    execution_in,
    software_called,
    software_named,
    zero_in,
)
from trnbench.facts.calibration.training_stack import (
    STACK_PREFIX,
    TrainingStack,
    generic_stack,
    load_chip_efficiency,
    load_training_stack,
    training_file,
    training_stack_of,
)
from trnbench.facts.calibration.transfer import entries_of
from trnbench.facts.catalog.document import load_once
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_instance
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, State, field, replace

OTHER_RELEASE = "other"
"""Release name under which a stack describes unlisted releases."""


TUNED = ("Megatron-LM", "Megatron-Core")
"""Software whose stacks stand for software written for its chips."""
KINDS: Mapping[Execution, str] = {
    "tuned": "tuned for its chips",
    "eager": "not compiled",
    "compiled": "compiled",
    "graph": "compiled as whole graphs",
}
"""Kinds of software in words."""


class FoundStack(Record):
    """A stack, and whether it is the software's own or a substitute."""

    stack: TrainingStack
    own: bool
    usual: bool = False
    """True where no software is named: the stack is the machine's usual one."""
    software: TrainingSoftware | None = None
    """Software that was understood; None where no file has a name in it."""
    kind: Execution | None = None
    """Kind of software that the substitute stands for; None for software of any kind."""

    @property
    def why(self) -> str:
        """Why the substitute was taken, with what was understood of the software."""
        if self.kind is None:
            return "as none is known for its software"
        who = self.software.title if self.software else "its software"
        return f"as none is known for {who}, taken as {KINDS[self.kind]}"


class Stacks(State, kw_only=False):
    """The training stacks of a catalogue, the user's first."""

    catalog: Catalog
    named: TrainingStack | str | None = None
    """Stack of every row, if given: a record, or the name of a stack or framework."""
    otherwise: TrainingStack | str | None = None
    """Stack for software unknown to the catalogue, in the same forms."""
    _known: tuple[TrainingStack, ...] | None = None
    _chips: Memo[str, frozenset[str]] = field(default_factory=Memo)
    _rates: Memo[str, ChipEfficiency] = field(default_factory=Memo)
    _by_name: Memo[str, TrainingStack] = field(default_factory=Memo)
    _found: Memo[tuple[str, str, str], FoundStack] = field(default_factory=Memo)

    @property
    def known(self) -> tuple[TrainingStack, ...]:
        """Every stack of the catalogue."""
        if self._known is None:
            files = entries_of(self.catalog, STACK_PREFIX)
            self._known = tuple(load_once(self.catalog, f.path, TrainingStack) for f in files)
        return self._known

    @cached_property
    def _software(self) -> tuple[TrainingSoftware, ...]:
        return all_software(self.catalog)

    def of(self, framework: str, release: str, platform: Platform) -> FoundStack:
        """The stack of a release: one that lists the instance, or else one with its chips."""
        key = framework, release, platform.instance.name
        return self._found.of(key, lambda: self._of(framework, release, platform))

    def _of(self, framework: str, release: str, platform: Platform) -> FoundStack:
        told = self._told(self.named, platform)
        if told:
            software = software_named(self._software, platform, framework) if framework else None
            found = FoundStack(stack=told, own=True, software=software)
        else:
            found = self._understood(framework, platform)
        if not found.own and self._serves(self.otherwise, platform):
            otherwise = self._told(self.otherwise, platform)
            found = FoundStack(stack=otherwise, own=True) if otherwise else found
        name = platform.chip.name
        chip = self._rates.of(name, lambda: load_chip_efficiency(self.catalog, name))
        known = _release(found.stack, found.stack.releases or chip.releases, release)
        if known != found.stack.release:
            found = replace(found, stack=replace(found.stack, release=known))
        found = _with_loss(found, release or framework)
        line = found.software.command_line if found.software else None
        if line is not None and found.own and line.holds_of(release):
            habits = replace(found.stack.habits, sequence_parallel=line.sequence_parallel)
            stack = replace(found.stack, attention=line.attention, habits=habits)
            found = replace(found, stack=stack)
        return found

    def _understood(self, framework: str, platform: Platform) -> FoundStack:
        """The stack of a software, or the one that stands for it."""
        software = software_named(self._software, platform, framework)
        said = execution_in(framework)
        own = self._of_software(framework, platform)
        if own is not None and not _is_others(self.catalog, own, software, framework):
            ran_so = software is None or said in (None, "tuned", software.execution)
            ran_so = ran_so or said in map(execution_in, _names_in(own, framework))
            # Whatever ran on Neuron ran under its compiler.
            if ran_so or isinstance(platform.chip.unit, NeuronCores):
                return FoundStack(stack=own, own=ran_so, software=software)
        kind = said or (software.execution if software else None)
        related = self._of_software(software.names[0], platform) if software else None
        if software is not None and related is not None and said in (None, software.execution):
            return FoundStack(stack=related, own=False, software=software, kind=kind)
        found = self._of_kind(framework, platform, kind)
        zero = zero_in(framework) if framework else None
        zero = zero if zero is not None else software.zero if software else None
        if zero is not None and not found.usual:
            habits = replace(found.stack.habits, zero=zero)
            found = replace(found, stack=replace(found.stack, habits=habits))
        return replace(found, software=software)

    def _of_kind(self, framework: str, platform: Platform, kind: Execution | None) -> FoundStack:
        if kind == "tuned" and not isinstance(platform.chip.unit, NeuronCores):
            for name in TUNED:
                stack = self._of_software(name, platform)
                if stack is not None:
                    return FoundStack(stack=stack, own=False, kind=kind)
        return unnamed_stack(self.catalog, platform, framework, kind)

    def by_name(self, name: str, platform: Platform) -> FoundStack:
        """The stack of this name, or the platform's stack of the framework of this name."""
        software = framework_named(self.catalog, name)
        if software is None:
            instance = platform.instance.name
            return FoundStack(
                stack=load_training_stack(self.catalog, name, instance=instance), own=True
            )
        if not software.runs_on(platform):
            able = [other.name for other in all_software(self.catalog) if other.runs_on(platform)]
            raise InputError(
                f"--stack: {name} does not run on {platform.instance.name}",
                hint=f"frameworks that do: {', '.join(able) or 'none'}; `trnbench spec list` names "
                "all calibrated stacks",
            )
        found = self._of_software(software.names[0], platform)
        if found is not None:
            return FoundStack(stack=found, own=True)
        found_alike = self._of_kind(software.names[0], platform, software.execution)
        return _with_loss(replace(found_alike, software=software))

    def _told(self, given: TrainingStack | str | None, platform: Platform) -> TrainingStack | None:
        if not isinstance(given, str):
            return given
        key = f"{given} {platform.instance.name}"
        return self._by_name.of(key, lambda: self.by_name(given, platform).stack)

    def _serves(self, given: TrainingStack | str | None, platform: Platform) -> bool:
        software = framework_named(self.catalog, given) if isinstance(given, str) else None
        return software is None or software.runs_on(platform)

    def _of_software(self, software: str, platform: Platform) -> TrainingStack | None:
        """The stack that names a software: for the instance, or else for its chip."""
        instance, chip = platform.instance.name, platform.chip.name
        here = (stack for stack in self.known if instance in stack.instances)
        near = (stack for stack in self.known if chip in self._chips_of(stack))
        return _best(here, software) or _best(near, software)

    def _chips_of(self, stack: TrainingStack) -> frozenset[str]:
        def chips() -> frozenset[str]:
            instances = self.catalog.users("instances")
            listed = (name for name in stack.instances if name in instances)
            return frozenset(load_instance(self.catalog, name).chip for name in listed)

        return self._chips.of(stack.name, chips)


def framework_named(catalog: Catalog, name: str) -> TrainingSoftware | None:
    """The framework of this name; None for a training stack or an unknown name."""
    return None if training_file(catalog, name) is not None else software_called(catalog, name)


def refuse_unknown_stack(catalog: Catalog, name: str) -> str:
    if framework_named(catalog, name) is None:
        load_training_stack(catalog, name)
    return name


def _best(stacks: Iterable[TrainingStack], software: str) -> TrainingStack | None:
    best = max(stacks, key=lambda stack: _named(stack, software), default=None)
    return best if best is not None and _named(best, software) else None


def unnamed_stack(
    catalog: Catalog, platform: Platform, software: str, kind: Execution | None = None
) -> FoundStack:
    """Substitute for software that no stack of the platform names, of a kind or of any.

    The one place of this assumption: software launches whole graphs on Trainium, and elsewhere
    single kernels unless it is known to be compiled. An empty software name gives the instance's
    usual stack, as for a question that names none.
    """
    if not software:
        usual = training_stack_of(catalog, platform.instance.name)
        return FoundStack(stack=usual, own=True, usual=True)
    if isinstance(platform.chip.unit, NeuronCores):
        stack = generic_stack(catalog, "graph", platform.instance)
        return FoundStack(stack=stack, own=False, kind="graph" if kind else None)
    stack = generic_stack(catalog, "compiled" if kind == "compiled" else "eager", platform.instance)
    population = load_population(catalog)
    if population is not None:
        stack = drawn(stack, population.of(kind))
    return FoundStack(stack=stack, own=False, kind=kind)


def _is_others(
    catalog: Catalog, stack: TrainingStack, software: TrainingSoftware | None, text: str
) -> bool:
    """True for a stack whose name in a text is part of the words of other software."""
    if software is None:
        return False
    names = [name.lower() for name in stack.frameworks if name.lower() in text.lower()]
    mine = [name.lower() for name in software.names]
    if any(name in mine for name in names) or any(name == text.lower() for name in names):
        return False
    known = {name.lower() for each in all_software(catalog) for name in each.names}
    return any(name in known for name in names)


def _named(stack: TrainingStack, software: str) -> int:
    return max(map(len, _names_in(stack, software)), default=0)


def _names_in(stack: TrainingStack, software: str) -> list[str]:
    text = software.lower()
    return [name for name in stack.frameworks if name.lower() in text]


def _with_loss(found: FoundStack, told: str = "") -> FoundStack:
    """The stack with the loss of its software, where it only stands for that."""
    kernel = found.software.loss_in(told) if found.software and not found.own else None
    return replace(found, stack=replace(found.stack, loss=kernel)) if kernel else found


def _release(stack: TrainingStack, releases: Collection[str], release: str) -> str | None:
    """Release named in a text, or else the stack's release for all others."""
    unknown = OTHER_RELEASE if release and OTHER_RELEASE in releases else stack.release
    return release_named(releases, release) or unknown


def release_named(releases: Collection[str], text: str) -> str | None:
    """The release among these that a text names; None if it names none."""
    words = re.split(r"[\s,]+", text)
    matching = [name for name in releases if any(_is_release(name, word) for word in words)]
    return max(matching, key=len, default=None)


def _is_release(name: str, word: str) -> bool:
    return word == name or word.startswith((f"{name}.", f"{name}-"))
