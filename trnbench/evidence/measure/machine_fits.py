"""A machine's numbers fitted to measured kernels and collectives.

Products: t = FLOP / (rate K / (K + K0)) + kernel start; collectives: t = launch + size / rate, by
operation and group size. Both are fitted to relative errors, so that small sizes count as much as
large ones. Passes between products are the program's bytes over the stream rate, times a factor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal

import numpy as np

from trnbench.engines.analytic.matrix.time import matrix_time
from trnbench.errors import InputError
from trnbench.evidence.kernels import PRODUCT, STREAMS, measured_product
from trnbench.evidence.measure.chains import BACKWARD, CORE, FORWARD, LAYER, LOSS, SCORES, UPDATE
from trnbench.evidence.measure.suites import OPERATIONS
from trnbench.evidence.rows import EvidenceRow, RowFault
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record, replace
from trnbench.facts.units import BITS_PER_BYTE
from trnbench.facts.workload.choices import Op
from trnbench.program.collective import bus_factor

RowClock = Literal["wall", "processor"]
"""Clock of the rows: wall time, or host processor time divided by the processors.

The latter estimates an idle host, where the devices share the host.
"""

BY_RING = ("all-reduce", "all-gather", "reduce-scatter")
END_OF_80 = 1.2816
"""Standard deviations to the end of an 80 % interval."""
PASSES_OF_A_LAYER = 4
"""Passes between products in each direction: two residual additions, rotation, gate."""
_DEPTHS = np.array([0.0, *2.0 ** np.arange(2, 11)])
"""Trial values of K0."""
_LEAST_SCATTER = 0.03
_BETTER = 0.8
"""Two lines replace one if they reduce the scatter to this share."""
_FEWEST = 3
"""Fewest sizes for a line."""
_UNTOLD = 1e9
"""Bytes/s of links without traffic; no collective is predicted with this rate."""
_TOUCHES = (4.0, 5.0)
"""Reads and writes of each score by the program without a timed kernel, forward and backward."""


class TimedRows(Record):
    """Rows of kernels and of collectives, and their clock."""

    rows: Sequence[EvidenceRow]
    exchanges: Sequence[EvidenceRow]
    clock: RowClock = "wall"

    @property
    def sharing(self) -> int:
        """Number of host processors shared by the devices."""
        return min(self.rows[0].whole("cores"), max(row.whole("ranks") for row in self.rows))

    def seconds(self, row: EvidenceRow) -> float:
        """Time of a row, s."""
        if self.clock == "processor":
            return row.positive("processor_s") / self.sharing
        if row.said("time_us"):
            return row.positive("time_us") * 1e-6
        return row.positive("latency_ms") * 1e-3

    def of(self, kernel: str) -> list[EvidenceRow]:
        return [row for row in self.rows if row.text("kernel") == kernel]


class ExchangeFit(Record):
    """A collective in groups of `ranks`, over a range of sizes."""

    op: Op
    ranks: int
    below_bytes: float | None
    """Exclusive upper size; None for the largest sizes."""
    launch_s: float
    bus_bytes_per_s: float
    link_share: float = 1.0
    """Share of the links' rate reached."""

    @property
    def name(self) -> str:
        return f"{self.op}-{self.ranks}{'-small' if self.below_bytes else ''}"


class FittedProducts(Record):
    """Rates of products: peaks by format, reached share, K0, and scatter."""

    format: str
    peaks: Mapping[str, float]
    share: float
    depth: float
    narrow: float | None
    """Share of 8-bit formats over `share`; None where none was measured."""
    scatter: float


class MachineFit(Record):
    """Numbers of a machine's data files, per device."""

    precision: str
    products: FittedProducts
    memory_share: float
    stream_bytes_per_s: float
    fastest_bytes_per_s: float
    memory_bytes: float
    cache_bytes: float
    program_s: float
    kernel_s: float
    score_touches: tuple[float, float]
    elementwise_traffic: float
    optimizer_traffic: float
    attention: tuple[float, float] | None
    exchanges: tuple[ExchangeFit, ...]
    link_bytes_per_s: float
    scatter: float


def fitted(timed: TimedRows, chip: Chip | None) -> MachineFit:
    """Numbers of a machine, whose chip is known (from the catalogue) or None."""
    first = timed.rows[0]
    program_s, kernel_s = (_one(timed, name) for name in ("program", "kernel"))
    stream, fastest = _streams(timed)
    lnc = first.whole_if_said("lnc")
    if chip is None:
        products = _products(timed, kernel_s)
        bandwidth, memory_share = stream, 1.0
    else:
        products = _products_of(timed, chip, lnc)
        bandwidth = chip.memory.bandwidth_per_chip_bytes_per_s / chip.ranks(lnc)
        memory_share = min(stream / bandwidth, 1.0)
    moved = bandwidth * memory_share
    exchanges, links, exchange_scatter = _exchanges(timed)
    training = next((row.text("dtype") for row in timed.rows if LAYER in row.text("kernel")), "")
    between = [f"{name} {phase}" for name in (LAYER, LOSS) for phase in (FORWARD, BACKWARD)]
    peak = products.peaks.get(products.format, math.nan)
    return MachineFit(
        precision="fp32" if training in ("", "fp32") else "bf16-master",
        products=products,
        memory_share=memory_share,
        stream_bytes_per_s=stream,
        fastest_bytes_per_s=fastest,
        memory_bytes=first.positive("device_memory_bytes"),
        cache_bytes=first.positive_if_said("cache_bytes") or 1.0,
        program_s=program_s,
        kernel_s=kernel_s,
        score_touches=_touches(timed, moved),
        elementwise_traffic=_traffic(timed, between, moved),
        optimizer_traffic=_traffic(timed, [UPDATE], moved),
        attention=_attention(timed, peak),
        exchanges=exchanges,
        link_bytes_per_s=links,
        scatter=max(products.scatter, exchange_scatter, _LEAST_SCATTER),
    )


def _one(timed: TimedRows, kernel: str) -> float:
    rows = timed.of(kernel)
    if not rows:
        raise InputError(f"no row tells what a {kernel} costs to launch: measure matrix, or all")
    return timed.seconds(rows[0])


def _streams(timed: TimedRows) -> tuple[float, float]:
    """Stream rate over the largest memory, and the fastest one, bytes/s."""
    rows = [row for name in STREAMS for row in timed.of(name)]
    if not rows:
        raise InputError("no row tells how fast memory is: measure matrix, or all")
    rates = [row.positive("bytes") / timed.seconds(row) for row in rows]
    sizes = [float(row.needed("shape").split()[0]) for row in rows]
    far = [rate for rate, size in zip(rates, sizes, strict=True) if size == max(sizes)]
    return _mean(far), max(rates)


def _by_format(timed: TimedRows) -> dict[str, list[EvidenceRow]]:
    groups: dict[str, list[EvidenceRow]] = {}
    for row in timed.of(PRODUCT):
        groups.setdefault(format_named(row.needed("dtype")).name, []).append(row)
    if not groups:
        raise InputError("no row tells how fast products are: measure matrix, or all")
    return groups


def _products(timed: TimedRows, kernel_s: float) -> FittedProducts:
    """Rates of an unknown chip, whose peak is the fastest measured rate."""
    groups = _by_format(timed)
    first = next(iter(groups))
    depth, rate, scatter = 0.0, 0.0, math.inf
    for tried in _DEPTHS.tolist():
        rates = [_rate(timed, row, tried, kernel_s) for row in groups[first]]
        if _scatter(rates) < scatter:
            depth, rate, scatter = tried, _mean(rates), _scatter(rates)
    best = {
        name: max(_rate(timed, row, 0.0, kernel_s) for row in rows) for name, rows in groups.items()
    }
    peak = max(rate, best[first])
    share = rate / peak
    peaks = {first: peak}
    for name, rows in groups.items():
        if name != first:
            like = _mean([_rate(timed, row, depth, kernel_s) for row in rows]) / share
            peaks[name] = max(like, best[name])
    return FittedProducts(
        format=first, peaks=peaks, share=share, depth=depth, narrow=None, scatter=scatter
    )


def _rate(timed: TimedRows, row: EvidenceRow, depth: float, kernel_s: float) -> float:
    """Rate of infinitely deep products implied by a row for some K0, FLOP/s."""
    seconds = timed.seconds(row)
    alone = max(seconds - kernel_s, 0.1 * seconds)
    k = float(measured_product(row).k)
    return row.positive("flop") / alone * (k + depth) / k


def _products_of(timed: TimedRows, chip: Chip, lnc: int | None) -> FittedProducts:
    """Shares of a known chip's peak that products reach."""
    groups = _by_format(timed)
    first = next(iter(groups))
    found = []
    for tried in _DEPTHS.tolist():
        shares = [_share(timed, row, chip, lnc, tried) for row in groups[first]]
        found.append((_scatter(shares), tried, _mean(shares)))
    scatter, depth, share = min(found)
    narrow = [
        _share(timed, row, chip, lnc, depth)
        for name, rows in groups.items()
        for row in rows
        if format_named(name).bits <= BITS_PER_BYTE
    ]
    return FittedProducts(
        format=first,
        peaks={name: chip.peak_flop_per_s(name) / chip.ranks(lnc) for name in groups},
        share=min(share, 1.0),
        depth=depth,
        narrow=min(_mean(narrow) / share, 1.0) if narrow else None,
        scatter=scatter,
    )


def _share(timed: TimedRows, row: EvidenceRow, chip: Chip, lnc: int | None, depth: float) -> float:
    """Share of the peak that an infinitely deep product would reach, for some K0."""
    product = measured_product(row)
    if chip.own_format(product.format_a) not in chip.formats:
        raise InputError(f"{row.id}: {chip.name} has no products of {product.format_a}")
    ideal = matrix_time(product, chip, cores=chip.unit.cores_per_rank(lnc))
    seconds = timed.seconds(row)
    alone = max(seconds - float(ideal.parts_s["fixed"]), 0.1 * seconds)
    return float(ideal.parts_s["tensor"]) / alone * (float(product.k) + depth) / float(product.k)


def _touches(timed: TimedRows, moved: float) -> tuple[float, float]:
    found = []
    for phase, otherwise in zip((FORWARD, BACKWARD), _TOUCHES, strict=True):
        rows = timed.of(f"{SCORES} {phase}")
        counts = [timed.seconds(row) * moved / row.positive("bytes") for row in rows]
        found.append(_mean(counts) if counts else otherwise)
    return found[0], found[1]


def _traffic(timed: TimedRows, kernels: Sequence[str], moved: float) -> float:
    """Time of passes at the stream rate, in bytes, over the bytes of the program."""
    rows = [row for name in kernels for row in timed.of(name)]
    if not rows:
        return 1.0
    spent = sum(timed.seconds(row) for row in rows)
    return spent * moved / sum(row.positive("bytes") for row in rows)


def _attention(timed: TimedRows, peak: float) -> tuple[float, float] | None:
    found = []
    for phase in (FORWARD, BACKWARD):
        rows = timed.of(f"{CORE} {phase}")
        if not rows:
            return None
        rates = [row.positive("flop") / timed.seconds(row) for row in rows]
        found.append(min(_mean(rates) / peak, 1.0))
    return found[0], found[1]


def _exchanges(timed: TimedRows) -> tuple[tuple[ExchangeFit, ...], float, float]:
    """Fit of each collective by ranks, link rate in bytes/s, and scatter."""
    groups: dict[tuple[Op, int], list[tuple[float, float]]] = {}
    for row in timed.exchanges:
        op = next((op for op in OPERATIONS if op == row.text("collective")), None)
        if op is None:
            raise RowFault(f"{row.id}: {row.text('collective')[:40]!r} is not measured here")
        point = row.positive("size_bytes"), timed.seconds(row)
        groups.setdefault((op, row.whole("ranks")), []).append(point)
    fits, scatters = [], [0.0]
    for (op, ranks), points in sorted(
        groups.items(), key=lambda item: (OPERATIONS.index(item[0][0]), item[0][1])
    ):
        for below, launch_s, s_per_byte, apart in _lines(sorted(points)):
            scatters.append(apart)
            fits.append(
                ExchangeFit(
                    op=op,
                    ranks=ranks,
                    below_bytes=below,
                    launch_s=launch_s,
                    bus_bytes_per_s=bus_factor(op, ranks) / s_per_byte,
                )
            )
    links = max((fit.bus_bytes_per_s for fit in fits), default=_UNTOLD)
    shared = tuple(replace(fit, link_share=fit.bus_bytes_per_s / links) for fit in fits)
    return shared, links, median(scatters)


def _lines(points: Sequence[tuple[float, float]]) -> list[tuple[float | None, float, float, float]]:
    """One or two lines: upper size, launch in s, s per byte, and scatter.

    Sizes that fit in caches may have a line of their own.
    """
    whole = _line(points)
    tried = [
        (_line(points[:at]), _line(points[at:]), points[at][0])
        for at in range(_FEWEST, len(points) - _FEWEST + 1)
    ]
    if not tried:
        return [(None, *whole)]
    small, large, limit = min(tried, key=lambda two: max(two[0][2], two[1][2]))
    if max(small[2], large[2]) > _BETTER * whole[2]:
        return [(None, *whole)]
    return [(limit, *small), (None, *large)]


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Launch in s and s per byte of the least-squares line, and its log scatter."""
    sizes, times = np.array(points).T
    # Dividing by the time turns least squares into relative errors.
    sides = np.stack([1 / times, sizes / times], axis=1)
    launch_s, s_per_byte = np.linalg.lstsq(sides, np.ones(len(times)), rcond=None)[0].tolist()
    if launch_s <= 0 or s_per_byte <= 0:
        # Not a line: small exchanges tell the launch, large ones the rate.
        launch_s = float(times[sizes.argmin()]) / 2
        s_per_byte = float(times[sizes.argmax()] / sizes.max())
    apart = np.log((launch_s + s_per_byte * sizes) / times)
    return launch_s, s_per_byte, float(np.sqrt(np.mean(apart**2)))


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _scatter(values: Sequence[float]) -> float:
    return float(np.std(np.log(values)))
