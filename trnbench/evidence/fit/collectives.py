"""Fit of a communication stack to timed collectives: latencies and link shares.

The stack's choice of algorithms stays. The numbers of the protocols in use are fitted to the
logarithms of times by regularised, robust least squares around their priors. A fit that predicts
left-out rows no better than its prior is discarded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trnbench.engines.analytic.collective.profile import profile
from trnbench.engines.analytic.collective.shape import Profile
from trnbench.engines.analytic.collective.time import collective_time
from trnbench.errors import InputError
from trnbench.evidence.collectives import Exchange, Systems, read_exchange, selected_exchanges
from trnbench.evidence.fit.calibrate import UNMOVED, Fitted, mean_error
from trnbench.evidence.fit.problem import FitParameter
from trnbench.evidence.rows import EvidenceFile
from trnbench.facts.arrays import BoolArray, FloatArray
from trnbench.facts.calibration.collective_stack import (
    CollectiveStack,
    Tuning,
    load_stack,
    stack_of,
)
from trnbench.facts.catalog.provenance import Evidence, join
from trnbench.facts.catalog.schema import keys_of
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, replace
from trnbench.machine.fabric_bounds import lower_bound
from trnbench.machine.message_plan.algorithm import Refusal
from trnbench.machine.message_plan.select import Selected, selected_for
from trnbench.predict.ranges import Range

TUNINGS = "tunings"
_LATENCIES = ("launch_s", "step_s", "network_step_s", "message_s")
_SHARES = ("on_chip", "link", "network")
_SCATTER = 0.08
"""Log scatter of single rows of a sweep: assumed, because sweeps print one mean."""
_UNSAID = 1.5
"""Assumed range, as a factor up and down, of numbers without one."""
_FAR = 3.0
"""Rows beyond this many scatters count less."""
_ROUNDS = 4
"""Rounds of reweighted fits."""
_FEWEST = 4
"""Fewest rows for a check on left-out rows."""


class FittedExchange(Record):
    """A row's errors, predicted over measured less one; `left_out`: by a fit without its group."""

    id: str
    prior: float
    fitted: float
    left_out: float | None


class CollectiveFit(Record, eq=False):
    """The fit of an instance's communication stack."""

    stack: CollectiveStack
    instance: str
    parameters: tuple[Fitted, ...]
    places: tuple[tuple[str, str], ...]
    """Protocol and key of each parameter in the stack's file."""
    rows: tuple[FittedExchange, ...]
    unused: tuple[tuple[str, str], ...]
    better: bool
    """True when left-out rows are predicted no worse than before: the fit is used."""

    @property
    def mean_errors(self) -> dict[str, float | None]:
        """Mean of absolute errors: before the fit, by it, and of rows left out of it."""
        left_out = [row.left_out for row in self.rows if row.left_out is not None]
        return {
            "prior": mean_error(row.prior for row in self.rows),
            "error": mean_error(row.fitted for row in self.rows),
            "without_like": mean_error(left_out) if left_out else None,
        }


def fit_collectives(catalog: Catalog, files: Sequence[EvidenceFile]) -> CollectiveFit:
    """The stack of one instance, fitted to the exchanges of files."""
    systems = Systems(catalog)
    read = [(row.id, read_exchange(systems, file, row)) for file in files for row in file.rows]
    exchanges = [found for _, found in read if isinstance(found, Exchange)]
    unused = [(name, found) for name, found in read if isinstance(found, str)]
    instances = sorted({one.instance for one in exchanges})
    if len(instances) > 1:
        raise InputError(
            f"collectives of {' and '.join(instances)}: a stack of links is fitted to one instance"
        )
    if not exchanges:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in unused[:3])
        raise InputError(f"no collective can be fitted{': ' if reasons else ''}{reasons}")
    named = {one.stack for one in exchanges}
    own = stack_of(catalog, instances[0])
    # Rows of one other library version are fitted to that version's stack.
    stack = load_stack(catalog, named.pop()) if len(named) == 1 and own.name not in named else own
    if stack.begun_as is not None:
        stack = load_stack(catalog, stack.begun_as)  # so that no row counts twice
    problem = _Problem(catalog, stack, exchanges)
    if problem.kept:
        # Sizes at which algorithms change depend on the numbers that are fitted.
        found = problem.tunings(problem.fitted(np.ones(len(problem.kept), bool))[0])
        problem = _Problem(catalog, stack, exchanges, replace(stack, tunings=found))
    unused += problem.unused
    if not problem.kept:
        raise InputError(f"no collective can be fitted: {unused[0][0]}: {unused[0][1]}")
    every = np.ones(len(problem.kept), bool)
    deviations, widths = problem.fitted(every)
    left_out = problem.left_out()
    before, after = (problem.errors(z) for z in (np.zeros_like(deviations), deviations))
    better = left_out is None or mean_error(left_out) <= mean_error(before)
    return CollectiveFit(
        stack=stack,
        instance=instances[0],
        parameters=tuple(
            Fitted(parameter=one, deviation=float(z), width=float(width))
            for one, z, width in zip(problem.parameters, deviations, widths, strict=True)
        ),
        places=tuple((name, keys_of(Tuning)[attribute]) for name, attribute in problem.places),
        rows=tuple(
            FittedExchange(
                id=one.id,
                prior=math.expm1(before[i]),
                fitted=math.expm1(after[i]),
                left_out=None if left_out is None else math.expm1(left_out[i]),
            )
            for i, one in enumerate(problem.kept)
        ),
        unused=tuple(unused),
        better=better,
    )


class _Problem:
    """Collectives of an instance priced by a stack, and the numbers to fit.

    Algorithms are those that `chosen_by` takes, by default the stack itself.
    """

    def __init__(
        self,
        catalog: Catalog,
        stack: CollectiveStack,
        exchanges: Sequence[Exchange],
        chosen_by: CollectiveStack | None = None,
    ) -> None:
        self.stack, self.unused = stack, list[tuple[str, str]]()
        self.kept: list[Exchange] = []
        # Rows of one choice: placed algorithm, protocol, sizes in bytes, and places of the rows.
        self.priced: list[tuple[Profile, str, FloatArray, slice]] = []
        for rows, selected in selected_exchanges(catalog, exchanges, chosen_by or stack):
            if isinstance(selected, Refusal):
                self.unused += [(row.id, selected.reason) for row in rows]
            else:
                self._price(selected, rows)
        self.measured = np.log([one.time_s for one in self.kept])
        numbers = dict(self._numbers())
        self.parameters, self.places = tuple(numbers), tuple(numbers.values())

    def _price(self, selected: Sequence[Selected], rows: Sequence[Exchange]) -> None:
        """Add the rows of one group, except physically impossible ones."""
        sizes = np.array([row.size_bytes for row in rows])
        chosen = selected_for(selected, sizes)
        for number, choice in enumerate(selected):
            s_per_byte = lower_bound(choice.placed).s_per_byte
            members = []
            for i in np.flatnonzero(chosen == number).tolist():
                least_s = s_per_byte * rows[i].size_bytes
                if rows[i].time_s < least_s:
                    why = (
                        f"{rows[i].time_s * 1e6:.4g} us for {rows[i].size_bytes:,.0f} bytes: its "
                        f"links carry that in {least_s * 1e6:.4g} us at best"
                    )
                    self.unused.append((rows[i].id, why))
                else:
                    members.append(rows[i])
            if members:
                places = slice(len(self.kept), len(self.kept) + len(members))
                of_members = np.array([row.size_bytes for row in members])
                self.kept += members
                self.priced.append((profile(choice.placed), choice.tuning_name, of_members, places))

    def _numbers(self) -> Iterator[tuple[FitParameter, tuple[str, str]]]:
        """Yield each parameter with its prior, and its protocol and field."""
        keys = keys_of(Tuning)
        for name in dict.fromkeys(tuning for _, tuning, _, _ in self.priced):
            for attribute in (*_LATENCIES, *_SHARES):
                key = join(join(TUNINGS, name), keys[attribute])
                value = float(getattr(self.stack.tuning(name), attribute))
                known = _range(value, self.stack.provenance.evidence.get(key), attribute in _SHARES)
                if known is not None:
                    number = FitParameter(owner=self.stack.name, key=key, chip="", prior=known)
                    yield number, (name, attribute)

    def tunings(self, deviations: FloatArray) -> Mapping[str, Tuning]:
        """Protocols with their numbers at these deviations from the priors."""
        found = dict(self.stack.tunings)
        numbers = zip(self.parameters, self.places, deviations, strict=True)
        for parameter, (name, attribute), deviation in numbers:
            changed: dict[str, Any] = {attribute: float(parameter.prior.at(np.array(deviation)))}
            found[name] = replace(found[name], **changed)
        return found

    def errors(self, deviations: FloatArray) -> FloatArray:
        """The logarithm of predicted over measured of every row."""
        tunings, found = self.tunings(deviations), np.empty(len(self.kept))
        for placed, tuning, size_bytes, places in self.priced:
            found[places] = np.log(collective_time(placed, tunings[tuning], size_bytes).time_s)
        return found - self.measured

    def fitted(self, used: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Deviations of the fit to some rows, and posterior over prior widths.

        Numbers that the rows hardly determine keep their priors.
        """
        told = np.ones(len(self.parameters), bool)
        _, widths = self._fitted(used, told)
        return self._fitted(used, widths < UNMOVED)

    def _fitted(self, used: BoolArray, told: BoolArray) -> tuple[FloatArray, FloatArray]:
        from scipy.optimize import least_squares

        def whole(free: FloatArray) -> FloatArray:
            deviations = np.zeros(len(told))
            deviations[told] = free
            return deviations

        free, weights = np.zeros(int(told.sum())), np.ones(int(used.sum()))
        widths = np.ones(len(told))
        if not len(free):
            return whole(free), widths
        for _ in range(_ROUNDS):
            # Only rows are robust: what was believed does not give way by being far off.
            root = np.sqrt(weights) / _SCATTER

            def residuals(free: FloatArray, root: FloatArray = root) -> FloatArray:
                return np.concatenate([self.errors(whole(free))[used] * root, free])

            found = least_squares(residuals, free, diff_step=1e-3)
            free = np.asarray(found.x)
            weights = 1 / np.hypot(1.0, self.errors(whole(free))[used] / (_FAR * _SCATTER))
        widths[told] = np.sqrt(np.diag(np.linalg.inv(found.jac.T @ found.jac)))
        return whole(free), np.minimum(widths, 1.0)

    def left_out(self) -> FloatArray | None:
        """Log error of each row by a fit without its group; None with too few rows.

        A group is an operation and its ranks; with a single group, every second size.
        """
        groups = [one.group for one in self.kept]
        kinds = list(dict.fromkeys(groups))
        if len(self.kept) < _FEWEST:
            return None
        fold = np.array([kinds.index(group) for group in groups])
        if len(kinds) == 1:
            fold = np.argsort(np.argsort([one.size_bytes for one in self.kept])) % 2
        found = np.empty(len(self.kept))
        for number in sorted(set(fold.tolist())):
            deviations, _ = self.fitted(fold != number)
            found[fold == number] = self.errors(deviations)[fold == number]
        return found


def _range(value: float, evidence: Evidence | None, share: bool) -> Range | None:
    """Prior of a number; None for a number without a range around 0."""
    most = 1.0 if share else math.inf
    low = None if evidence is None else evidence.low
    high = None if evidence is None else evidence.high
    if low is None or high is None:
        if value <= 0:
            return None
        low, high = value / _UNSAID, min(value * _UNSAID, most)
    return Range(value=value, low=low, high=high, linear=low <= 0, most=most)
