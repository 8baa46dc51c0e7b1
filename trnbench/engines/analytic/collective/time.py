"""The analytic collective engine: closed forms over arrays of sizes.

Model. A round ends with its slowest message: its latency and software step, plus the busiest link
on its path at the stack's share of link speed, plus the part of the sum that nothing hides. A ring
that relays pays a slow hop once a lap: it is bound either by its busiest link or by the way of one
chunk through all hops; a pipelined tree or chain pays latency along its critical way, the chain of
waits that ends last (found at a few sizes; between them the largest holds). So the time of a round
is the largest of a few lines over the size. Collectives of several levels work in chunks that
follow one another through the phases, one at a time on each lane; where lanes share links, each
further chunk takes at least what its bytes need there.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate

import numpy as np

from trnbench.engines.analytic.collective.shape import (
    ChunkPipeline,
    MessageClasses,
    PhaseProfile,
    Profile,
    Resource,
    RoundProfile,
    Way,
)
from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.calibration.collective_stack import Tuning
from trnbench.facts.records import Record, replace
from trnbench.machine.message_plan.plan import chunks_of, turns

_SCALES = np.array([0.0, 0.1, 0.3, 0.7, 1.0, 1.5, 3.0, 10.0, 1e6])
"""Sizes at which critical ways are searched, relative to the size whose transfer takes one latency.
"""


class Breakdown(Record):
    """Seconds of a collective by size, and their parts."""

    time_s: FloatArray
    launch_s: FloatArray
    latency_s: FloatArray  # Seconds that would remain with infinitely fast links and sums
    chunks: FloatArray  # Pipelined parts of the collective
    bound_by: tuple[str, ...]  # The resource that sets the time, by size


class Lines(Record, eq=False):
    """Seconds `start_s + s_per_byte * size`; of each consecutive group of lines the largest holds.

    Arrays in the tuning add axes behind the first.
    """

    start_s: FloatArray
    s_per_byte: FloatArray
    counts: IntArray  # Lines of each group


class ClosedForm(Record, eq=False):
    """A profiled collective with a tuning: the lines of all phases in one array."""

    profile: Profile  # Lanes and resources; its phases are left out
    tuning: Tuning
    lines: Lines
    first_lines: IntArray  # First line of each round
    first_rounds: IntArray  # First round of each phase
    phases: IntArray  # Numbers of the phases that have rounds
    rounds: tuple[int, ...]  # Rounds of each of these phases
    shape: Hashable  # Key: forms with one shape and tuning can be priced together

    def time_s(self, size_bytes: FloatArray) -> FloatArray:
        """Seconds for an array of sizes."""
        if not len(self.phases):
            return np.zeros_like(size_bytes)
        _, times = self.candidates(size_bytes)
        slowest = times[0]
        for time in times[1:]:
            slowest = np.maximum(slowest, time)
        return np.asarray(self.tuning.launch_s + slowest)

    def candidates(self, size_bytes: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        """Number of chunks, and seconds by phases and by each shared link; the largest holds."""
        # Chunks of one size go through the phases; a shared link bounds the pace of all but one of
        # them.
        chunks = chunks_of(self.tuning, len(self.profile.lanes), size_bytes)
        phases = self.phase_times(size_bytes / chunks)
        times = [_pipelined(self.profile.lanes, phases, chunks)]
        if self.profile.resources:
            once = phases.sum(axis=0)
            for resource in self.profile.resources:
                share = (self.tuning.on_chip, self.tuning.link, self.tuning.network)[resource.kind]
                behind = (chunks - 1) / chunks * size_bytes * resource.s_per_byte / share
                times.append(behind + once)
        return chunks, times

    def phase_times(self, size_bytes: FloatArray) -> FloatArray:
        """Seconds of one chunk of these sizes in each phase, [phase, ...]."""
        start_s, s_per_byte = (
            _with_axes(values, size_bytes.ndim)
            for values in (self.lines.start_s, self.lines.s_per_byte)
        )
        times = start_s + s_per_byte * size_bytes
        # All lines of all rounds at once: the largest of each round, then the sum of each phase.
        if len(self.first_lines) < len(times):
            times = np.maximum.reduceat(times, self.first_lines, axis=0)
        if len(self.first_rounds) < len(times):
            times = np.add.reduceat(times, self.first_rounds, axis=0)
        if len(self.phases) == len(self.profile.lanes):
            return np.asarray(times)
        every = np.zeros((len(self.profile.lanes), *times.shape[1:]))
        every[self.phases] = times
        return every


def closed_form(profile: Profile, tuning: Tuning) -> ClosedForm:
    """The closed form of a profiled collective with a tuning."""
    phases = np.array([i for i, part in enumerate(profile.phases) if len(part.times)], dtype=int)
    numbers = (
        *(tuning.step_s, tuning.network_step_s, tuning.message_s, tuning.reduce_touches),
        *(tuning.on_chip, tuning.link, tuning.network, tuning.slices),
    )
    axes = (1,) * max(getattr(number, "ndim", 0) for number in numbers)
    lines = [_phase_lines(profile, profile.phases[index], tuning, axes) for index in phases]
    every = Lines(
        start_s=_stacked([part.start_s for part in lines]),
        s_per_byte=_stacked([part.s_per_byte for part in lines]),
        counts=np.concatenate([np.zeros(0, np.int64), *(part.counts for part in lines)]),
    )
    return form_of(
        replace(profile, phases=()),
        tuning,
        every,
        rounds=tuple(len(part.counts) for part in lines),
        phases=phases,
    )


def form_of(
    profile: Profile, tuning: Tuning, lines: Lines, *, rounds: tuple[int, ...], phases: IntArray
) -> ClosedForm:
    """A closed form from its lines; `rounds` of each of the phases that have any."""
    kinds = tuple(resource.kind for resource in profile.resources)
    counts = lines.counts
    return ClosedForm(
        profile=profile,
        tuning=tuning,
        lines=lines,
        first_lines=counts.cumsum() - counts,
        first_rounds=np.array([0, *accumulate(rounds[:-1])]),
        phases=phases,
        rounds=rounds,
        shape=(profile.lanes, kinds, counts.tobytes(), rounds, phases.tobytes()),
    )


def padded(form: ClosedForm) -> ClosedForm:
    """The same closed form in one of few shapes, for more forms to be priced together.

    Lines of a round are repeated, and rounds without time added, up to powers of two.
    """
    if not len(form.phases) or form.lines.start_s.ndim > 1:
        return form
    # Repeating a line leaves the largest of a round as it is, and a line of zeros a phase's sum.
    counts = form.lines.counts.tolist()
    # Powers of two leave few shapes, so most forms of a grid are priced in one array operation.
    wide, nothing = _power_from(max(counts)), len(form.lines.start_s)
    chosen: list[int] = []
    rounds: list[int] = []
    line, behind = 0, iter(counts)
    for own in form.rounds:
        for count in (next(behind) for _ in range(own)):
            chosen += [line + min(place, count - 1) for place in range(wide)]
            line += count
        rounds.append(_power_from(own))
        chosen += [nothing] * (wide * (rounds[-1] - own))
    lines = Lines(
        start_s=np.append(form.lines.start_s, 0.0)[chosen],
        s_per_byte=np.append(form.lines.s_per_byte, 0.0)[chosen],
        counts=np.full(sum(rounds), wide, dtype=np.int64),
    )
    return form_of(form.profile, form.tuning, lines, rounds=tuple(rounds), phases=form.phases)


def _power_from(number: int) -> int:
    return 1 << (number - 1).bit_length()


def side_by_side(forms: Sequence[ClosedForm], which: IntArray) -> ClosedForm:
    """Closed forms of one shape and tuning as one; `which` is the form of each size."""
    first = forms[0]
    resources = tuple(
        Resource(kind=resource.kind, s_per_byte=np.array(slopes)[which])
        for resource, *slopes in zip(
            first.profile.resources,
            *([resource.s_per_byte for resource in form.profile.resources] for form in forms),
            strict=True,
        )
    )
    lines = Lines(
        start_s=_columns([form.lines.start_s for form in forms]).take(which, axis=1),
        s_per_byte=_columns([form.lines.s_per_byte for form in forms]).take(which, axis=1),
        counts=first.lines.counts,
    )
    return replace(first, profile=replace(first.profile, resources=resources), lines=lines)


def _columns(rows: list[FloatArray]) -> FloatArray:
    return np.asarray(np.concatenate(rows).reshape(len(rows), -1).T)


def _stacked(rows: list[FloatArray]) -> FloatArray:
    """Concatenated rows; those with fewer further axes are broadcast to the largest number."""
    if not rows:
        return np.zeros(0)
    if len(rows) == 1:
        return rows[0]
    axes = max(row.ndim for row in rows) - 1
    if not axes:
        return np.concatenate(rows)
    shape = np.broadcast_shapes(*(_with_axes(row, axes).shape[1:] for row in rows))
    return np.concatenate(
        [np.broadcast_to(_with_axes(row, axes), (len(row), *shape)) for row in rows]
    )


def _with_axes(rows: FloatArray, axes: int) -> FloatArray:
    missing = axes + 1 - rows.ndim
    return rows.reshape(len(rows), *(1,) * missing, *rows.shape[1:]) if missing > 0 else rows


def _phase_lines(
    profile: Profile, phase: PhaseProfile, tuning: Tuning, axes: tuple[int, ...]
) -> Lines:
    """Lines of the rounds of one phase; `axes` of length 1 make room for the tuning's."""

    def column(values: IntArray | FloatArray | BoolArray) -> FloatArray:
        found = np.asarray(values, dtype=np.float64)
        return found.reshape(-1, *axes) if axes else found

    times, classes = column(phase.times), phase.classes
    # A message is summed slice by slice while more of it arrives: one slice's sum stays exposed.
    adding = profile.add_s_per_byte * tuning.reduce_touches / tuning.slices
    extra = Lines(
        start_s=times * (column(phase.fanout - 1) * tuning.message_s),
        s_per_byte=times * (column(phase.adds) * adding),
        counts=np.ones(len(phase.times), dtype=np.int64),
    )
    if phase.pipeline:
        ways = critical_ways(phase.pipeline, tuning)
        starts, slopes = [extra.start_s], [extra.s_per_byte]
        for way in ways:
            steps = way.near_hops * tuning.step_s + way.remote_hops * tuning.network_step_s
            starts.append(np.asarray(way.latency_s + steps)[None])
            on_chip, link, network = way.s_per_byte
            moving = on_chip / tuning.on_chip + link / tuning.link + network / tuning.network
            slopes.append(np.asarray(moving)[None])
        return Lines(
            start_s=_stacked(starts),
            s_per_byte=_stacked(slopes),
            counts=np.append(extra.counts, len(ways)),
        )
    step = np.where(column(classes.remote) > 0, tuning.network_step_s, tuning.step_s)
    start = column(classes.latency_s) + step
    on_chip, link, network = classes.busiest_s_per_byte
    slope = np.maximum(column(on_chip) / tuning.on_chip, column(link) / tuning.link)
    slope = np.maximum(slope, column(network) / tuning.network)
    # With one class per round every hop is equal, and the plain lines below already hold.
    if phase.relays and len(start) > len(phase.times):
        return _relayed(phase, start, slope, extra)
    round_ = np.repeat(np.arange(len(phase.times)), phase.counts)
    return Lines(
        start_s=times[round_] * start + extra.start_s[round_],
        s_per_byte=times[round_] * slope + extra.s_per_byte[round_],
        counts=phase.counts,
    )


def _relayed(
    phase: PhaseProfile, start_s: FloatArray, s_per_byte: FloatArray, extra: Lines
) -> Lines:
    """Lines of rounds in which ranks pass on what has just come round the ring."""
    starts, slopes, counts = [], [], []
    for index, found in enumerate(phase.rounds):
        order = found.first + by_latency(found.classes)
        start, slope = start_s[order], s_per_byte[order]
        busiest = slope.max(axis=0)
        lengths = _hops_before_queue(found, order - found.first)
        for hops in lengths:
            counts_of = found.classes.count[order - found.first]
            upto = np.minimum(-(-hops * np.cumsum(counts_of) // counts_of.sum()), hops)
            taken = np.diff(upto, prepend=0)
            taken = taken.reshape(-1, *(1,) * (start.ndim - 1))
            starts.append((taken * start).sum(axis=0) + extra.start_s[index])
            way = (found.times - hops) * busiest + (taken * slope).sum(axis=0)
            slopes.append(way + extra.s_per_byte[index])
        counts.append(len(lengths))
    return Lines(start_s=np.stack(starts), s_per_byte=np.stack(slopes), counts=np.array(counts))


def by_latency(classes: MessageClasses) -> IntArray:
    busiest = classes.busiest_s_per_byte.max(axis=0)
    return np.asarray(np.lexsort((-busiest, -classes.latency_s, ~classes.remote)))


def _hops_before_queue(found: RoundProfile, order: IntArray) -> list[int]:
    """Numbers of hops after which a chunk may begin to queue at the busiest link."""
    # A chunk that travels h hops alone and then queues takes the hops' own seconds plus (times - h)
    # transfers of the busiest link. Slow hops are `apart` hops from each other. Between two of them
    # each further hop changes that sum by the same amount, and all such stretches are equal. The
    # sum is therefore largest after the first hop, after the last slow one, or at the end of the
    # ring.
    classes = found.classes
    # Only the slowest class is placed round the ring; equal spacing is the fabric's regular layout.
    slow = int(classes.count[classes.latency_s == classes.latency_s[order[0]]].sum())
    apart = max(int(classes.count.sum()) // slow, 1)
    last_slow = (found.times - 1) // apart * apart + 1
    return sorted({1, last_slow, found.times})


def collective_time(profile: Profile, tuning: Tuning, size_bytes: FloatArray) -> Breakdown:
    """Seconds of a profiled collective for an array of sizes, and their parts.

    Arrays in `tuning` (samples of a parameter) broadcast against `size_bytes`.
    """
    size = np.asarray(size_bytes, dtype=float)
    form = closed_form(profile, tuning)
    if not len(form.phases):
        nothing, alone = np.zeros_like(size), ("nothing",) * size.size
        return Breakdown(
            time_s=nothing,
            launch_s=nothing,
            latency_s=nothing,
            chunks=np.ones_like(size),
            bound_by=alone,
        )
    chunks, times = form.candidates(size)
    kinds = [resource.kind.name.lower().replace("_", "-") for resource in profile.resources]
    names = ["phases in turn", *(f"{kind} links" for kind in kinds)]
    stacked = np.stack(np.broadcast_arrays(*times))
    chosen = np.argmax(stacked, axis=0)
    return Breakdown(
        time_s=tuning.launch_s + stacked.max(axis=0),
        launch_s=np.broadcast_to(np.asarray(tuning.launch_s, dtype=float), size.shape),
        latency_s=form.phase_times(np.zeros_like(size)).sum(axis=0),
        chunks=chunks,
        bound_by=tuple(names[i] for i in chosen.ravel()),
    )


def _pipelined(lanes: tuple[int, ...], phases: FloatArray, chunks: FloatArray) -> FloatArray:
    """Seconds until the last chunk has passed the last phase; a lane serves one chunk at a time."""
    once = phases.sum(axis=0)
    most = int(chunks.max())
    if most == 1:
        return np.asarray(once)
    if len(set(lanes)) == len(lanes):
        # Like chunks follow one another at the pace of the slowest lane.
        return np.asarray(once + (chunks - 1) * phases.max(axis=0))
    # Several phases share a lane: play the turns, since no single lane sets the pace.
    free = {lane: np.zeros_like(once) for lane in lanes}
    ended = [np.zeros_like(once) for _ in range(most)]
    least = int(chunks.min())
    for chunk, phase in turns(lanes, most):
        lane = lanes[phase]
        end = np.maximum(free[lane], ended[chunk]) + phases[phase]
        if chunk < least:
            ended[chunk] = free[lane] = end
        else:
            there = chunk < chunks
            ended[chunk] = np.where(there, end, ended[chunk])
            free[lane] = np.where(there, end, free[lane])
    return np.asarray(np.max(ended, axis=0))


def critical_ways(pipeline: ChunkPipeline, tuning: Tuning) -> list[Way]:
    """Critical ways of a pipelined phase with a stack, for small to large sizes.

    Samples of a parameter share the ways of their mean.
    """
    speeds = tuning.on_chip, tuning.link, tuning.network
    key = tuple(float(np.mean(n)) for n in (*speeds, tuning.step_s, tuning.network_step_s))
    found = pipeline.ways.of(key, lambda: _found_ways(pipeline, *key))
    times = pipeline.factor
    slopes = [
        (one * times, two * times, net * times) for one, two, net in (w.s_per_byte for w in found)
    ]
    return [replace(way, s_per_byte=slope) for way, slope in zip(found, slopes, strict=True)]


def _found_ways(pipeline: ChunkPipeline, *key: float) -> tuple[Way, ...]:
    """Critical ways at these shares of link speeds and seconds of a software step."""
    from trnbench.machine.message_plan.pieces import last_arrivals

    on_chip, link, network, step_s, network_step_s = key
    need = pipeline.s_per_byte / np.array([[on_chip], [link], [network]])
    slowest, transfer = need.argmax(axis=0), need.max(axis=0)
    start = pipeline.latency_s + np.where(pipeline.remote, network_step_s, step_s)
    # Ways cannot be enumerated: they are found by playing the phase at a few sizes. Below, the size
    # whose slowest transfer takes as long as the longest start: ways change around it.
    even = float(start.max() / transfer.max()) if transfer.max() > 0 else 0.0
    ways = set()
    for arrival in last_arrivals(pipeline.flow, start, transfer * even * _SCALES[:, None]):
        at_full_speed = pipeline.s_per_byte[slowest[arrival.messages], arrival.messages]
        per_kind = np.bincount(slowest[arrival.messages], weights=at_full_speed, minlength=3)
        hops = arrival.messages[arrival.ends_hop]
        far = int(pipeline.remote[hops].sum())
        ways.add(
            Way(
                latency_s=float(pipeline.latency_s[hops].sum()),
                near_hops=len(hops) - far,
                remote_hops=far,
                s_per_byte=(float(per_kind[0]), float(per_kind[1]), float(per_kind[2])),
            )
        )
    return tuple(sorted(ways, key=lambda way: (way.latency_s, way.s_per_byte)))
