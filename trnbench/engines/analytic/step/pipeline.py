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

import numpy as np
from numpy.typing import ArrayLike

from trnbench.errors import unhandled
from trnbench.facts.arrays import FloatArray
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
        m * work.slowest.all_s, _bubble(schedule, p, v, m, work), _sends(schedule, p, v, m, work)
    )
    return PipelineTime(work_s=work_s, bubble_s=bubble_s, sends_s=sends_s)


def _bubble(
    schedule: Schedule, p: FloatArray, v: FloatArray, m: FloatArray, work: PipelineWork
) -> FloatArray:
    """Seconds that the slowest stage k waits, messages left out."""
    # Each case follows the slot order of `program.schedule` along one way through the pipeline:
    # down to k (`before`), m micro-batches on k, back up (`before`), and what k waits for in
    # between.
    slowest, before, after, behind = work.slowest, work.before, work.after, work.stages_after
    back_and_forth = before.all_s / v + after.all_s / v
    match schedule:
        case "gpipe":
            # k runs all forwards; the last one goes down through the stages behind and its backward
            # comes back up before k can run its backwards. Nothing is left to do meanwhile.
            return back_and_forth
        case "1f1b":
            # k waits twice for a micro-batch to go down behind it and come back (`after`): for its
            # first backward, while it runs the forwards ahead (one a stage behind it), and for its
            # last, while it runs as many backwards. In between F and B alternate at k's own pace.
            # With fewer micro-batches than stages behind, both waits are parts of one round trip.
            meanwhile = np.minimum(behind, m - 1)
            start = after.all_s - meanwhile * slowest.forward_s
            end = after.all_s - meanwhile * (slowest.backward_s + slowest.weight_s)
            round_trips = np.maximum(start, 0) + np.maximum(end, 0)
            return np.asarray(before.all_s + np.minimum(round_trips, after.all_s))
        case "interleaved":
            # As in 1F1B, a chunk (1/v of a stage) at a time. k runs its last chunk of micro-batch 0
            # as forward number (v - 1) p and 2 behind + (v - 1) p forwards in all before it
            # alternates, so 2 behind chunks are left to run meanwhile, and as many at the end.
            start = after.all_s - 2 * behind * slowest.forward_s
            end = after.all_s - 2 * behind * (slowest.backward_s + slowest.weight_s)
            own = (before.all_s + np.maximum(start, 0) + np.maximum(end, 0)) / v
            # The last stage turns each micro-batch round at once and so never runs ahead: the way
            # that keeps to it (taken to be as fast as the mean stage behind k) can be the longer
            # one though k is slower. Ways that keep to a stage between the two are left out, which
            # is where a slow stage in the middle comes out too short.
            last = after.all_s / np.maximum(behind, 1)
            whole = before.all_s + slowest.all_s + after.all_s
            on_last = (whole - last) / v - m * (slowest.all_s - last)
            longest = np.where(behind > 0, np.maximum(own, on_last), own)
            # One group of micro-batches: all forwards come first, and the way is GPipe's.
            return np.where(m == p, back_and_forth, longest)
        case "zb-h1":
            return _split_bubble(p, m, slowest, before, after, behind)
        case _:
            unhandled(schedule, "closed form of its bubble")


def _split_bubble(
    p: FloatArray,
    m: FloatArray,
    slowest: SlotTimes[FloatArray],
    before: SlotTimes[FloatArray],
    after: SlotTimes[FloatArray],
    behind: FloatArray,
) -> FloatArray:
    """Bubble where stage s keeps s micro-batches' weight gradients for the drain."""
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
    end = np.maximum(round_trip - behind * (slowest.backward_s + slowest.weight_s), 0)
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
    slowest, send, held, behind = work.slowest, work.send_s, work.held, work.stages_after
    piped = p > 1
    there_and_back = 2 * (p - 1)
    # Others may have time to spare; then the slowest is only held up by what it sends itself.
    spare = _spare(p, work)
    sends_on, sends_back = behind > 0, behind < p - 1
    own = held * send * (1.0 * sends_on + sends_back)
    match schedule:
        case "gpipe":
            # Micro-batches leave a stage h c apart from when they are computed: that of k, unless
            # k sends nothing, or that of another stage, less the time it has to spare.
            forward = np.maximum(held * send - spare.forward_s, held * send * sends_on)
            backward = np.maximum(
                held * send - spare.backward_s - spare.weight_s, held * send * sends_back
            )
            return np.asarray(piped * (send * there_and_back + (m - 1) * (forward + backward)))
        case "1f1b":
            # p - 1 of the p stages on a round trip are not k, and have time to spare.
            waits = _round_trips(p, m, held) * send - (m - 1) * (1 - 1 / p) * spare.all_s
            steady = np.maximum(waits, (m - 1) * own)
            return np.asarray(piped * (send * there_and_back + steady))
        case "zb-h1":
            # Until the first weight gradients F and B alternate between neighbours without slack:
            # a message there and one back for each micro-batch but the first two. Later a W lies
            # between, and only what exceeds it counts, or what holds up a stage that sends twice.
            ramp = np.clip(m - 2, 0, p - 1) * np.maximum(2 * send - spare.all_s, own)
            round_trip = (1 - 1 / p) * (2 * send - slowest.weight_s - spare.all_s)
            inner = held * send * np.minimum(p - 1, 2) - spare.all_s
            steady = np.maximum(m - p, 0) * np.maximum(own, np.maximum(inner, round_trip))
            return np.asarray(piped * (send * there_and_back + ramp + steady))
        case "interleaved":
            # m v chunks go out and m v come back; those of the ramps (`ramps`) hide behind the
            # forwards run ahead. The last stage sends no last chunk, (1 - 1/v) m v on and m v back;
            # inner stages send all, but have a chunk of slack. With one group nothing is hidden.
            ramps = 2 * (v - 1) * p
            last = held * send * ((2 - 1 / v) * m * v - ramps - 1)
            inside = np.where(p > 2, held * send * (2 * m * v - ramps - 1) - slowest.all_s / v, 0.0)
            steady = np.where(m == p, held * send * 2 * (p - 1), np.maximum(last, inside))
            # Each lap around all stages, up in the ramp and down in the drain, before the last one.
            lap_up = np.maximum(p * send - (p - 1) * spare.forward_s / v, p * held * send)
            spare_down = spare.backward_s + spare.weight_s
            lap_down = np.maximum(p * send - (p - 1) * spare_down / v, p * held * send)
            laps = (v - 1) * (lap_up + lap_down)
            return np.asarray(piped * (2 * (p - 1) * send + laps + steady))
        case _:
            unhandled(schedule, "closed form of its messages")


def _spare(p: FloatArray, work: PipelineWork) -> SlotTimes[FloatArray]:
    """By how many seconds a micro-batch the other stages are faster, on average."""
    slowest, before, after = work.slowest, work.before, work.after
    others = np.maximum(p - 1, 1)
    return SlotTimes(
        forward_s=slowest.forward_s - (before.forward_s + after.forward_s) / others,
        backward_s=slowest.backward_s - (before.backward_s + after.backward_s) / others,
        weight_s=slowest.weight_s - (before.weight_s + after.weight_s) / others,
    )


def _round_trips(p: FloatArray, m: FloatArray, held: FloatArray) -> FloatArray:
    """Messages that micro-batches 1 to m - 1 of 1F1B wait for, on the worst way."""
    # A round trip over d + 1 stages takes 2 d messages for d + 1 micro-batches. A stage where it
    # turns is also held up by its own message to the stage beyond, unless it is the first or last.
    # Quotients of whole numbers: far faster than // and %.
    turns = np.floor((m - 1) / p)
    rest = (m - 1) - turns * p
    whole = 2 * (p - 1) * turns + np.where(rest > 0, 2 * (rest - 1) + held, 0.0)
    to_one_end = 2 - (2 - held) / np.maximum(p - 1, 1)
    inner = 2 - 2 * (1 - held) / np.maximum(p - 2, 1)
    turning = (m - 1) * np.maximum(to_one_end, inner) - held
    return np.where((p > 2) & (m > 1), np.maximum(whole, turning), whole)
