"""The training stack behind a row of measured steps, by the name of the row's software."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from trnbench.errors import InputError
from trnbench.facts.calibration.software import (
    TrainingSoftware,
    all_software,
    software_alike,
    software_called,
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


class FoundStack(Record):
    """A stack, and whether it is the software's own or a substitute."""

    stack: TrainingStack
    own: bool
    usual: bool = False
    """True where no software is named: the stack is the machine's usual one."""


class Stacks(State, kw_only=False):
    """The training stacks of a catalogue, the user's first."""

    catalog: Catalog
    named: TrainingStack | str | None = None
    """Stack of every row, if given: a record, or the name of a stack or framework."""
    otherwise: TrainingStack | str | None = None
    """Stack for software unknown to the catalogue, in the same forms."""
    _known: tuple[TrainingStack, ...] | None = None
    _chips: Memo[str, frozenset[str]] = field(default_factory=Memo)
    _by_name: Memo[str, TrainingStack] = field(default_factory=Memo)
    _found: Memo[tuple[str, str, str], FoundStack] = field(default_factory=Memo)

    @property
    def known(self) -> tuple[TrainingStack, ...]:
        """Every stack of the catalogue."""
        if self._known is None:
            files = entries_of(self.catalog, STACK_PREFIX)
            self._known = tuple(load_once(self.catalog, f.path, TrainingStack) for f in files)
        return self._known

    def of(self, framework: str, release: str, platform: Platform) -> FoundStack:
        """The stack of a release: one that lists the instance, or else one with its chips."""
        key = framework, release, platform.instance.name
        return self._found.of(key, lambda: self._of(framework, release, platform))

    def _of(self, framework: str, release: str, platform: Platform) -> FoundStack:
        own = self._told(self.named, platform) or self._of_software(framework, platform)
        if own is None and self._serves(self.otherwise, platform):
            own = self._told(self.otherwise, platform)
        found = FoundStack(stack=own, own=True) if own else self._substitute(framework, platform)
        chip = load_chip_efficiency(self.catalog, platform.chip.name)
        known = _release(found.stack, found.stack.releases or chip.releases, release)
        if known != found.stack.release:
            found = replace(found, stack=replace(found.stack, release=known))
        return found

    def _substitute(self, framework: str, platform: Platform) -> FoundStack:
        """Stack of related software, such as the one forked from, or of unknown software."""
        related = software_alike(self.catalog, platform, framework)
        stack = self._of_software(related.names[0], platform) if related else None
        if stack is not None:
            return FoundStack(stack=stack, own=False)
        return unnamed_stack(self.catalog, platform, framework)

    def by_name(self, name: str, platform: Platform) -> FoundStack:
        """The stack of this name, or the platform's stack of the framework of this name."""
        software = framework_named(self.catalog, name)
        if software is None:
            instance = platform.instance.name
            return FoundStack(
                stack=load_training_stack(self.catalog, name, instance=instance), own=True
            )
        if not software.runs_on(platform):
            able = [one.name for one in all_software(self.catalog) if one.runs_on(platform)]
            raise InputError(
                f"--stack: {name} does not run on {platform.instance.name}",
                hint=f"frameworks that do: {', '.join(able) or 'none'}; `trnbench spec list` names "
                "all calibrated stacks",
            )
        found = self._of_software(software.names[0], platform)
        if found is not None:
            return FoundStack(stack=found, own=True)
        return unnamed_stack(self.catalog, platform, software.names[0])

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
            known = self.catalog.users("instances")
            listed = (name for name in stack.instances if name in known)
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


def unnamed_stack(catalog: Catalog, platform: Platform, software: str) -> FoundStack:
    """Substitute for software that no stack of the platform names.

    The one place of this assumption: unknown software launches whole graphs on Trainium and single
    kernels elsewhere. An empty software name gives the instance's usual stack, as for a question
    that names none.
    """
    if not software:
        usual = training_stack_of(catalog, platform.instance.name)
        return FoundStack(stack=usual, own=True, usual=True)
    graphs = isinstance(platform.chip.unit, NeuronCores)
    stack = generic_stack(catalog, "graph" if graphs else "eager", platform.instance)
    return FoundStack(stack=stack, own=False)


def _named(stack: TrainingStack, software: str) -> int:
    text = software.lower()
    return max((len(name) for name in stack.frameworks if name.lower() in text), default=0)


def _release(stack: TrainingStack, releases: Collection[str], told: str) -> str | None:
    """Release named in a text, or else the stack's release for all others."""
    words = re.split(r"[\s,]+", told)
    known = [name for name in releases if any(_is_release(name, word) for word in words)]
    unknown = OTHER_RELEASE if told and OTHER_RELEASE in releases else stack.release
    return max(known, key=len, default=unknown)


def _is_release(name: str, word: str) -> bool:
    return word == name or word.startswith((f"{name}.", f"{name}-"))
