"""The passes of a job's models through a step: phase, weights and loss of each.

A job is a list of passes. The policy is the model in question; other passes are of copies of it, in
the same layout, cut alike, whose blocks have a prefix. A model that is not trained goes forward
only and keeps no activations. Where the policy trains adapters, the reference is the policy without
them: one more pass, without weights of its own.

A sample of DPO (arXiv 2305.18290) and of ORPO (arXiv 2403.07691) is a pair: the same prompt with a
chosen and with a rejected answer, passed as two sequences. For DPO each also passes through the
reference, in the same slots, as TRL does. A sequence counts by the sum of its tokens'
log-probabilities, which ranks that share the sequence add up.

A step of GRPO (arXiv 2402.03300) and of PPO (arXiv 1707.06347) goes through phases, one after the
other: the policy writes answers (`program.generation`) and scores their tokens as it is before the
update, a reference and a model of rewards pass over them if there are any, then the policy trains.
PPO also has a critic, which gives values first and is trained last. Critic and model of rewards are
as large as the policy, with a number for each token in place of words. Each model has its states in
memory through all phases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from trnbench.facts.records import Record, replace
from trnbench.facts.workload.choices import REINFORCED, Job, sequences_per_sample
from trnbench.facts.workload.model import Model
from trnbench.program.block import Block, BlockMemory
from trnbench.program.builder import BlockBuilder
from trnbench.program.grid import Grid
from trnbench.program.tensor import Tensor, array

JobPhaseName = Literal["generate", "score", "reference", "reward", "values", "train", "critic"]
TRAIN: JobPhaseName = "train"
VALUE = "value"
"""Name of the weight that turns the last layer's output into a token's value."""


class JobPass(Record):
    """A model's pass in a phase of a step."""

    prefix: str = ""  # prefix of the names of the pass's blocks
    phase: JobPhaseName = TRAIN
    # prefix of the pass whose weights are read; None: weights of its own
    weights_of: str | None = None
    trained: bool = False  # whether the pass goes backward too
    valued: bool = False  # whether each token gets a number in place of words


POLICY = JobPass(trained=True)
REFERENCE = "reference."
_SCORED = JobPass(prefix="score.", phase="score", weights_of=POLICY.prefix)
_NEAR = JobPass(prefix=REFERENCE, phase="reference")
_REWARDED = JobPass(prefix="reward.", phase="reward", valued=True)
_CRITIC = JobPass(prefix="critic.", phase="critic", trained=True, valued=True)
_VALUES = JobPass(prefix="values.", phase="values", weights_of=_CRITIC.prefix, valued=True)
_BESIDE: Mapping[Job, tuple[JobPass, ...]] = {
    "dpo": (JobPass(prefix=REFERENCE),),
    "grpo": (_SCORED, _NEAR, _REWARDED),
    "ppo": (_SCORED, _NEAR, _REWARDED, _VALUES, _CRITIC),
}
"""Passes of a job besides the policy's, in order."""


def passes_beside(model: Model, grid: Grid) -> tuple[JobPass, ...]:
    """Passes of a job besides the policy's."""
    if model.vocabulary is None:
        return ()
    adapted = grid.adapter_rank is not None
    return tuple(
        replace(one, weights_of=POLICY.prefix) if adapted and one.prefix == REFERENCE else one
        for one in _BESIDE.get(grid.job, ())
        if not (one == _NEAR and grid.reference == "off")
        and not (one == _REWARDED and grid.reward == "verifier")
    )


def on_host(grid: Grid, one: JobPass) -> bool:
    """True when the weights of a pass are in host memory while the pass does not run."""
    return grid.idle_models == "host" and not one.trained and one.weights_of is None


def grid_of_pass(grid: Grid, one: JobPass) -> Grid:
    """Grid of layouts as a pass sees it: without adapters if the pass trains nothing."""
    seen = replace(grid, valued=one.valued)
    if one.trained:
        return seen
    return replace(seen, beside=True, adapter_rank=None, adapter_on=None)


def without_weights(block: Block) -> Block:
    # States that last all step are held once, by the pass that owns them.
    residents = tuple(one for one in block.residents if one.lifetime != "step")
    own = BlockMemory(residents=residents, copies=block.copies, offloaded=block.offloaded)
    return replace(block, own=own)


def of_sequences(grid: Grid) -> Grid:
    """Grid of layouts with sequences for samples; a paired sample is two sequences."""
    # Blocks know sequences only: pairs of answers are a batch of twice the size to them.
    each = sequences_per_sample(grid.job)
    if each == 1:
        return grid
    return replace(
        grid,
        micro_batch=array(grid.micro_batch * each),
        global_batch=array(grid.global_batch * each),
    )


def evaluated(model: Model) -> Model:
    """Model as it is passed forward only: without dropout."""
    transformer = model.transformer
    assert transformer is not None
    attention = transformer.attention
    quiet = None if attention is None else replace(attention, dropout=False)
    return replace(model, transformer=replace(transformer, dropout=False, attention=quiet))


def job_loss(b: BlockBuilder, losses: Tensor) -> Tensor:
    """Loss of the job from the losses of tokens: unchanged, scores, or a loss of pairs."""
    grid = b.grid
    if grid.job in REINFORCED and not grid.beside:
        return _policy_loss(b, losses)
    if sequences_per_sample(grid.job) == 1:
        return losses
    statistics, batch = grid.recipe.statistics, losses.dims[0]
    # A loss of pairs is not linear in the tokens' losses: sums over whole sequences come first, and
    # ranks that share a sequence add their parts up before anything else.
    scores = b.elementwise("sequence_sum", (losses,), "scores", (batch,), number_format=statistics)
    if "cp" in scores.partial:
        scores = b.exchange("all-reduce", "cp", scores, (batch,))
    if grid.beside:
        return scores
    pair = replace(batch, name="pair", size=array(batch.size / 2), factors=(batch.whole / 2,))
    reference: tuple[Tensor, ...] = ()
    if grid.job == "dpo":
        reference = (b.given(f"{REFERENCE}scores", (batch,), statistics),)
    return b.elementwise(
        "preference_loss",
        (scores, *reference),
        "preference.loss",
        (pair,),
        number_format=statistics,
    )


def _policy_loss(b: BlockBuilder, losses: Tensor) -> Tensor:
    """Loss per answer token: its advantage, and the distance from scores and reference."""
    statistics = b.grid.recipe.statistics
    near = (f"{REFERENCE}losses",) if b.grid.reference == "on" else ()
    names = ("score.losses", "advantages", *near)
    given = (b.given(name, losses.dims, statistics) for name in names)
    return b.elementwise(
        "policy_loss", (losses, *given), "policy.loss", losses.dims, number_format=statistics
    )


def value_loss(b: BlockBuilder, stream: Tensor) -> Tensor:
    """Value of each token; for a critic in training, its squared error."""
    statistics = b.grid.recipe.statistics
    lead = stream.dims[:2]
    dims = (*lead, b.grid.dim("value", 1))
    weight = b.weights[VALUE]
    values = b.multiply("values", stream, weight, "bsh,hc->bsc", dims, number_format=statistics)
    if b.grid.beside:
        return values
    returns = b.given("returns", dims, statistics)
    return b.elementwise(
        "squared_error", (values, returns), "value.loss", lead, number_format=statistics
    )
