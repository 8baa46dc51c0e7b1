"""The time of a pipelined step in closed form, for whole grids of layouts at once.

Model. p stages, v chunks each, m micro-batches; a message takes c from stage to stage, h of it
holds up its sender. Three parts add up.

Work: the slowest stage k runs all micro-batches.

Bubble: the longest way through the schedule that keeps to the slowest stage, or, where messages
make a schedule run ahead, to the last one. It leads through the stages before k and back; at the
start and at the end it may leave k for a round trip through the stages behind, which pays if that
takes longer than what k has to do meanwhile. For equal stages this is (p - 1)(F + B + W) / v, and
with the weight gradients apart (p - 1)(F + B - W), as long as W is the shortest of the three.

Sends: filling and draining takes a message between any two parts of the model. After that
- GPipe only holds up senders;
- 1F1B has p micro-batches under way, so a round trip of 2 (p - 1) messages holds up p of them, or a
  shorter round trip between inner stages that are held up themselves;
- interleaved runs further ahead, which hides messages; inner stages send twice a chunk, the last
  stage not after its last chunk, and is the one without slack;
- ZB-H1 is 1F1B until the first weight gradients, then a W of slack comes with each micro-batch.

How far off this is, against the played schedule (random layouts of 2 to 16 stages with up to 8 p
micro-batches, one stage up to 30 % slower, lanes free). Without messages it is exact, but for the
interleaved schedule with a slow stage that is not the last one: up to 6 % too short. With messages
of up to 8 % of a slot GPipe stays exact; 1F1B is within 0.1 % (0.7 % where a stage in the middle is
slow), interleaved within 0.3 % (6 %; 3 % from 4 p micro-batches on), ZB-H1 within 0.7 %. Messages
of half a slot make that 4 %, 5 % and 4 %: there the longest way changes from one stage to another,
which no case looks for.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from trnbench.errors import unhandled
from trnbench.facts.arrays import FloatArray, some
from trnbench.facts.records import Record
from trnbench.facts.workload.layout import Schedule
from trnbench.program.slots import SlotTimes


class PipelineWork(Record, eq=False):
    """Seconds of one micro-batch in the pipeline; those of a stage count all its chunks."""

    slowest: SlotTimes[FloatArray]  # Any stage may count as the slowest where all are equal
    before: SlotTimes[FloatArray]  # sum over the stages in front of it; `after` over those behind
    after: SlotTimes[FloatArray]
    stages_after: FloatArray
    send_s: FloatArray  # One message between neighbours, latency included
    send_overlap: FloatArray  # Share of a message during which its sender computes on

    @property
    def held(self) -> FloatArray:
        """The share of a message that holds up its sender."""
        return 1 - self.send_overlap

    @cached_property
    def slowest_s(self) -> FloatArray:
        return self.slowest.all_s

    @cached_property
    def before_s(self) -> FloatArray:
        return self.before.all_s

    @cached_property
    def after_s(self) -> FloatArray:
        return self.after.all_s


class PipelineTime(Record, eq=False):
    """Seconds from the first forward to the last slot's end: work, bubble and messages."""

    work_s: FloatArray
    bubble_s: FloatArray
    sends_s: FloatArray

    @property
    def time_s(self) -> FloatArray:
        return self.work_s + self.bubble_s + self.sends_s


def pipeline_time(
    schedule: Schedule,
    *,
    pp: ArrayLike,
    vpp: ArrayLike,
    micro_batches: ArrayLike,
    work: PipelineWork,
) -> PipelineTime:
    """Pipeline's time under a legal schedule; degrees and times broadcast."""
    p, v, m = (np.asarray(degree, dtype=np.float64) for degree in (pp, vpp, micro_batches))
    work_s, bubble_s, sends_s = np.broadcast_arrays(
        m * work.slowest_s, _bubble(schedule, p, v, m, work), _sends(schedule, p, v, m, work)
    )
    return PipelineTime(work_s=work_s, bubble_s=bubble_s, sends_s=sends_s)


def _bubble(
    schedule: Schedule, p: FloatArray, v: FloatArray, m: FloatArray, work: PipelineWork
) -> FloatArray:
    """Seconds that the slowest stage k waits, messages left out."""
    # Each case follows the slot order of `program.schedule` along one way through the pipeline:
    # down to k (`before`), m micro-batches on k, back up (`before`), and what k waits for in
    # between.
    slowest, behind = work.slowest, work.stages_after
    before_s, after_s = work.before_s, work.after_s
    match schedule:
        case "gpipe":
            # k runs all forwards; the last one goes down through the stages behind and its backward
            # comes back up before k can run its backwards. Nothing is left to do meanwhile.
            return (before_s + after_s) / v
        case "1f1b":
            # k waits twice for a micro-batch to go down behind it and come back (`after`): for its
            # first backward, while it runs the forwards ahead (one a stage behind it), and for its
            # last, while it runs as many backwards. In between F and B alternate at k's own pace.
            # With fewer micro-batches than stages behind, both waits are parts of one round trip.
            meanwhile = np.minimum(behind, m - 1)
            start = after_s - meanwhile * slowest.forward_s
            end = after_s - meanwhile * slowest.back_s
            round_trips = np.maximum(start, 0) + np.maximum(end, 0)
            return np.asarray(before_s + np.minimum(round_trips, after_s))
        case "interleaved":
            # As in 1F1B, a chunk (1/v of a stage) at a time. k runs its last chunk of micro-batch 0
            # as forward number (v - 1) p and 2 behind + (v - 1) p forwards in all before it
            # alternates, so 2 behind chunks are left to run meanwhile, and as many at the end.
            meanwhile = 2 * behind
            start = after_s - meanwhile * slowest.forward_s
            end = after_s - meanwhile * slowest.back_s
            own = (before_s + np.maximum(start, 0) + np.maximum(end, 0)) / v
            # The last stage turns each micro-batch round at once and so never runs ahead: the way
            # that keeps to it (taken to be as fast as the mean stage behind k) can be the longer
            # one though k is slower. Ways that keep to a stage between the two are left out, which
            # is where a slow stage in the middle comes out too short. Where k is the last stage the
            # way is shorter.
            last = after_s / np.maximum(behind, 1)
            whole = before_s + work.slowest_s + after_s
            on_last = (whole - last) / v - m * (work.slowest_s - last)
            # One group of micro-batches: all forwards come first, and the way is GPipe's.
            return np.where(m == p, (before_s + after_s) / v, np.maximum(own, on_last))
        case "zb-h1":
            return _split_bubble(p, m, work)
        case _:
            unhandled(schedule, "closed form of its bubble")


def _split_bubble(p: FloatArray, m: FloatArray, work: PipelineWork) -> FloatArray:
    """Bubble where stage s keeps s micro-batches' weight gradients for the drain."""
    slowest, before, after, behind = work.slowest, work.before, work.after, work.stages_after
    # Round trips are as in 1F1B, but without weight gradients. When k has run its last B, s + 1 = p
    # - behind weight gradients are left to it; meanwhile the last B goes up through the stages
    # before, and the first of them ends with one W (`first_weight`: that of a mean stage). The
    # longer of the two ends the step.
    first_weight = (before.weight_s + after.weight_s) / np.maximum(p - 1, 1)
    # With fewer micro-batches than stages, the last one keeps all weight gradients for its end: the
    # way goes F down and B up through all stages, and runs none of k's m W but the first stage's.
    few = before.backward_s + after.backward_s + first_weight - m * slowest.weight_s
    few_micro_batches = before.forward_s + after.forward_s + np.maximum(few, 0)
    round_trip = after.forward_s + after.backward_s
    start = np.maximum(round_trip - behind * slowest.forward_s, 0)
    end = np.maximum(round_trip - behind * slowest.back_s, 0)
    drain = before.backward_s + first_weight - (p - behind) * slowest.weight_s
    many = before.forward_s + np.maximum(drain, 0) + np.minimum(start + end, round_trip)
    return np.where(m < p, few_micro_batches, many)


def _sends(
    schedule: Schedule, p: FloatArray, v: FloatArray, m: FloatArray, work: PipelineWork
) -> FloatArray:
    """Seconds that messages add."""
    # `send` is c of the module's text, `held` the share h. The first micro-batch fills the pipeline
    # and the last one drains it, p - 1 messages each; the rest of each case is what messages cost
    # the micro-batches in between.
    slowest, send, behind = work.slowest, work.send_s, work.stages_after
    held_s = work.held * send
    others = p - 1
    fill_and_drain = send * (2 * others)
    # Others may have time to spare; then the slowest is only held up by what it sends itself.
    match schedule:
        case "gpipe":
            # Micro-batches leave a stage h c apart from when they are computed: that of k, unless
            # k sends nothing, or that of another stage, less the time it has to spare.
            spare = _spare(p, work)
            forward = np.maximum(held_s - spare.forward_s, held_s * (behind > 0))
            backward = np.maximum(held_s - spare.back_s, held_s * (behind < others))
            steady = (m - 1) * (forward + backward)
        case "1f1b":
            # p - 1 of the p stages on a round trip are not k, and have time to spare.
            spare_s = work.slowest_s - (work.before_s + work.after_s) / np.maximum(others, 1)
            waits = _round_trips(p, m, work.held) * send - (m - 1) * (1 - 1 / p) * spare_s
            steady = np.maximum(waits, (m - 1) * (held_s * _neighbours(p, behind)))
        case "zb-h1":
            # Until the first weight gradients F and B alternate between neighbours without slack:
            # a message there and one back for each micro-batch but the first two. Later a W lies
            # between, and only what exceeds it counts, or what holds up a stage that sends twice.
            spare_s, own = _spare(p, work).all_s, held_s * _neighbours(p, behind)
            ramp = np.clip(m - 2, 0, others) * np.maximum(2 * send - spare_s, own)
            round_trip = (1 - 1 / p) * (2 * send - slowest.weight_s - spare_s)
            inner = held_s * np.minimum(others, 2) - spare_s
            later = np.maximum(m - p, 0) * np.maximum(own, np.maximum(inner, round_trip))
            steady = ramp + later
        case "interleaved":
            # m v chunks go out and m v come back; those of the ramps (`ramps`) hide behind the
            # forwards run ahead. The last stage sends no last chunk, (1 - 1/v) m v on and m v back;
            # inner stages send all, but have a chunk of slack. With one group nothing is hidden.
            ramps = 2 * (v - 1) * p + 1
            last = held_s * ((2 - 1 / v) * m * v - ramps)
            inside = held_s * (2 * m * v - ramps) - work.slowest_s / v
            turned = np.maximum(last, np.where(p > 2, inside, 0.0))
            between = np.where(m == p, held_s * (2 * others), turned)
            # Each lap around all stages, up in the ramp and down in the drain, before the last one.
            spare, lap, least = _spare(p, work), p * send, p * held_s
            lap_up = np.maximum(lap - others * spare.forward_s / v, least)
            lap_down = np.maximum(lap - others * spare.back_s / v, least)
            steady = (v - 1) * (lap_up + lap_down) + between
        case _:
            unhandled(schedule, "closed form of its messages")
    sends = fill_and_drain + steady
    piped = p > 1
    return np.asarray(sends if piped.all() else piped * sends)


def _neighbours(p: FloatArray, behind: FloatArray) -> FloatArray:
    """Stages that the slowest one sends to."""
    return np.minimum(behind, 1) + np.minimum(p - 1 - behind, 1)


def _spare(p: FloatArray, work: PipelineWork) -> SlotTimes[FloatArray]:
    """Seconds a micro-batch by which the other stages are faster, on average."""
    slowest, before, after = work.slowest, work.before, work.after
    others = np.maximum(p - 1, 1)

    def spare_s(own: FloatArray, before: FloatArray, after: FloatArray) -> FloatArray:
        others_s = before + after
        return own - others_s / others if some(others_s) else own

    return SlotTimes(
        forward_s=spare_s(slowest.forward_s, before.forward_s, after.forward_s),
        backward_s=spare_s(slowest.backward_s, before.backward_s, after.backward_s),
        weight_s=spare_s(slowest.weight_s, before.weight_s, after.weight_s),
    )


def _round_trips(p: FloatArray, m: FloatArray, held: FloatArray) -> FloatArray:
    """Messages that micro-batches 1 to m - 1 of 1F1B wait for, on the worst way."""
    # A round trip over d + 1 stages takes 2 d messages for d + 1 micro-batches. A stage where it
    # turns is also held up by its own message to the stage beyond, unless it is the first or last.
    # Quotients of whole numbers: far faster than // and %.
    others, more = p - 1, m - 1
    turns = np.floor(more / p)
    rest = more - turns * p
    whole = 2 * others * turns + np.maximum(2 * (rest - 1) + held, 0)
    to_one_end = 2 - (2 - held) / np.maximum(others, 1)
    inner = np.where(p > 2, 2 - 2 * (1 - held) / np.maximum(p - 2, 1), 0.0)
    # Of two stages, or of one micro-batch, this is never the longer one.
    return np.maximum(whole, more * np.maximum(to_one_end, inner) - held)
