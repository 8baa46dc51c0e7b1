"""Which training stack a row of measured steps ran with, by what it calls its software."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from trnbench.errors import InputError
from trnbench.facts.calibration.frameworks import SOFTWARE, KnownFramework
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
"""Under this name a stack describes releases that it does not list."""


class FoundStack(Record):
    """A stack; whether it is the software's own or stands in for it, and then a remark of that."""

    stack: TrainingStack
    own: bool
    assumed: tuple[str, ...] = ()


class Stacks(State, kw_only=False):
    """The training stacks of a catalogue, the user's first.

    With `named`, all rows are its own. `otherwise` is the stack of software that no stack names.
    Either is a stack, or the name of one or of a framework.
    """

    catalog: Catalog
    named: TrainingStack | str | None = None
    otherwise: TrainingStack | str | None = None
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
        """Return the stack of a software and its release on a platform.

        A stack serves every instance with its chips; one that lists the instance goes before.
        """
        key = framework, release, platform.instance.name
        return self._found.of(key, lambda: self._of(framework, release, platform))

    def _of(self, framework: str, release: str, platform: Platform) -> FoundStack:
        own = self._told(self.named, platform) or self._of_software(framework, platform)
        if own is None and self._serves(self.otherwise, platform):
            own = self._told(self.otherwise, platform)
        found = (
            FoundStack(stack=own, own=True)
            if own
            else unnamed_stack(self.catalog, platform, framework)
        )
        chip = load_chip_efficiency(self.catalog, platform.chip.name)
        known = _release(found.stack, found.stack.releases or chip.releases, release)
        if known != found.stack.release:
            found = replace(found, stack=replace(found.stack, release=known))
        return found

    def by_name(self, name: str, platform: Platform) -> FoundStack:
        """Return the stack of this name, or that a framework of this name stands for there."""
        software = framework_named(self.catalog, name)
        if software is None:
            instance = platform.instance.name
            return FoundStack(
                stack=load_training_stack(self.catalog, name, instance=instance), own=True
            )
        if not software.runs_on(platform):
            able = [known for known, one in SOFTWARE.items() if one.runs_on(platform)]
            raise InputError(
                f"--stack: {name} does not run on {platform.instance.name}",
                hint=f"frameworks that do: {', '.join(able) or 'none'}; `trnbench spec list` names "
                "all calibrated stacks",
            )
        found = self._of_software(software.called, platform)
        if found is not None:
            return FoundStack(stack=found, own=True)
        return unnamed_stack(self.catalog, platform, software.called)

    def _told(self, given: TrainingStack | str | None, platform: Platform) -> TrainingStack | None:
        if not isinstance(given, str):
            return given
        key = f"{given} {platform.instance.name}"
        return self._by_name.of(key, lambda: self.by_name(given, platform).stack)

    def _serves(self, given: TrainingStack | str | None, platform: Platform) -> bool:
        """Whether what is given says something of a platform: a framework runs on few."""
        software = framework_named(self.catalog, given) if isinstance(given, str) else None
        return software is None or software.runs_on(platform)

    def _of_software(self, software: str, platform: Platform) -> TrainingStack | None:
        """Return the stack that names a software: one of the instance, or else of its chip."""
        instance, chip = platform.instance.name, platform.chip.name
        here = (stack for stack in self.known if instance in stack.instances)
        near = (stack for stack in self.known if chip in self._chips_of(stack))
        return _best(here, software) or _best(near, software)

    def _chips_of(self, stack: TrainingStack) -> frozenset[str]:
        """Return the chips of the instances that a stack lists."""

        def chips() -> frozenset[str]:
            known = self.catalog.users("instances")
            listed = (name for name in stack.instances if name in known)
            return frozenset(load_instance(self.catalog, name).chip for name in listed)

        return self._chips.of(stack.name, chips)


def framework_named(catalog: Catalog, name: str) -> KnownFramework | None:
    """Return the framework of this name; None where a training stack, or nothing, has it."""
    return None if training_file(catalog, name) is not None else SOFTWARE.get(name)


def refuse_unknown_stack(catalog: Catalog, name: str) -> str:
    """Return a name of a training stack or a framework; another is an input error."""
    if framework_named(catalog, name) is None:
        load_training_stack(catalog, name)
    return name


def _best(stacks: Iterable[TrainingStack], software: str) -> TrainingStack | None:
    """Return the stack of which a text has the longest name; None where it has none."""
    best = max(stacks, key=lambda stack: _named(stack, software), default=None)
    return best if best is not None and _named(best, software) else None


def unnamed_stack(catalog: Catalog, platform: Platform, software: str) -> FoundStack:
    """Return the stack that stands in for software that no stack of the platform names.

    The one place where this is decided: such software is taken to launch whole graphs on Trainium,
    and kernels one by one elsewhere. Where no software is told, it is the machine's usual stack.
    """
    if software:
        graphs = isinstance(platform.chip.unit, NeuronCores)
        stack = generic_stack(catalog, "graph" if graphs else "eager", platform.instance)
    else:
        stack = training_stack_of(catalog, platform.instance.name)
    remark = f"training stack: {stack.name}, as none is known for its software"
    return FoundStack(stack=stack, own=False, assumed=(remark,))


def _named(stack: TrainingStack, software: str) -> int:
    """Return the length of the longest of the stack's names in a text; 0 where there is none."""
    text = software.lower()
    return max((len(name) for name in stack.frameworks if name.lower() in text), default=0)


def _release(stack: TrainingStack, releases: Collection[str], told: str) -> str | None:
    """Return the release that a text names, or else the one that stands for all others."""
    words = re.split(r"[\s,]+", told)
    known = [name for name in releases if any(_is_release(name, word) for word in words)]
    unknown = OTHER_RELEASE if told and OTHER_RELEASE in releases else stack.release
    return max(known, key=len, default=unknown)


def _is_release(name: str, word: str) -> bool:
    return word == name or word.startswith((f"{name}.", f"{name}-"))
