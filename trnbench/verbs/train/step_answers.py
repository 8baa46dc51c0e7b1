"""The step of a model on a cluster, by every engine, in the fastest layout that fits where open.

The one place where a step is settled and predicted: training, launches, claims and runs with real
numbers all ask here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from trnbench.facts.records import replace
from trnbench.facts.units import Dimension, show
from trnbench.facts.workload.choices import REINFORCED
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.facts.workload.pipeline_layout import stages_of
from trnbench.predict.compile_time import compile_s, warm_time_s
from trnbench.predict.job_rates import host_link, host_memory, range_of
from trnbench.predict.prediction import Prediction, StepFigures
from trnbench.predict.search.question import question_of
from trnbench.predict.search.result import Found
from trnbench.predict.search.search import search
from trnbench.predict.settled import (
    DEFAULT_BATCH,
    Prefer,
    Settled,
    batch_step,
    fitted_batch,
    free_ranks,
    implied,
    searched_for,
    settle,
)
from trnbench.predict.setup import TrainSetup
from trnbench.predict.step import Playing, predict_between
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.train.answer import Searched, TrainAnswer
from trnbench.verbs.train.beside import with_others


def blank_answer(setup: TrainSetup, layout: PartialLayout, assumed: tuple[str, ...]) -> TrainAnswer:
    """Return all of an answer that is known before anything is predicted."""
    return TrainAnswer(
        label="",
        model=setup.model.name,
        instance=setup.platform.instance.name,
        chip=setup.platform.chip.name,
        nodes=setup.nodes,
        chips=setup.chips,
        ranks=setup.ranks,
        logical_size=setup.logical_size,
        tokens_per_sample=None if setup.model.recommender else layout.sample_tokens,
        layout=layout,
        engine="analytic",
        calibration=setup.stack.name,
        stack=setup.stack.short_name,
        stack_state=setup.stack.state,
        basis=setup.basis,
        claimed_mfu=setup.stack.claimed_mfu,
        evidence=setup.evidence,
        assumed=assumed,
        usual_stack=setup.usual_stack,
        passed_over=setup.passed_over,
    )


def settled_answers(
    setup: TrainSetup,
    blank: TrainAnswer,
    engines: Sequence[str] = ("analytic",),
    playing: Playing | None = None,
    *,
    between: Sequence[str] = (),
) -> tuple[TrainAnswer, ...]:
    """Return the step of an answer's settled layout by every engine, or why it cannot run.

    `between` these modes of recompute, if any are given: the mean of them.
    """
    if "emulate" in engines:
        playing = playing or Playing()
    modes = [blank.layout.changed(recompute=mode) for mode in between] or [blank.layout]
    found = predict_between(setup, [one.complete() for one in modes], playing=playing)
    meant: tuple[str, ...] = ()
    if between:
        blank = replace(blank, layout=blank.layout.changed(recompute="selective"))
        meant = (
            f"{blank.stack} calls selective what repeats half of a forward pass: the mean of "
            f"--recompute {' and '.join(between)}, as which measured rows are read",
        )
    steps = {"analytic": found.step, "emulate": found.played}
    past = tuple(chain.from_iterable(setup.beyond_rows(modes[0].complete()).values()))
    return tuple(
        replace(
            blank,
            engine=engine,
            step=steps[engine],
            beyond_rows=past,
            implied=implied(setup, blank.layout),
            memory=found.memory,
            phases=found.phases,
            timeline=found.timeline,
            reasons=found.reasons,
            warnings=(*found.warnings, *_beyond_context(setup, blank.layout), *meant),
            notes=(
                *blank.notes,
                *_expert_notes(setup),
                *_mfu_notes(setup, blank.layout, steps[engine]),
                *_compile_notes(setup, modes),
                *_writing_notes(setup, blank.layout),
                *_offload_notes(setup, blank.layout),
                *_chunk_notes(blank.layout, engine),
                *_play_notes(found, engine, blank.chip),
            ),
        )
        for engine in engines
    )


def _mfu_notes(
    setup: TrainSetup, layout: PartialLayout, step: StepFigures | None
) -> tuple[str, ...]:
    """The MFU that the stack's own software prints, where it counts another peak."""
    software, chip = setup.software, setup.platform.chip
    peak = software.peak_flop_per_s(chip.name) if software else None
    format_name, *_ = str(layout["precision"]).split("-")
    if software is None or peak is None or step is None or format_name != "bf16":
        return ()
    mfu = step.mfu * chip.peak_flop_per_s(format_name) / peak
    rate = show(peak, Dimension.FLOP_PER_S)
    return (f"{software.title} prints MFU {100 * mfu:.1f} %: it counts {rate} per chip",)


def _compile_notes(setup: TrainSetup, layouts: Sequence[PartialLayout]) -> tuple[str, ...]:
    """The time that the compiler takes before the first step, cold and from a filled cache."""
    cold = compile_s(setup, [one.complete() for one in layouts])
    if cold is None or setup.graph_compiler is None:
        return ()
    told, warm = (
        "{} ({} to {})".format(*(show(one, Dimension.SECONDS, digits=2) for one in ends))
        for ends in (cold, warm_time_s(setup.graph_compiler))
    )
    return (f"compiles before the first step in {told}; with a filled cache {warm}",)


def _beyond_context(setup: TrainSetup, layout: PartialLayout) -> tuple[str, ...]:
    """A warning of a sequence that is longer than the model's own."""
    transformer, sequence = setup.model.transformer, layout.sample_tokens
    if transformer is None or sequence <= transformer.position.length:
        return ()
    most = transformer.position.length
    return (f"sequence {sequence:,} is beyond the {most:,} tokens of {setup.model.name}",)


def _expert_notes(setup: TrainSetup) -> tuple[str, ...]:
    if not setup.experts_assumed:
        return ()
    return (
        f"experts: no step with them is published for {setup.stack.short_name} on these chips; "
        "their losses are those of GPU stacks before any fit",
    )


def _chunk_notes(layout: PartialLayout, engine: str) -> tuple[str, ...]:
    """Return in words how far the closed form is off where chunks of a stage are drawn unlike.

    Measured on llama3.1-70b, 2 to 8 stages of 2 to 5 chunks with 1 to 8 micro-batches a stage: 53
    drawings with lighter ends, 56 with layers anywhere.
    """
    drawn, ranks = layout.text("pipeline_layout"), layout.degree("pp")
    if engine != "analytic" or drawn is None or layout.degree("vpp") == 1:
        return ()
    stages = stages_of(drawn)
    if all(len(set(stages[rank::ranks])) == 1 for rank in range(ranks)):
        return ()
    return (
        "chunks of a stage are priced as if alike: 2.4 % below to 2.3 % above the simulated step "
        "with lighter ends. Hand-drawn stages: up to 30 % below; --engine emulate simulates each "
        "chunk",
    )


def _writing_notes(setup: TrainSetup, layout: PartialLayout) -> tuple[str, ...]:
    """Return in words what is assumed of a job that writes answers."""
    if layout["job"] not in REINFORCED:
        return ()
    rate = layout["generation_tokens_per_s"]
    share = range_of(setup.rates, "engine_share")
    speed = (
        f"{share.value:.0%} ({share.low:.0%} to {share.high:.0%}, assumed) of memory bandwidth "
        "while answers are written (--generation-tokens-per-s says a measured rate instead)"
        if rate is None
        else f"a chip writes {rate:g} tokens/s, as stated"
    )
    nodes = layout.number("generation_nodes")
    where = (
        f"{_beside(setup, layout)} while answers are written"
        if nodes is None
        else f"{nodes} of {setup.nodes} nodes only write answers, during the others' phases; MFU "
        "is of those that train"
    )
    updates = layout.degree("update_epochs") * layout.degree("mini_batches")
    each = layout.degree("global_batch") // layout.degree("mini_batches")
    learns = f"; the policy is updated {updates} times, on {each:,} answers each" * (updates > 1)
    judge = "; a verifier takes no time" if layout["reward"] == "verifier" else ""
    told = f"{speed}; answers are alike long; {where}{learns}{judge}"
    rough = setup.rates.answers
    return (
        f"{told}; MFU counts no FLOP of writing; rough: published steps with answers take "
        f"{rough.low:g} to {rough.high:g} times the prediction",
    )


def _offload_notes(setup: TrainSetup, layout: PartialLayout) -> tuple[str, ...]:
    """What is assumed of activations and of an optimizer on the host, in words."""
    if layout["activation_offload"] == "host":
        share = range_of(setup.rates, "offload_overlap")
        return (
            f"what layers keep goes to the host and back at {_link(setup)}, behind "
            f"{share.value:.0%} ({share.low:.0%} to {share.high:.0%}, assumed) of device time",
        )
    if layout["optimizer_offload"] != "host":
        return ()
    instance = setup.platform.instance
    rates = host_memory(setup.rates, instance)
    rate, low, high = (
        show(one, Dimension.BYTES_PER_S, digits=2) for one in (rates.value, rates.low, rates.high)
    )
    room = "" if instance.host.memory_bytes else "; its memory, which no file says, holds all"
    return (
        f"the host updates at {rate} of its memory's bandwidth ({low} to {high} per node, "
        f"assumed); gradients and weights travel at {_link(setup)}; nothing hides either{room}",
    )


def _link(setup: TrainSetup) -> str:
    """Return in words the rate of a chip's link to its host."""
    link = host_link(setup.rates, setup.platform.instance)
    known = setup.platform.instance.host.link_per_chip_one_way_bytes_per_s is not None
    rate, low, high = (
        show(one, Dimension.BYTES_PER_S, digits=2) for one in (link.value, link.low, link.high)
    )
    of = "assumed of the link's peak" if known else "assumed: no file says the link"
    return f"{rate} per chip ({low} to {high}, {of})"


def _beside(setup: TrainSetup, layout: PartialLayout) -> str:
    """Return in words where the models that do not write answers lie."""
    if layout["idle_models"] != "host":
        return "all models stay in memory"
    return (
        f"reference and reward come from host memory once a step, at {_link(setup)}; the other "
        "models stay in memory"
    )


def _play_notes(found: Prediction, engine: str, chip: str) -> tuple[str, ...]:
    """Return in words where a played step differs from its closed form, and what was not played."""
    if engine != "emulate":
        return ()

    def seconds(value: float) -> str:
        return show(value, Dimension.SECONDS, digits=3)

    notes = [
        f"{one.category}: {seconds(one.closed_s)} in closed form, {seconds(one.played_s)} played; "
        f"most of it in {one.quantity}: {seconds(one.closed_quantity_s)} and "
        f"{seconds(one.played_quantity_s)}"
        for one in found.differences
    ]
    if "generation" in found.unplayed:
        notes.append("generation is priced in closed form, not played: answers have no emulator")
    rows = ", ".join(one for one in found.unplayed if one != "generation")
    if rows:
        notes.append(f"priced in closed form, not played: {rows}; {chip} has no tile emulator")
    return tuple(notes)


WORTH = 1.02
"""A batch that gains less speed than this is not worth a word."""


def batch_words(
    setup: TrainSetup,
    layout: PartialLayout,
    assumed: Sequence[str],
    best: Found,
    *,
    headroom: float | None = None,
) -> tuple[str, ...]:
    """Return a note on the batch of a run whose fastest layout is `best`.

    That an open one was raised, or by which one a given one would be faster.
    """
    batch = layout.degree("global_batch")
    ranks = f"{setup.ranks:,} ranks divide well"
    if "global_batch" in assumed:
        if batch == DEFAULT_BATCH:
            return ()
        return (f"global batch {batch:,}: the next above {DEFAULT_BATCH:,} that {ranks}",)
    better = fitted_batch(batch, free_ranks(layout, setup.ranks), step=batch_step(layout))
    if better == batch:
        return ()
    other = layout.changed(global_batch=better)
    found = search(
        question_of(setup, other, (setup.nodes,), headroom=headroom), top=1, best="of each"
    ).best
    gain = 0.0 if found is None else found.sequences_per_s / best.sequences_per_s
    if gain < WORTH:
        return ()
    return (f"--global-batch {better} would train {gain:.3g}x as fast: {better:,} is what {ranks}",)


def step_answers(
    setup: TrainSetup,
    given: PartialLayout,
    engines: Sequence[str] = ("analytic",),
    *,
    playing: Playing | None = None,
    progress: Progress = quiet,
    prefer: Prefer | None = None,
) -> tuple[TrainAnswer, ...]:
    """The step by every engine, in the layout preferred where knobs are left open.

    With a preference answers have the layouts that explain the chosen one.
    """
    where = f"{setup.model.name} on {setup.platform.instance.name}:{setup.nodes}"
    settled = settle(
        setup,
        given,
        progress=lambda done, total, what: progress(done, total, f"{what} of {where}"),
        prefer=prefer,
    )
    blank = _searched(setup, settled, blank_answer(setup, settled.layout, settled.habitual))
    if searched_for(settled.layout):
        return tuple(replace(blank, engine=engine) for engine in engines)
    blank = replace(blank, preferred=prefer or "fast")
    answers = settled_answers(setup, blank, engines, playing, between=settled.between)
    if settled.chosen and settled.result is not None and not settled.between:
        cluster = settled.result.by_nodes[setup.nodes]
        answers = (with_others(setup, answers[0], cluster), *answers[1:])
    if not settled.between:
        answers = tuple(_with_note(answer, given) for answer in answers)
    if blank.feasible:
        return answers
    # The layout that came nearest is shown with its memory.
    return tuple(replace(answer, step=None, reasons=blank.reasons) for answer in answers)


def _with_note(answer: TrainAnswer, asked: PartialLayout) -> TrainAnswer:
    """Return an answer that says so where another recompute mode was asked for."""
    mode, runs = asked["recompute"], answer.layout["recompute"]
    if mode in (None, runs):
        return answer
    note = f"recompute {mode} is {runs}: fused attention keeps nothing to repeat"
    return replace(answer, warnings=(*answer.warnings, note))


def _searched(setup: TrainSetup, settled: Settled, blank: TrainAnswer) -> TrainAnswer:
    """Return the answer with the counts of the search, and a note on the batch or the reasons."""
    result = settled.result
    if result is None:
        return blank
    searched = Searched(legal=result.legal, feasible=result.feasible)
    if result.best is None:
        return replace(blank, searched=searched, reasons=result.reasons)
    notes = batch_words(setup, settled.before, settled.habitual, result.best)
    return replace(blank, chosen=settled.chosen, searched=searched, notes=notes)
