"""The phases of a job's step: each is a program in which the other models only hold memory.

A step goes through the phases one after the other. A phase computes and moves what its passes do,
and holds what the job's other models hold for the whole step. While answers are written, ranks also
hold the engines' copy of the policy and the keys and values of answers, unless engines have nodes
of their own.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, field, replace
from trnbench.program.block import NO_PASSES, Block, BlockMemory, Copies, Resident
from trnbench.program.generation import Generation, generation_of
from trnbench.program.job_passes import POLICY, TRAIN, JobPass, JobPhaseName, on_host, passes_beside
from trnbench.program.optimizer import WeightBuckets
from trnbench.program.stages import StageClass
from trnbench.program.step import StepProgram
from trnbench.program.tensor import array, total

ENGINE = "engine"
"""Kind of the block that holds an engine which writes answers."""


NOTHING_FETCHED: FloatArray = np.zeros(())


class JobPhase(Record, eq=False):
    """One phase of a step."""

    name: JobPhaseName
    program: StepProgram
    # set where the phase writes answers; its program then only holds memory
    generation: Generation | None = None
    times: int = 1  # runs in a row: a phase that trains runs once per update
    # from host memory before the phase, on the rank that fetches most
    fetched_bytes: FloatArray = field(default_factory=lambda: NOTHING_FETCHED)


def phases_of(program: StepProgram) -> tuple[JobPhase, ...]:
    """Phases of a step in order; most jobs have one, which is the whole program."""
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
    """Phase of the passes with this name; training goes through a batch update by update."""
    found = _phase(program, passes, name)
    running = [one for one in passes if one.phase == name]
    if not any(one.trained for one in running):
        fetched = tuple(one.prefix for one in running if on_host(program.grid, one))
        return JobPhase(name=name, program=found, fetched_bytes=_fetched(program, fetched))
    grid = program.grid
    return JobPhase(name=name, program=replace(found, grid=grid.updated), times=grid.updates)


def _phase(program: StepProgram, passes: tuple[JobPass, ...], name: JobPhaseName) -> StepProgram:
    """Program in which only the passes of one phase run."""
    # Every kind of block and tensor begins with the prefix of its model; the policy has none.
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
    """Bytes of blocks with these prefixes, on a rank of the stage that holds most."""
    if not prefixes:
        return NOTHING_FETCHED
    stages = [
        total(
            count * one.bytes
            for kind, count in stage.blocks.items()
            if kind.startswith(prefixes)
            for one in program.blocks[kind].residents
            if one.lifetime == "step"
        )
        for stage in program.stages
    ]
    return array(reduce(np.maximum, stages))


def _resting(block: Block, *, away: bool = False) -> Block:
    """Block that only holds memory; none on the device if `away` in host memory."""
    residents: tuple[Resident, ...] = ()
    copies: dict[Copies, Resident] = {}
    if not away:
        residents = tuple(one for one in block.residents if one.lifetime == "step")
        copies = {name: one for name, one in block.copies.items() if one.lifetime == "step"}
    own = BlockMemory(residents=residents, copies=copies, offloaded=block.offloaded)
    return replace(block, passes=NO_PASSES, held=WeightBuckets(grid=block.grid), own=own)


def _writing(program: StepProgram, resting: StepProgram, generation: Generation) -> StepProgram:
    """Program of a rank that writes answers: an engine and the states of training."""
    apart = program.grid.generation_nodes is not None
    answers = generation.at_once(generation.engines)
    if apart:
        # The number of engines is not known here: each has room for a whole batch.
        answers = array(program.grid.generation_batch or 1)
    engine = _engine(next(iter(resting.blocks.values())), generation, answers)
    blocks = {ENGINE: engine} if apart else {**resting.blocks, ENGINE: engine}

    def stage(one: StageClass) -> StageClass:
        own = {} if apart else one.blocks
        return replace(one, blocks={**own, ENGINE: array(1)}, messages=())

    return replace(resting, blocks=blocks, stages=tuple(map(stage, resting.stages)))


def _engine(like: Block, generation: Generation, answers: FloatArray) -> Block:
    cache = array(generation.cache_bytes() * answers)
    residents = (
        Resident("weights", generation.weights_bytes, "step"),
        Resident("cache", cache, "step"),
    )
    return replace(
        like,
        kind=ENGINE,
        leaving=(),
        parameters={},
        gradients={},
        entering_gradients={},
        passes=NO_PASSES,
        held=WeightBuckets(grid=like.grid),
        own=BlockMemory(residents=residents, copies={}, offloaded={}),
    )
