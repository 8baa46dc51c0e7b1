"""Algorithms and closed forms of groups of ranks, made once for a platform and a stack.

The exchange of a group depends on the platform's links, on the stack and on the positions of the
group's ranks, not on the model or its layout. Engines therefore outlive the question that first
needed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from trnbench.engines.analytic.collective.time import ClosedForm, closed_form, padded, side_by_side
from trnbench.engines.analytic.step.kept_forms import (
    EngineKey,
    ExchangeEngine,
    KeptForms,
    kept_forms,
)
from trnbench.facts.arrays import FloatArray, IntArray, distinct, numbered
from trnbench.facts.calibration.collective_stack import CollectiveStack
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field
from trnbench.facts.workload.choices import Op
from trnbench.machine.message_plan.algorithm import Refusal
from trnbench.machine.rank_groups import GroupPlace, members_at

# Where all forms are kept no group is placed, and what places them is not imported.
if TYPE_CHECKING:
    from trnbench.engines.analytic.collective.profile import PhaseMemo
    from trnbench.machine.message_plan.members import Members
    from trnbench.machine.message_plan.select import Selected
    from trnbench.machine.placement import Placement

    Chosen: TypeAlias = tuple[tuple[Selected, ClosedForm | None], ...]
    """Algorithms by size, each beside its closed form where the choice has needed it."""


_FEW = 64
"""Up to so many sizes their seconds are remembered, which for more would fill the memory."""


class ExchangeSite(Record, eq=False):
    """One node of a platform, and the groups, phases and engines worked out there so far."""

    platform: Platform
    stack: CollectiveStack
    logical_size: int | None
    ranks_per_node: int
    kept: KeptForms
    members: Memo[tuple[GroupPlace, bool], Members] = field(default_factory=Memo)
    memo: PhaseMemo = field(default_factory=dict)
    listed: Memo[EngineKey, tuple[Selected, ...] | Refusal] = field(default_factory=Memo)
    chosen: Memo[EngineKey, Chosen] = field(default_factory=Memo)
    seconds: dict[tuple[EngineKey, float], float] = field(default_factory=dict)  # by size in bytes

    @cached_property
    def node(self) -> Placement:
        from trnbench.machine.placement import place

        return place(self.platform, logical_size=self.logical_size)

    def engine(self, op: Op, where: GroupPlace) -> ExchangeEngine | Refusal:
        """The algorithms by which a group runs an operation, or the reason why it cannot."""
        known = self.kept.get((op, where))
        if known is None:
            listed = self._listed(op, where)
            if isinstance(listed, Refusal):
                known = self.kept.engines[op, where] = listed
            elif self.stack.choice == "fastest" or not listed[-1].from_bytes:
                known = self._settled((op, where))
            else:
                # From where the table begins its last algorithm there is no doubt: what smaller
                # sizes take is looked for when one is asked.
                known = self.kept.engines[op, where] = _engine(listed[-1:], Memo())
        return known

    def _settled(self, key: EngineKey, known: ExchangeEngine | None = None) -> ExchangeEngine:
        """The algorithms of a group for all sizes; of the last one the form may be `known`."""
        choices = [choice for choice, _ in self._chosen(*key)]
        forms = [] if known is None else [form for _, form in known.forms.items()]
        last = Memo(dict(zip([len(choices) - 1], forms, strict=False)))
        engine = self.kept.engines[key] = _engine(choices, last)
        return engine

    def times_s(
        self, keys: Sequence[EngineKey], which: IntArray, size_bytes: FloatArray
    ) -> FloatArray:
        """Seconds for sizes; `which` numbers the operation and place, in `keys`, of each size."""
        if len(size_bytes) > _FEW:
            return self._priced_s(keys, which, size_bytes)
        # Programs that differ in efficiencies or in other degrees exchange the same again.
        pairs = zip(which.tolist(), size_bytes.tolist(), strict=True)
        asked, known = [(keys[number], size) for number, size in pairs], self.seconds
        fresh = [place for place, pair in enumerate(asked) if pair not in known]
        if fresh:
            times_s = self._priced_s(keys, which[fresh], size_bytes[fresh])
            known.update(zip([asked[place] for place in fresh], times_s.tolist(), strict=True))
        return np.array([known[pair] for pair in asked])

    def _priced_s(
        self, keys: Sequence[EngineKey], which: IntArray, size_bytes: FloatArray
    ) -> FloatArray:
        """The same; sizes whose closed forms have the same shape are priced together."""
        asked = (self.engine(*key) for key in keys)
        engines = [engine for engine in asked if isinstance(engine, ExchangeEngine)]
        assert len(engines) == len(keys)
        first = np.array([engine.starts[0] for engine in engines])
        for number in distinct(which[size_bytes < first[which]]).tolist():
            engines[number] = self._settled(keys[number], engines[number])
        most = max(len(engine.starts) for engine in engines)
        starts = np.full((len(keys), most), np.inf)
        for number, engine in enumerate(engines):
            starts[number, : len(engine.starts)] = engine.starts
        # Starts rise, and missing ones are infinite: a size's choice is how many it has passed.
        chosen = (starts[which] <= size_bytes[:, None]).sum(axis=1) - 1
        used, form_of = numbered(which * most + chosen)
        # Few shapes, many forms: a loop over shapes keeps the array operations long.
        shapes: dict[object, int] = {}
        forms: list[ClosedForm] = []
        shape_of = np.empty(len(used), dtype=np.int64)
        for number, pair in enumerate(used.tolist()):
            group, choice = divmod(pair, most)
            op, where = keys[group]
            forms.append(self._form(op, where, engines[group], choice))
            key = engines[group].tunings[choice], forms[-1].shape
            shape_of[number] = shapes.setdefault(key, len(shapes))
        times = np.empty(len(size_bytes))
        for shape in range(len(shapes)):
            mine = np.flatnonzero(shape_of == shape)
            at = np.flatnonzero(shape_of[form_of] == shape)
            of_size = np.searchsorted(mine, form_of[at])
            together = side_by_side([forms[number] for number in mine.tolist()], of_size)
            times[at] = together.time_s(size_bytes[at])
        return times

    def _form(self, op: Op, where: GroupPlace, engine: ExchangeEngine, number: int) -> ClosedForm:
        def made() -> ClosedForm:
            from trnbench.engines.analytic.collective.profile import profile

            choice, form = self._chosen(op, where)[number] if settled else self._last(op, where)
            return padded(form or closed_form(profile(choice.placed, self.memo), choice.tuning))

        settled = not engine.starts[0]
        return engine.forms.of(number, made)

    def _last(self, op: Op, where: GroupPlace) -> tuple[Selected, None]:
        listed = self._listed(op, where)
        assert not isinstance(listed, Refusal)
        return listed[-1], None

    def _chosen(self, op: Op, where: GroupPlace) -> Chosen:
        from trnbench.engines.analytic.collective.choice import chosen_with_forms

        def made() -> Chosen:
            listed = self._listed(op, where)
            assert not isinstance(listed, Refusal)
            return chosen_with_forms(listed, self.memo, fastest=self.stack.choice == "fastest")

        return self.chosen.of((op, where), made)

    def _listed(self, op: Op, where: GroupPlace) -> tuple[Selected, ...] | Refusal:
        return self.listed.of((op, where), lambda: self._placed(op, where))

    def _placed(self, op: Op, where: GroupPlace) -> tuple[Selected, ...] | Refusal:
        from trnbench.engines.analytic.collective.choice import listed_for
        from trnbench.machine.message_plan.ring_orders import neighbour_pairs

        plain = op == "send-receive"
        members = self.members.of(
            (where, plain), lambda: members_at(self.node, where, self.ranks_per_node, plain=plain)
        )
        pairs = None
        if op == "permute":
            pairs = neighbour_pairs(members.placement.fabric, members.first)
        listed = listed_for(self.stack, members, op, pairs)
        if isinstance(listed, Refusal):
            ranks, stride = where[:2]
            return Refusal(
                reason=f"{op} of {ranks} ranks, each {stride} from the next: {listed.reason}"
            )
        return listed


def _engine(choices: Sequence[Selected], forms: Memo[int, ClosedForm]) -> ExchangeEngine:
    return ExchangeEngine(
        starts=tuple(choice.from_bytes for choice in choices),
        tunings=tuple(choice.tuning_name for choice in choices),
        forms=forms,
    )


Engines: TypeAlias = dict[tuple[str, int, str, int | None, int], ExchangeSite]
"""Sites placed so far, by platform, stack, logical size and ranks in use on a node; programs may
share them."""


def site_of(
    engines: Engines, platform: Platform, stack: CollectiveStack, sizes: tuple[int | None, int]
) -> ExchangeSite:
    """The site of a platform with a stack, with the closed forms this process already has.

    `sizes`: logical size, and ranks in use on a node.
    """
    instance, (logical_size, ranks_per_node) = platform.instance, sizes
    key = instance.name, platform.joined_nodes, stack.name, logical_size, ranks_per_node
    if key not in engines:
        sources = instance.name, instance.chips, instance.fabric, platform.chip, sizes
        engines[key] = ExchangeSite(
            platform=platform,
            stack=stack,
            logical_size=logical_size,
            ranks_per_node=ranks_per_node,
            kept=kept_forms(stack, *sources),
        )
    return engines[key]


def keep_forms(engines: Engines) -> None:
    for site in engines.values():
        site.kept.write()
