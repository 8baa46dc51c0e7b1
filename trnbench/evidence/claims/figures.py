"""Claims on figures of machines, checked against the specs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trnbench.errors import UnknownNameError, unhandled
from trnbench.evidence.claims.claim import (
    Case,
    ClaimVerdict,
    FigureCheck,
    Finding,
    Measure,
    RatioCheck,
    listed,
    measure,
    multiple,
    together,
)
from trnbench.facts.hardware.compute_unit import Multiprocessors, NeuronCores
from trnbench.facts.hardware.fabric import Network
from trnbench.facts.hardware.figures import SheetFigure, figures
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import replace
from trnbench.facts.units import Dimension, show, significant, unit_scale


def claimable(platform: Platform) -> Mapping[str, SheetFigure]:
    """All figures available to claims, by key: the compared ones and a few more."""
    compared = figures(platform)
    found = [*compared, *_ways(platform, compared), *_stated(platform), *_sparse(platform)]
    return {figure.key: figure for figure in found}


def _ways(platform: Platform, compared: Sequence[SheetFigure]) -> Iterator[SheetFigure]:
    """Yield bandwidths in other conventions: both directions, a chip's share of the network."""
    for figure in compared:
        if not figure.key.endswith(_ONE_WAY):
            continue
        key, label = figure.key.removesuffix(_ONE_WAY), figure.label.removesuffix(", one way")
        yield replace(
            figure, key=f"{key}_both_ways_bytes_per_s", label=label, value=2 * figure.value
        )
        if key == "fabric_network":
            share = figure.value / platform.instance.chips
            yield replace(
                figure, key=f"{key}_a_chip{_ONE_WAY}", label="network, a chip", value=share
            )


_ONE_WAY = "_one_way_bytes_per_s"


def _stated(platform: Platform) -> Iterator[SheetFigure]:
    instance, weakest = platform.instance, platform.instance.provenance.weakest
    network = instance.host.network_bandwidth_bytes_per_s
    if network is not None:
        yield SheetFigure(
            key="host_network_bytes_per_s",
            label="network",
            value=network,
            dimension=Dimension.BYTES_PER_S,
            kind=weakest("host.network"),
        )
    for i, level in enumerate(instance.fabric):
        if isinstance(level, Network) and level.max_chips_per_cluster is not None:
            yield SheetFigure(
                key="cluster_chips",
                label="chips of a cluster",
                value=level.max_chips_per_cluster,
                dimension=None,
                kind=weakest(f"fabric[{i}].max_chips"),
            )


def _sparse(platform: Platform) -> Iterator[SheetFigure]:
    chip, totals = platform.chip, platform.instance.totals
    for number_format, rate in totals.sparse_flop_per_s.items():
        yield SheetFigure(
            key=f"headline_sparse_{number_format}_flop_per_s",
            label=f"headline sparse {number_format}",
            value=rate,
            dimension=Dimension.FLOP_PER_S,
            kind=platform.instance.provenance.weakest("totals.sparse"),
        )
    if chip.sparsity is None:
        return
    match chip.unit:
        case Multiprocessors():
            return
        case NeuronCores() as unit:
            formats = unit.tensor.formats
        case unknown:
            unhandled(unknown, "gain of sparse products")
    most = max(chip.sparsity.speedup.values())
    for number_format in chip.sparsity.peak_per_chip_flop_per_s:
        # A sparse product takes as long in every format; dense ones of some are faster already.
        rows = formats[number_format].rows_per_pe
        yield SheetFigure(
            key=f"sparse_gain_{number_format}",
            label=f"sparse over dense {number_format}",
            value=most / rows,
            dimension=None,
            kind=chip.provenance.weakest("sparsity.speedup"),
        )


def figure_finding(check: FigureCheck, platforms: Sequence[Platform], rounding: float) -> Finding:
    """Finding on a figure check."""
    claimed = measure(check.claimed)
    cases = tuple(
        _figure_case(check, platform, key, claimed, rounding)
        for platform in platforms
        for key in check.figures
    )
    says = "; ".join(f"{case.what} {case.says}" for case in cases)
    verdict = together(case.verdict for case in cases)
    return Finding(verdict=verdict, says=says, reason=_reason(cases, claimed), cases=cases)


def _figure_case(
    check: FigureCheck, platform: Platform, key: str, claimed: Measure, rounding: float
) -> Case:
    figure = _figure(platform, key)
    value = figure.value
    what = figure.label if len(check.instances) == 1 else platform.instance.name
    text = _text(value, claimed)
    verdict: ClaimVerdict = "does not"
    proviso = None
    if _near(value, claimed.value, rounding) or (check.at_least and value >= claimed.value):
        verdict = "holds"
    elif claimed.other_value is not None and _near(value, claimed.other_value, rounding):
        verdict, proviso = "holds only if", f"{claimed.unit} is read as {claimed.other_unit}"
    return Case(
        what=what, verdict=verdict, says=text, value=value, low=value, high=value, proviso=proviso
    )


def _figure(platform: Platform, key: str) -> SheetFigure:
    known = claimable(platform)
    if key not in known:
        raise UnknownNameError("figure", key, known, where=platform.instance.name)
    return known[key]


def _near(value: float, claimed: float, rounding: float) -> bool:
    return abs(value / claimed - 1) <= rounding


def _text(value: float, claimed: Measure) -> str:
    return show(value, claimed.dimension, scale=unit_scale(claimed.unit, claimed.dimension))


def _reason(cases: Sequence[Case], claimed: Measure) -> str:
    held = [case.what for case in cases if case.verdict == "holds"]
    if len(held) == len(cases):
        worst = max((case.value or 0.0) / claimed.value for case in cases)
        return "exceeded" if worst >= _MUCH else "as claimed, up to rounding"
    if held:
        return f"only {listed(held)}"
    provisos = [case.proviso for case in cases if case.proviso is not None]
    if provisos:
        return f"only if {provisos[0]}"
    nearest = min(cases, key=lambda case: abs((case.value or 0.0) / claimed.value - 1))
    return f"{significant((nearest.value or 0.0) / claimed.value, 3)} times what is claimed"


_MUCH = 1.1
"""A figure this many times the claimed one is reported as exceeding it."""


def ratio_finding(
    check: RatioCheck, of: Sequence[Platform], to: Sequence[Platform], rounding: float
) -> Finding:
    """Finding on a ratio check."""
    wanted = multiple(check.times)
    cases = []
    for above in of:
        for below in to:
            for key, partner in zip(check.figures, check.over or check.figures, strict=True):
                figure, other = _figure(above, key), _figure(below, partner)
                times = figure.value / other.value
                cases.append(
                    Case(
                        what=figure.label if len(to) == 1 else f"over {below.instance.name}",
                        verdict="holds" if times >= wanted * (1 - rounding) else "does not",
                        says=f"{significant(times, 3)}x",
                        value=times,
                        low=times,
                        high=times,
                    )
                )
    held = [case.what for case in cases if case.verdict == "holds"]
    verdict = together(case.verdict for case in cases)
    reason = {
        "holds": f"at least {check.times}, up to rounding",
        "holds only if": f"only {listed(held)}",
    }.get(verdict, f"below {check.times} in every figure")
    says = "; ".join(f"{case.what} {case.says}" for case in cases)
    return Finding(verdict=verdict, says=says, reason=reason, cases=tuple(cases))
