"""Small text models and runs of them with real numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trnbench.engines.execute.draws import text_of
from trnbench.engines.execute.optimizer import AdamW
from trnbench.engines.execute.trainer import Trainer, TrainingRun
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.model import (
    Attention,
    Mlp,
    Model,
    Moe,
    Position,
    Transformer,
    Vocabulary,
)
from trnbench.program.step import training_step

MakeModel = Callable[..., Model]
MakeTrainer = Callable[..., Trainer]


def _model(
    *,
    gpt: bool = False,
    layers: int = 2,
    hidden: int = 8,
    kv_heads: int = 2,
    experts: int = 0,
    tied: bool = False,
    words: int = 32,
    depths: int = 0,
) -> Model:
    mlp = Mlp(hidden=2 * hidden, gated=not gpt, activation="gelu" if gpt else "silu", biases=gpt)
    moe = Moe(experts=experts, top_k=2, expert=mlp, shared_experts=1) if experts else None
    return Model(
        name="small",
        title="small",
        transformer=Transformer(
            layers=layers,
            hidden=hidden,
            norm="layer" if gpt else "rms",
            attention=Attention(
                heads=4,
                kv_heads=kv_heads,
                head_size=hidden // 4,
                causal=True,
                biases="all" if gpt else "none",
            ),
            mlp=None if experts else mlp,
            moe=moe,
            position=Position(
                encoding="learned" if gpt else "rotary",
                length=64,
                rotary_base=None if gpt else 10000.0,
            ),
        ),
        vocabulary=Vocabulary(size=words, tied=tied),
        mtp_depths=depths,
    )


def _trainer(
    model: Model,
    *,
    exact: bool = True,
    seed: int = 0,
    rate: float = 1e-2,
    **degrees: object,
) -> Trainer:
    given = {"global_batch": 4, "sequence": 8, "precision": "fp32", **degrees}
    moe = model.transformer.moe if model.transformer else None
    if moe is not None:
        # Every expert has room for every token.
        given.setdefault("capacity_factor", moe.experts / moe.top_k)
    program = training_step(model, Layout(**given))  # type: ignore[arg-type]
    assert program.legal, program.refusals()
    assert model.vocabulary is not None
    text = text_of("markov", model.vocabulary.size, seed)
    optimizer = AdamW(learning_rate=rate)
    return Trainer(program, TrainingRun(text=text, optimizer=optimizer, seed=seed, exact=exact))


@pytest.fixture(scope="session")
def small_model() -> MakeModel:
    """Make a text model of width 8 with 4 heads."""
    return _model


@pytest.fixture(scope="session")
def small_trainer() -> MakeTrainer:
    """Make a trainer of a model in a layout, in float64 unless told otherwise."""
    return _trainer
