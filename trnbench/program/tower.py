"""A vision encoder beside a decoder as blocks: patches, layers, the projector to the text's width.

Its images are a batch of their own. Ranks that share a text's sequence each encode all images of
their samples, as Megatron-LM does; tensor parallelism cuts the encoder as it cuts the decoder.
"""

from __future__ import annotations

from collections.abc import Iterator

from trnbench.facts.records import replace
from trnbench.facts.workload.model import Tower
from trnbench.facts.workload.recompute import of_layers
from trnbench.facts.workload.weights import Weight, has_final_norm
from trnbench.program.block import Block, lower
from trnbench.program.builder import BlockBuilder
from trnbench.program.ends import patch
from trnbench.program.grid import Grid
from trnbench.program.layer import flow_into, layer
from trnbench.program.parameters import parameters
from trnbench.program.tensor import ONE, Tensor, array

PATCH, LAYER, PROJECTOR = "tower.patch", "tower.layer", "tower.projector"
TOWER = PATCH, LAYER, PROJECTOR
"""Blocks of the tower, in front of the text's embedding."""


def tower_grid(tower: Tower, grid: Grid) -> Grid:
    """Grid of layouts as an encoder sees it: images for samples, none of them shared."""
    # Images are whole on each rank: context ranks, which share a text, have a group of one here.
    return replace(
        grid,
        cp=ONE,
        sequence=array(tower.image.tokens),
        micro_batch=array(grid.micro_batch * tower.images),
        global_batch=array(grid.global_batch * tower.images),
    )


def tower_blocks(
    tower: Tower, grid: Grid, listed: tuple[Weight, ...]
) -> Iterator[tuple[str, Block]]:
    """Blocks of an encoder by kind."""
    encoder, own = tower.transformer, tower_grid(tower, grid)
    (kind,) = encoder.layer_kinds
    one = encoder.of_kind(kind)

    def passed(b: BlockBuilder) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        flow = flow_into(b, one, conditioned=False)
        return flow.tensors, (layer(b, one, flow, "dense").stream,)

    def projected(b: BlockBuilder) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        flow = flow_into(b, encoder, conditioned=False)
        return flow.tensors, (_projected(b, tower, flow.stream),)

    emits = {
        PATCH: lambda b: ((), (patch(b, encoder, tower.image),)),
        LAYER: passed,
        PROJECTOR: projected,
    }
    for name, emit in emits.items():
        members = parameters(own, [weight for weight in listed if weight.block == name])
        recompute = of_layers(grid.recompute) if name == LAYER else "none"
        yield name, lower(own, name, members, emit, recompute=recompute)


def _projected(b: BlockBuilder, tower: Tower, stream: Tensor) -> Tensor:
    """Tokens of an image in the text's width: norms, neighbours merged, the projector."""
    if has_final_norm(tower.transformer):
        stream = b.norm(stream, "norm.final")
    if tower.projector_norm:
        stream = b.norm(stream, "norm.projector")
    stream = b.gather_tokens(stream)
    lead = (stream.dims[0], b.grid.dim("image_token", tower.tokens))
    dims = (*lead, b.grid.dim("projector_0", tower.projector[0]))
    out = b.elementwise("merge", (stream,), "merged", dims)
    for i, width in enumerate(tower.projector[1:]):
        if i:
            out = b.elementwise("gelu", (out,), f"projector.{i}.active", out.dims)
        wide = (*lead, b.grid.dim(f"projected_{i}", width))
        (out,) = b.linear(out, [(f"projector.{i}.out", f"projector.{i}", "bsp,ph->bsh", wide)])
    return out
