"""The phases of a job's step: each is a program of its own, in which other models only lie.

A step goes through them one after the other. A phase computes and moves what its passes do; what
the other models of the job hold for the whole step it holds too. While answers are written, the
engines' copy of the policy and what is kept of answers is there beside them, unless that is done on
nodes of their own.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, field, replace
from trnbench.program.block import Block, Resident
from trnbench.program.generation import Generation, generation_of
from trnbench.program.job_passes import POLICY, TRAIN, JobPass, JobPhaseName, on_host, passes_beside
from trnbench.program.keeping import NOTHING_KEPT
from trnbench.program.stages import StageClass
from trnbench.program.step import StepProgram
from trnbench.program.tensor import array

ENGINE = "engine"
"""The block that a rank has of the engine that writes answers."""


NOTHING_FETCHED: FloatArray = np.zeros(())


class JobPhase(Record, eq=False):
    """A phase of a step; with a `generation` it writes answers, and its program only holds.

    Its program runs `times` after each other: one that trains, once for each update. First it
    fetches `fetched_bytes` from the host's memory, on the rank that fetches most.
    """

    name: JobPhaseName
    program: StepProgram
    generation: Generation | None = None
    times: int = 1
    fetched_bytes: FloatArray = field(default_factory=lambda: NOTHING_FETCHED)


def phases_of(program: StepProgram) -> tuple[JobPhase, ...]:
    """Return the phases of a step in order; of most jobs one, which is all of the program."""
    passes = (*passes_beside(program.model, program.grid), POLICY)
    # A critic learns after the policy did.
    names = sorted(dict.fromkeys(one.phase for one in passes), key=lambda name: name == "critic")
    if len(names) == 1:
        return (JobPhase(name=TRAIN, program=program),)
    trained = tuple(_of_passes(program, passes, name) for name in names)
    generation = generation_of(program.model, program.grid)
    if generation is None:
        return trained
    writing = _writing(program, _phase(program, passes, "generate"), generation)
    return (JobPhase(name="generate", program=writing, generation=generation), *trained)


def _of_passes(program: StepProgram, passes: tuple[JobPass, ...], name: JobPhaseName) -> JobPhase:
    """Return a phase of passes; one that trains goes through a batch update by update."""
    found = _phase(program, passes, name)
    running = [one for one in passes if one.phase == name]
    if not any(one.trained for one in running):
        fetched = tuple(one.prefix for one in running if on_host(program.grid, one))
        return JobPhase(name=name, program=found, fetched_bytes=_fetched(program, fetched))
    grid = program.grid
    return JobPhase(name=name, program=replace(found, grid=grid.updated), times=grid.updates)


def _phase(program: StepProgram, passes: tuple[JobPass, ...], name: JobPhaseName) -> StepProgram:
    """Return the program in which only the passes of a phase run."""
    prefixes = [one.prefix for one in passes if one.prefix]

    def of(what: str) -> str:
        return next((prefix for prefix in prefixes if what.startswith(prefix)), POLICY.prefix)

    running = {one.prefix: one for one in passes if one.phase == name}
    trains = any(one.trained for one in running.values())
    away = {one.prefix for one in passes if on_host(program.grid, one)}
    return replace(
        program,
        blocks={
            kind: block if of(kind) in running else _resting(block, away=of(kind) in away)
            for kind, block in program.blocks.items()
        },
        stages=tuple(
            replace(
                stage, messages=tuple(m for m in stage.messages if of(m.tensor.name) in running)
            )
            for stage in program.stages
        ),
        closing=program.closing if trains else (),
    )


def _fetched(program: StepProgram, prefixes: tuple[str, ...]) -> FloatArray:
    """Return the bytes of blocks with these prefixes on a rank of the stage that has most."""
    if not prefixes:
        return NOTHING_FETCHED
    stages = [
        sum(
            (
                count * one.bytes
                for kind, count in stage.blocks.items()
                if kind.startswith(prefixes)
                for one in program.blocks[kind].residents
                if one.lifetime == "step"
            ),
            np.zeros(()),
        )
        for stage in program.stages
    ]
    return array(reduce(np.maximum, stages))


def _resting(block: Block, *, away: bool = False) -> Block:
    """Return a block that only lies in memory; one that is `away` in that of the host."""
    if away:
        return replace(block, ops=(), kept=NOTHING_KEPT, residents=(), copies={})
    return replace(
        block,
        ops=(),
        kept=NOTHING_KEPT,
        residents=tuple(one for one in block.residents if one.lifetime == "step"),
        copies={name: one for name, one in block.copies.items() if one.lifetime == "step"},
    )


def _writing(program: StepProgram, resting: StepProgram, generation: Generation) -> StepProgram:
    """Return the program of a rank that writes answers: with an engine, beside what it trains."""
    apart = program.grid.generation_nodes is not None
    answers = generation.at_once(generation.engines)
    if apart:
        # How many engines there are is not known here: each has room for a whole batch.
        answers = array(program.grid.generation_batch or 1)
    engine = _engine(next(iter(resting.blocks.values())), generation, answers)
    blocks = {ENGINE: engine} if apart else {**resting.blocks, ENGINE: engine}

    def stage(one: StageClass) -> StageClass:
        own = {} if apart else one.blocks
        return replace(one, blocks={**own, ENGINE: array(1)}, messages=())

    return replace(resting, blocks=blocks, stages=tuple(map(stage, resting.stages)))


def _engine(like: Block, generation: Generation, answers: FloatArray) -> Block:
    cache = array(generation.cache_bytes() * answers)
    return replace(
        like,
        kind=ENGINE,
        ops=(),
        entering=(),
        leaving=(),
        parameters={},
        gradients={},
        entering_gradients={},
        kept=NOTHING_KEPT,
        buckets=(),
        residents=(
            Resident(
                category="weights", bytes=array(generation.weights_bytes + 0.0), lifetime="step"
            ),
            Resident(category="cache", bytes=np.asarray(cache), lifetime="step"),
        ),
        copies={},
    )
