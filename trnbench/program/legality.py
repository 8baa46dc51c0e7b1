"""Layouts that do not divide a model, each with the nearest values that do.

Rules that need hardware (degrees of a platform, ranks, memory) are elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from trnbench.facts.workload.choices import PAIRED, REINFORCED, neighbours_of
from trnbench.facts.workload.layers import Recommender, Scan
from trnbench.facts.workload.layout import KNOBS, RANK_DEGREES
from trnbench.facts.workload.model import Attention, Model, Transformer
from trnbench.facts.workload.pipeline_layout import stages_of
from trnbench.facts.workload.recompute import Module, modules_of, repeated_layers
from trnbench.facts.workload.weights import TABLES
from trnbench.program.grid import Grid
from trnbench.program.reasons import Reason, Scalars, divides, divisors_near
from trnbench.program.schedule import broken_rules, schedule_reasons
from trnbench.program.stages import ENDS, depth_reasons, drawn_reasons
from trnbench.program.tensor import array


def reasons(model: Model, grid: Grid) -> tuple[Reason, ...]:
    """Rules that some layout of the grid breaks."""
    model = model.with_depths(grid.mtp_depths)
    rules = (
        _recommender(model.recommender, grid)
        if model.recommender is not None
        else _of(model, _transformer(model), grid)
    )
    found = (
        *_job(model, grid),
        *depth_reasons(model, grid),
        *rules,
        *_batch(grid),
        *_schedule(grid),
    )
    return tuple(reason for reason in found if np.any(reason.broken))


def _transformer(model: Model) -> Transformer:
    assert model.transformer is not None
    return model.transformer


def _of(model: Model, transformer: Transformer, grid: Grid) -> Iterator[Reason]:
    if transformer.attention is not None:
        yield from _heads(transformer.attention, grid)
    if transformer.scan is not None:
        yield from _scan_heads(transformer.scan, grid)
    if model.tower is not None and model.tower.transformer.attention is not None:
        encoder = model.tower.transformer
        assert encoder.attention is not None
        heads = encoder.attention.heads
        yield divides("heads of the tower", grid.tp, "tp", heads, "heads of the vision tower")
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
            rule="layers",
            broken=(shared % parts != 0) & (grid.pp > 1),
            words=lambda at: (
                f"pp={at['pp']} x vpp={at['vpp']} does not divide {transformer.layers} layers and "
                f"{ENDS} ends; try pp={divisors_near(shared, at['pp'])} with vpp=1"
            ),
        )
        return
    yield Reason(
        rule="layers",
        broken=parts > transformer.layers,
        words=lambda at: (
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
            rule="layers run again",
            broken=again > held,
            words=lambda at: (
                f"recompute={grid.recompute}: a stage's chunk has at most "
                f"{max(drawn, default=-(-transformer.layers // (at['pp'] * at['vpp'])))} layers; "
                "try full"
            ),
        )
    absent = absent_modules(transformer)
    for module in modules_of(grid.recompute):
        if module in absent and grid.recompute != "selective":
            yield Reason(
                rule="modules run again",
                broken=np.ones((), dtype=np.bool_),
                words=lambda _, module=module: (  # type: ignore[misc]
                    f"recompute={module}: {absent[module]}; try another module, or full"
                ),
            )


def absent_modules(transformer: Transformer) -> Mapping[Module, str]:
    """Modules that a model lacks -> why there is nothing to repeat."""
    attention = transformer.attention
    absent: dict[Module, str] = {}
    if attention is None or attention.latent is None:
        absent["up-projection"] = "there is no latent attention to project up"
    if transformer.norm_placement not in ("pre", "both"):
        absent["norms"] = "no norm stands in front of attention and MLP"
    if attention is None:
        absent["attention-core"] = "there is no attention"
    return absent


def _scan_heads(scan: Scan, grid: Grid) -> Iterator[Reason]:
    """Rules on scans: a rank has whole heads, and whole groups of heads with their keys."""
    group = array(grid.tp * grid.cp)
    yield Reason(
        rule="scan heads",
        broken=scan.heads % group != 0,
        words=lambda at: (
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
        rule="kv heads",
        broken=(shared % grid.tp != 0) & (grid.tp % shared != 0),
        words=lambda at: (
            f"tp={at['tp']} neither divides {shared} key-value heads nor is a multiple of them; "
            f"try {divisors_near(shared, at['tp'])} or {at['tp'] // shared * shared or shared}"
        ),
    )
    neighbours = neighbours_of(grid.context_parallel)
    if neighbours is not None:
        yield from _hybrid_exchange(attention, grid, neighbours)
    if grid.context_parallel == "all-to-all":
        group = array(grid.tp * grid.cp)
        yield Reason(
            rule="heads of context ranks",
            broken=(grid.cp > 1) & ((shared % group != 0) | (attention.heads % group != 0)),
            words=lambda at: (
                f"all-to-all context parallelism gives each of tp x cp = {at['tp'] * at['cp']} "
                f"ranks whole key-value heads, and there are {shared}; try ring"
            ),
        )
    # In a ring, partial softmaxes are merged, which needs the statistics of a fused kernel.
    elif grid.attention == "naive":
        yield Reason(
            rule="ring attention",
            broken=grid.cp > 1,
            words=lambda at: (
                f"cp={at['cp']}: {grid.context_parallel} context parallelism needs fused "
                "attention; "
                "try attention=fused"
            ),
        )


def _hybrid_exchange(attention: Attention, grid: Grid, neighbours: int) -> Iterator[Reason]:
    """Rules on hybrid context parallelism: all-to-all groups inside a ring."""
    yield Reason(
        rule="neighbours of context ranks",
        broken=(grid.cp > 1) & ((grid.cp % neighbours != 0) | (grid.cp <= neighbours)),
        words=lambda at: (
            f"context_parallel=hybrid:{neighbours} takes cp apart into rings of groups of "
            f"{neighbours}, and cp={at['cp']} is no larger multiple of it; try "
            + (f"cp={2 * neighbours}" if at["cp"] % 2 else f"hybrid:{at['cp'] // 2} or ring")
        ),
    )
    shared, group = attention.kv_heads, array(grid.tp * neighbours)
    yield Reason(
        rule="heads of context ranks",
        broken=(grid.cp > 1) & ((shared % group != 0) | (attention.heads % group != 0)),
        words=lambda at: (
            f"hybrid context parallelism gives each of tp x {neighbours} = "
            f"{at['tp'] * neighbours} ranks whole key-value heads, and there are {shared}; try ring"
        ),
    )
    yield Reason(
        rule="sinks in a ring",
        broken=(grid.cp > 1) & attention.sinks,
        words=lambda _: "sinks are summed over whole sequences; try context_parallel=all-to-all",
    )


def _sequence(model: Model, transformer: Transformer, grid: Grid) -> Iterator[Reason]:
    cut = array(grid.cp * (grid.tp if grid.sequence_parallel else 1))

    def words(at: Scalars) -> str:
        ranks = at["cp"] * (at["tp"] if grid.sequence_parallel else 1)
        below = at["sequence"] // ranks * ranks
        near = f"{below} or {below + ranks}" if below else f"{ranks}"
        name = "tp x cp" if grid.sequence_parallel else "cp"
        return f"sequence={at['sequence']} does not divide by {name} = {ranks}; try {near}"

    yield Reason(rule="sequence", broken=grid.sequence % cut != 0, words=words)
    length = transformer.position.length
    if model.image is not None:
        yield Reason(
            rule="image tokens",
            broken=grid.sequence != length,
            words=lambda at: (
                f"sequence={at['sequence']}: an image has {length} tokens; try {length}"
            ),
        )
    elif transformer.position.encoding in TABLES:
        yield Reason(
            rule="positions",
            broken=grid.sequence > (length if grid.positions is None else grid.positions),
            words=lambda at: (
                f"sequence={at['sequence']} is above the {length} positions "
                f"the model has; try {length}"
            ),
        )


def _experts(transformer: Transformer, grid: Grid) -> Iterator[Reason]:
    moe = transformer.moe
    if moe is None:
        yield Reason(
            rule="no experts",
            broken=grid.ep > 1,
            words=lambda at: f"ep={at['ep']}: the model has no experts; try 1",
        )
        return
    yield divides("experts", grid.ep, "ep", moe.experts, "experts")
    if grid.expert_tp is not None:
        yield from _experts_apart(grid, grid.expert_tp)
    yield from _group_of_experts(grid)
    # Dense layers lead the model: stages behind the first are alike only if it holds all of them.
    held = np.floor(transformer.layers / grid.pp)
    dense = moe.dense_layers
    yield Reason(
        rule="dense layers",
        broken=(held < dense) & (grid.pp > 1) & (grid.pipeline_layout is None),
        words=lambda at: (
            f"pp={at['pp']} leaves the first stage fewer than the model's {dense} dense layers; "
            f"try pp={transformer.layers // dense}"
        ),
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
    divides_tp = grid.tp % grid.expert_ranks == 0
    yield Reason(rule="expert ranks", broken=divides_tp & (ranks % grid.ep != 0), words=words)


def _shard_groups(grid: Grid, shard: int, *, experts: bool) -> Iterator[Reason]:
    """Rules on groups of `shard` data ranks that share slices."""
    ranks = grid.ranks("data")
    if grid.zero == 0:
        yield Reason(
            rule="shard group",
            broken=np.ones((), dtype=np.bool_),
            words=lambda _: f"shard={shard}: ZeRO stage 0 shares out nothing; try zero=1 or more",
        )
    elif shard == 1:
        yield Reason(
            rule="shard group",
            broken=np.ones((), dtype=np.bool_),
            words=lambda _: "shard=1: a group of one rank shares out nothing; try zero=0",
        )
    yield Reason(
        rule="shard groups",
        broken=ranks % shard != 0,
        words=lambda at: (
            f"shard={shard} does not divide dp x cp = {at['dp'] * at['cp']} ranks; "
            f"try {divisors_near(at['dp'] * at['cp'], shard)}"
        ),
    )
    if not experts:
        return
    # Of a group of dense slices, those that hold the same experts share theirs.
    own = array(grid.ranks("expert_data") * shard / ranks)
    yield Reason(
        rule="expert shards",
        broken=(ranks % shard == 0) & (own % 1 != 0),
        words=lambda at: (
            f"shard={shard}: its ranks are not a multiple of those that experts are spread over, "
            f"ep={at['ep']}; try shard={at['dp'] * at['cp']}"
        ),
    )


def _experts_apart(grid: Grid, own: int) -> Iterator[Reason]:
    """Rules on experts cut over other ranks than the rest of their layer."""
    apart = grid.tp != own
    yield Reason(
        rule="ranks of an expert",
        broken=grid.tp % own != 0,
        words=lambda at: (
            f"expert_tp={own} does not divide tp={at['tp']}; try {divisors_near(at['tp'], own)}"
        ),
    )
    if not grid.sequence_parallel:
        yield Reason(
            rule="tokens of experts",
            broken=apart,
            words=lambda at: (
                f"expert_tp={own} apart from tp={at['tp']} needs sequence parallelism: each tensor "
                f"rank sends tokens of its own; try sequence_parallel, or expert_tp={at['tp']}"
            ),
        )
    if own > 1:
        yield Reason(
            rule="experts apart",
            broken=apart & (grid.ep == 1),
            words=lambda at: (
                f"expert_tp={own} apart from tp={at['tp']} is for experts that are spread over "
                f"ranks; try ep above 1, or expert_tp=1"
            ),
        )


def _answers(model: Model, grid: Grid) -> Iterator[Reason]:
    """Rules on jobs that write answers: a decoder of text, whole groups, room for a prompt."""
    if grid.job not in REINFORCED:
        return
    everywhere = np.ones((), dtype=np.bool_)
    if model.family != "decoder" or model.tower is not None:
        why = "sees images" if model.tower is not None else "writes none"
        yield Reason(
            rule="answers",
            broken=everywhere,
            words=lambda _: (
                f"job={grid.job} learns from answers of a decoder of text, and {model.name} {why}; "
                "try job=finetune"
            ),
        )
        return
    group, response = grid.samples_per_prompt or 1, grid.response or 1
    yield Reason(
        rule="answers",
        broken=grid.global_batch % group != 0,
        words=lambda at: (
            f"samples_per_prompt={group} does not divide global_batch={at['global_batch']}, which "
            "counts answers"
        ),
    )
    yield Reason(
        rule="answers",
        broken=grid.sequence <= response,
        words=lambda at: (
            f"response={response} leaves nothing of sequence={at['sequence']} for a prompt"
        ),
    )


def _job(model: Model, grid: Grid) -> Iterator[Reason]:
    """Rules on jobs: pairs of answers, written answers, adapters."""
    if grid.job in PAIRED and model.family != "decoder":
        yield Reason(
            rule="pairs",
            broken=np.ones((), dtype=np.bool_),
            words=lambda _: (
                f"job={grid.job} compares answers of a decoder, and {model.name} writes none; "
                "try job=finetune"
            ),
        )
    yield from _answers(model, grid)
    if grid.adapter_rank is None:
        return
    moe = model.transformer is not None and model.transformer.moe is not None
    everywhere = np.ones((), dtype=np.bool_)
    if model.vocabulary is None:
        yield Reason(
            rule="adapters",
            broken=everywhere,
            words=lambda _: (
                f"adapter_rank={grid.adapter_rank}: adapters are for models of text, and "
                f"{model.name} is none; "
                "try job=finetune"
            ),
        )
    elif moe and grid.adapter_on == "all-linear":
        yield Reason(
            rule="adapters",
            broken=everywhere,
            words=lambda _: (
                "adapter_on=all-linear: no adapters are modelled beside experts; "
                "try adapter_on=attention"
            ),
        )
    elif model.transformer is not None:
        yield _adapter_rank(model.transformer, grid)


def _adapter_rank(transformer: Transformer, grid: Grid) -> Reason:
    """Rule on adapters wider than the layers' input, one side of every projection."""
    return Reason(
        rule="adapters",
        broken=np.asarray((grid.adapter_rank or 0) > transformer.hidden),
        words=lambda _: (
            f"adapter_rank={grid.adapter_rank} is wider than the projections, whose one side is "
            f"{transformer.hidden}; try {transformer.hidden} or less"
        ),
    )


def _batch(grid: Grid) -> Iterator[Reason]:
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
    update = grid.updated
    filled = update.micro_batches * (grid.dp * grid.micro_batch)
    yield Reason(rule="batch", broken=filled != update.global_batch, words=words)


def _schedule(grid: Grid) -> Iterator[Reason]:
    schedule = grid.schedule
    degrees = {
        name: value.astype(np.int64)
        for name, value in (
            ("pp", grid.pp),
            ("vpp", grid.vpp),
            ("micro_batches", grid.updated.micro_batches),
        )
    }

    def words(at: Scalars) -> str:
        step = (grid.mini_batches or 1) * at["dp"] * at["micro_batch"]
        micro_batches = -(-at["global_batch"] // step)
        found = schedule_reasons(schedule, pp=at["pp"], vpp=at["vpp"], micro_batches=micro_batches)
        return "; ".join(found)

    broken = broken_rules(schedule, **degrees)
    yield Reason(rule="schedule", broken=np.logical_or.reduce(list(broken.values())), words=words)


def _recommender(recommender: Recommender, grid: Grid) -> Iterator[Reason]:
    for name in (name for name in RANK_DEGREES if KNOBS[name].part == "layers"):
        yield Reason(
            rule=name,
            broken=getattr(grid, name) > 1,
            words=lambda at, name=name: (  # type: ignore[misc]
                f"{name}={at[name]}: a recommender spreads its tables by ep and its batch by dp; "
                f"try {name}=1"
            ),
        )
    yield from _group_of_experts(grid)
    yield divides("columns", grid.ep, "ep", recommender.embedding_size, "columns of a table")
