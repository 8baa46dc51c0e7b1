"""Layouts that do not divide a model, each with the nearest values that do.

Rules that need hardware (degrees of a platform, ranks, memory) are elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

import numpy as np

from trnbench.facts.arrays import FloatArray, some, uneven
from trnbench.facts.workload.choices import PAIRED, REINFORCED, neighbours_of
from trnbench.facts.workload.layers import Recommender, Scan
from trnbench.facts.workload.layout import KNOBS, RANK_DEGREES
from trnbench.facts.workload.model import Attention, Model, Transformer
from trnbench.facts.workload.pipeline_layout import stages_of
from trnbench.facts.workload.recompute import Module, modules_of, repeated_layers
from trnbench.facts.workload.weights import TABLES
from trnbench.program.grid import Grid
from trnbench.program.reasons import EVERYWHERE, Reason, Scalars, divides, divisors_near
from trnbench.program.schedule import broken_rules, schedule_reasons
from trnbench.program.stages import ENDS, depth_reasons, drawn_reasons
from trnbench.program.tensor import array


def reasons(model: Model, grid: Grid) -> tuple[Reason, ...]:
    """Rules that some layout of the grid breaks."""
    model = model.with_depths(grid.mtp_depths)
    if model.recommender is not None:
        rules = _recommender(model.recommender, grid)
    else:
        assert model.transformer is not None
        rules = _of(model, model.transformer, grid)
    drawn = depth_reasons(model, grid)
    micro_batches = grid.updated.micro_batches
    cut = (*_batch(grid, micro_batches), *_schedule(grid, micro_batches))
    found = (*_job(model, grid), *drawn, *rules, *cut)
    return tuple(reason for reason in found if some(reason.broken))


def _of(model: Model, transformer: Transformer, grid: Grid) -> Iterator[Reason]:
    if transformer.attention is not None:
        yield from _heads(transformer.attention, grid)
    if transformer.scan is not None:
        yield from _scan_heads(transformer.scan, grid)
    if model.tower is not None and (seen := model.tower.transformer.attention) is not None:
        yield divides("heads of the tower", grid.tp, "tp", seen.heads, "heads of the vision tower")
    if transformer.mlp is not None:
        yield divides("MLP columns", grid.tp, "tp", transformer.mlp.hidden, "MLP columns")
    if transformer.moe is not None:
        what, columns = "expert columns", transformer.moe.expert.hidden
        yield divides(what, grid.expert_ranks, grid.expert_cut, columns, what)
    yield from _sequence(model, transformer, grid)
    yield from _recompute(transformer, grid)
    yield from _experts(transformer, grid)
    if grid.shard is not None:
        yield from _shard_groups(grid, grid.shard, experts=transformer.moe is not None)
    parts = array(grid.pp * grid.vpp)
    if grid.pipeline_layout is not None:
        yield from drawn_reasons(transformer, stages_of(grid.pipeline_layout), parts)
        return
    if grid.stage_split == "layers-and-ends":
        shared = transformer.layers + ENDS
        yield Reason(
            "layers",
            (shared % parts != 0) & (grid.pp > 1),
            lambda at: (
                f"pp={at['pp']} x vpp={at['vpp']} does not divide {transformer.layers} layers and "
                f"{ENDS} ends; try pp={divisors_near(shared, at['pp'])} with vpp=1"
            ),
        )
        return
    yield Reason(
        "layers",
        parts > transformer.layers,
        lambda at: (
            f"pp={at['pp']} x vpp={at['vpp']} is more than {transformer.layers} layers; "
            f"try pp={max(1, transformer.layers // at['vpp'])}"
        ),
    )


def _recompute(transformer: Transformer, grid: Grid) -> Iterator[Reason]:
    """Rules on recompute: more layers than a stage has, or modules the model lacks."""
    again = repeated_layers(grid.recompute)
    if again is not None:
        drawn = stages_of(grid.pipeline_layout) if grid.pipeline_layout is not None else ()
        held = array(max(drawn, default=0) or np.ceil(transformer.layers / (grid.pp * grid.vpp)))
        yield Reason(
            "layers run again",
            again > held,
            lambda at: (
                f"recompute={grid.recompute}: a stage's chunk has at most "
                f"{max(drawn, default=-(-transformer.layers // (at['pp'] * at['vpp'])))} layers; "
                "try full"
            ),
        )
    absent = absent_modules(transformer)
    for module in modules_of(grid.recompute):
        if module in absent and grid.recompute != "selective":
            yield Reason(
                "modules run again",
                EVERYWHERE,
                f"recompute={module}: {absent[module]}; try another module, or full",
            )


def absent_modules(transformer: Transformer) -> Mapping[Module, str]:
    """Modules that a model lacks -> why there is nothing to repeat."""
    attention = transformer.attention
    absent: dict[Module, str] = {}
    if attention is None or attention.latent is None:
        absent["up-projection"] = "the model has no latent attention to project up"
    if transformer.norm_placement not in ("pre", "both"):
        absent["norms"] = "the model has no norm before attention and MLP"
    if attention is None:
        absent["attention-core"] = "the model has no attention"
    return absent


def _scan_heads(scan: Scan, grid: Grid) -> Iterator[Reason]:
    """Rules on scans: a rank has whole heads, and whole groups of heads with their keys."""
    group = array(grid.tp * grid.cp)
    yield Reason(
        "scan heads",
        scan.heads % group != 0,
        lambda at: (
            f"tp x cp = {at['tp'] * at['cp']} does not divide the {scan.heads} heads of a scan; "
            f"try {divisors_near(scan.heads, at['tp'] * at['cp'])}"
        ),
    )
    yield divides("scan keys", grid.tp, "tp", scan.key_heads, "key heads of a scan")


def _heads(attention: Attention, grid: Grid) -> Iterator[Reason]:
    # Above the number of key-value heads, ranks hold copies of them: each head on as many ranks.
    shared = attention.kv_heads
    yield divides("heads", grid.tp, "tp", attention.heads, "heads")
    yield Reason(
        "kv heads",
        uneven(shared, grid.tp) & uneven(grid.tp, shared),
        lambda at: (
            f"tp={at['tp']} neither divides {shared} key-value heads nor is a multiple of them; "
            f"try {divisors_near(shared, at['tp'])} or {at['tp'] // shared * shared or shared}"
        ),
    )
    neighbours = neighbours_of(grid.context_parallel)
    if neighbours is not None:
        yield _neighbours(grid, neighbours)
        yield _exchanged_heads(attention, grid, neighbours)
        yield Reason(
            "sinks in a ring",
            (grid.cp > 1) & attention.sinks,
            "sinks are summed over whole sequences; try context_parallel=all-to-all",
        )
    if grid.context_parallel == "all-to-all":
        yield _exchanged_heads(attention, grid, None)
    # In a ring, partial softmaxes are merged, which needs the statistics of a fused kernel.
    elif grid.attention == "naive":
        yield Reason(
            "ring attention",
            grid.cp > 1,
            lambda at: (
                f"cp={at['cp']}: {grid.context_parallel} context parallelism needs fused "
                "attention; try attention=fused"
            ),
        )


def _neighbours(grid: Grid, neighbours: int) -> Reason:
    """Rule on hybrid context parallelism: all-to-all groups inside a ring."""
    return Reason(
        "neighbours of context ranks",
        (grid.cp > 1) & ((grid.cp % neighbours != 0) | (grid.cp <= neighbours)),
        lambda at: (
            f"context_parallel=hybrid:{neighbours} takes cp apart into rings of groups of "
            f"{neighbours}, and cp={at['cp']} is no larger multiple of it; try "
            + (f"cp={2 * neighbours}" if at["cp"] % 2 else f"hybrid:{at['cp'] // 2} or ring")
        ),
    )


def _exchanged_heads(attention: Attention, grid: Grid, neighbours: int | None) -> Reason:
    """Rule on ranks that swap tokens for heads: all context ranks, or groups of neighbours."""
    shared, group = attention.kv_heads, array(grid.tp * (neighbours or grid.cp))
    kind = "hybrid" if neighbours else "all-to-all"
    return Reason(
        "heads of context ranks",
        (grid.cp > 1) & ((shared % group != 0) | (attention.heads % group != 0)),
        lambda at: (
            f"{kind} context parallelism gives each of tp x {neighbours or 'cp'} = "
            f"{at['tp'] * (neighbours or at['cp'])} ranks whole key-value heads, "
            f"and there are {shared}; try ring"
        ),
    )


def _sequence(model: Model, transformer: Transformer, grid: Grid) -> Iterator[Reason]:
    cut = array(grid.cp * (grid.tp if grid.sequence_parallel else 1))

    def words(at: Scalars) -> str:
        ranks = at["cp"] * (at["tp"] if grid.sequence_parallel else 1)
        below = at["sequence"] // ranks * ranks
        near = f"{below} or {below + ranks}" if below else f"{ranks}"
        name = "tp x cp" if grid.sequence_parallel else "cp"
        return f"sequence={at['sequence']} does not divide by {name} = {ranks}; try {near}"

    yield Reason("sequence", uneven(grid.sequence, cut), words)
    length = transformer.position.length
    if model.image is not None:
        yield Reason(
            "image tokens",
            grid.sequence != length,
            lambda at: f"sequence={at['sequence']}: an image has {length} tokens; try {length}",
        )
    elif transformer.position.encoding in TABLES:
        yield Reason(
            "positions",
            grid.sequence > length,
            lambda at: (
                f"sequence={at['sequence']} is above the {length} positions "
                f"the model has; try {length}"
            ),
        )


def _experts(transformer: Transformer, grid: Grid) -> Iterator[Reason]:
    moe = transformer.moe
    if moe is None:
        yield Reason(
            "no experts", grid.ep > 1, lambda at: f"ep={at['ep']}: the model has no experts; try 1"
        )
        return
    yield divides("experts", grid.ep, "ep", moe.experts, "experts")
    if grid.expert_tp is not None:
        yield from _experts_apart(grid, grid.expert_tp)
    yield from _group_of_experts(grid)
    if grid.overlapped == "on":
        yield from _overlapped_experts(grid)
    # Dense layers lead the model: stages behind the first are alike only if it holds all of them.
    held = np.floor(transformer.layers / grid.pp)
    dense = moe.dense_layers
    yield Reason(
        "dense layers",
        (held < dense) & (grid.pp > 1) & (grid.pipeline_layout is None),
        lambda at: (
            f"pp={at['pp']} leaves the first stage fewer than the model's {dense} dense layers; "
            f"try pp={transformer.layers // dense}"
        ),
    )


def _overlapped_experts(grid: Grid) -> Iterator[Reason]:
    """Rules on experts whose tokens travel while another micro-batch computes."""
    spread = grid.ep > 1
    yield Reason(
        "chunks of overlap",
        spread & (grid.pp > 1) & (grid.vpp == 1),
        lambda at: (
            f"overlapped=on with pp={at['pp']} needs model chunks, whose micro-batches meet on a "
            "stage; try vpp=2, or overlapped=off"
        ),
    )
    if grid.recompute.startswith("full"):
        yield Reason(
            "recompute of overlap",
            spread,
            f"overlapped=on does not go with recompute={grid.recompute}; try selective, or "
            "overlapped=off",
        )


def _group_of_experts(grid: Grid) -> Iterator[Reason]:
    own = grid.expert_tp

    def words(at: Scalars) -> str:
        ranks, what = at["dp"] * at["cp"], "dp x cp"
        if own is not None:
            ranks, what = max(1, ranks * at["tp"] // own), "tp x cp x dp / expert_tp"
        return (
            f"ep={at['ep']} does not divide {what} = {ranks} ranks; "
            f"try {divisors_near(ranks, at['ep'])}"
        )

    ranks = array(grid.ranks_per_stage / grid.expert_ranks)
    # Tensor ranks that do not divide break a rule of their own.
    divides_tp = ~uneven(grid.tp, grid.expert_ranks)
    yield Reason("expert ranks", divides_tp & uneven(ranks, grid.ep), words)


def _shard_groups(grid: Grid, shard: int, *, experts: bool) -> Iterator[Reason]:
    """Rules on groups of `shard` data ranks that share slices."""
    ranks = grid.ranks("data")
    if grid.zero == 0:
        yield Reason(
            "shard group",
            EVERYWHERE,
            f"shard={shard}: ZeRO stage 0 shares out nothing; try zero=1 or more",
        )
    elif shard == 1:
        yield Reason(
            "shard group", EVERYWHERE, "shard=1: a group of one rank shares out nothing; try zero=0"
        )
    yield Reason(
        "shard groups",
        ranks % shard != 0,
        lambda at: (
            f"shard={shard} does not divide dp x cp = {at['dp'] * at['cp']} ranks; "
            f"try {divisors_near(at['dp'] * at['cp'], shard)}"
        ),
    )
    if not experts:
        return
    # Of a group of dense slices, those that hold the same experts share theirs.
    own = array(grid.ranks("expert_data") * shard / ranks)
    yield Reason(
        "expert shards",
        (ranks % shard == 0) & (own % 1 != 0),
        lambda at: (
            f"shard={shard}: its ranks are not a multiple of those that experts are spread over, "
            f"ep={at['ep']}; try shard={at['dp'] * at['cp']}"
        ),
    )


def _experts_apart(grid: Grid, own: int) -> Iterator[Reason]:
    """Rules on experts cut over other ranks than the rest of their layer."""
    apart = grid.tp != own
    yield Reason(
        "ranks of an expert",
        grid.tp % own != 0,
        lambda at: (
            f"expert_tp={own} does not divide tp={at['tp']}; try {divisors_near(at['tp'], own)}"
        ),
    )
    if not grid.sequence_parallel:
        yield Reason(
            "tokens of experts",
            apart,
            lambda at: (
                f"expert_tp={own} apart from tp={at['tp']} needs sequence parallelism: each tensor "
                f"rank sends tokens of its own; try sequence_parallel, or expert_tp={at['tp']}"
            ),
        )
    if own > 1:
        yield Reason(
            "experts apart",
            apart & (grid.ep == 1),
            lambda at: (
                f"expert_tp={own} apart from tp={at['tp']} is for experts that are spread over "
                f"ranks; try ep above 1, or expert_tp=1"
            ),
        )


def _answers(model: Model, grid: Grid) -> Iterator[Reason]:
    """Rules on jobs that write answers: a decoder of text, whole groups, room for a prompt."""
    if grid.job not in REINFORCED:
        return
    if model.family != "decoder" or model.tower is not None:
        why = "sees images" if model.tower is not None else "writes none"
        yield Reason(
            "answers",
            EVERYWHERE,
            f"job={grid.job} learns from answers of a decoder of text, and {model.name} {why}; "
            "try job=finetune",
        )
        return
    group, response = grid.samples_per_prompt or 1, grid.response or 1
    yield Reason(
        "answers",
        grid.global_batch % group != 0,
        lambda at: (
            f"samples_per_prompt={group} does not divide global_batch={at['global_batch']}, which "
            "counts answers"
        ),
    )
    yield Reason(
        "answers",
        grid.sequence <= response,
        lambda at: f"response={response} leaves nothing of sequence={at['sequence']} for a prompt",
    )


def _job(model: Model, grid: Grid) -> Iterator[Reason]:
    """Rules on jobs: pairs of answers, written answers, adapters."""
    if grid.job in PAIRED and model.family != "decoder":
        yield Reason(
            "pairs",
            EVERYWHERE,
            f"job={grid.job} compares answers of a decoder, and {model.name} writes none; "
            "try job=finetune",
        )
    yield from _answers(model, grid)
    if grid.adapter_rank is None:
        return
    moe = model.transformer is not None and model.transformer.moe is not None
    if model.vocabulary is None:
        yield Reason(
            "adapters",
            EVERYWHERE,
            f"adapter_rank={grid.adapter_rank}: adapters are for models of text, and "
            f"{model.name} is none; try job=finetune",
        )
    elif moe and grid.adapter_on == "all-linear":
        yield Reason(
            "adapters",
            EVERYWHERE,
            "adapter_on=all-linear: adapters of experts are not modelled; try adapter_on=attention",
        )
    elif model.transformer is not None:
        # The layers' input is one side of every projection.
        side = model.transformer.hidden
        yield Reason(
            "adapters",
            np.asarray(grid.adapter_rank > side),
            f"adapter_rank={grid.adapter_rank} is wider than the projections, whose one side is "
            f"{side}; try {side} or less",
        )


def _batch(grid: Grid, micro_batches: FloatArray) -> Iterator[Reason]:
    parts = grid.mini_batches or 1

    def words(at: Scalars) -> str:
        step = parts * at["dp"] * at["micro_batch"]
        below = at["global_batch"] // step * step
        near = f"{below} or {below + step}" if below else f"{step}"
        return (
            f"global_batch={at['global_batch']} does not divide by "
            f"dp x micro_batch{' x mini_batches' * (parts > 1)} = {step}; try {near}"
        )

    # (Multiplying back is ten times faster than a remainder, and exact for whole numbers.)
    filled = micro_batches * (grid.dp * grid.micro_batch)
    yield Reason("batch", filled != grid.updated.global_batch, words)


def _schedule(grid: Grid, micro_batches: FloatArray) -> Iterator[Reason]:
    schedule = grid.schedule

    def words(at: Scalars) -> str:
        step = (grid.mini_batches or 1) * at["dp"] * at["micro_batch"]
        micro_batches = -(-at["global_batch"] // step)
        found = schedule_reasons(schedule, pp=at["pp"], vpp=at["vpp"], micro_batches=micro_batches)
        return "; ".join(found)

    rules = broken_rules(schedule, pp=grid.pp, vpp=grid.vpp, micro_batches=micro_batches)
    # Masks that are true nowhere would only spread the others over more of the grid.
    broken = [mask for mask in rules.values() if some(mask)]
    yield Reason("schedule", reduce(np.logical_or, broken, np.zeros((), np.bool_)), words)


def _recommender(recommender: Recommender, grid: Grid) -> Iterator[Reason]:
    for name in (name for name in RANK_DEGREES if KNOBS[name].part == "layers"):
        yield Reason(
            name,
            getattr(grid, name) > 1,
            lambda at, name=name: (  # type: ignore[misc]
                f"{name}={at[name]}: a recommender spreads its tables by ep and its batch by dp; "
                f"try {name}=1"
            ),
        )
    yield from _group_of_experts(grid)
    yield divides("columns", grid.ep, "ep", recommender.embedding_size, "columns of a table")
