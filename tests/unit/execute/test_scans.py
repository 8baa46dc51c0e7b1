"""Hybrids with real numbers: scans against their closed form, gradients against differences."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from tests.steps import take_weights
from trnbench.engines.execute.draws import text_of
from trnbench.engines.execute.optimizer import AdamW
from trnbench.engines.execute.scans import ScanKernel
from trnbench.engines.execute.trainer import Trainer, TrainingRun
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layers import LayerKind
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.weights import weights
from trnbench.program.ops import ScanOp
from trnbench.program.step import training_step

SEQUENCE = 24


def hybrid(form: Literal["mamba-2", "gated-delta"]) -> Model:
    """Return a model of a few layers: a scan, experts with a gate, a window, another norm."""
    model = load_model(open_catalog(environment={}), "tiny-hybrid")
    old = model.transformer
    assert old is not None and old.scan is not None and old.moe is not None and old.attention  # noqa: PT018
    scan = replace(old.scan, form=form, heads=4, head_size=4, key_heads=2, state_size=4, chunk=8)
    moe = replace(old.moe, shared_gate=True, latent=8, expert=replace(old.moe.expert, hidden=8))
    attention = replace(old.attention, heads=4, kv_heads=2, head_size=4, query_key_norm_over="all")
    assert old.mlp is not None
    transformer = replace(
        old,
        layers=3,
        hidden=16,
        norm_placement="both" if form == "mamba-2" else "branch",
        pattern="mamba experts sliding",
        kinds={**old.kinds, "sliding": LayerKind(window=5)},
        scan=scan,
        moe=replace(moe, shared_hidden=8),
        attention=attention,
        mlp=replace(old.mlp, hidden=16),
    )
    assert model.vocabulary is not None
    return replace(model, transformer=transformer, vocabulary=replace(model.vocabulary, size=32))


def trainer_of(model: Model, **degrees: object) -> Trainer:
    settled = {"global_batch": 4, "sequence": SEQUENCE, "precision": "fp32"}
    layout = Layout(**{**settled, "capacity_factor": 2.0, **degrees})  # type: ignore[arg-type]
    program = training_step(model, layout)
    assert program.legal, program.refusals()
    text = text_of("markov", 32, seed=7)
    return Trainer(program, TrainingRun(text=text, optimizer=AdamW(), exact=True))


def drawn(model: Model) -> dict[tuple[str, int], np.ndarray]:
    """Return weights of every layer by name and number, as the trainer has them."""
    random = np.random.default_rng(7)
    transformer = model.transformer
    assert transformer is not None
    found: dict[tuple[str, int], np.ndarray] = {}
    for weight in weights(model):
        layers = [i for i, kind in enumerate(transformer.order) if kind == weight.block] or [0]
        shape = [size for _, size in weight.dims]
        found |= {(weight.name, i): random.normal(0.2, 0.4, shape) for i in layers}
    return found


@pytest.mark.parametrize("form", ["mamba-2", "gated-delta"])
def test_gradients_of_a_hybrid_are_those_of_its_loss(
    form: Literal["mamba-2", "gated-delta"],
) -> None:
    model = hybrid(form)
    given = drawn(model)

    def loss_of(numbers: dict[tuple[str, int], np.ndarray]) -> float:
        trainer = trainer_of(model)
        take_weights(trainer, numbers)
        return float(trainer.gradients()[0])

    trainer = trainer_of(model)
    take_weights(trainer, given)
    _, gradients = trainer.gradients()
    assert set(gradients) == set(given)
    random = np.random.default_rng(3)
    # All weights move at once: every one of their gradients counts.
    for _ in range(3):
        way = {key: random.normal(size=value.shape) for key, value in given.items()}
        ends = [
            loss_of({key: value + sign * 1e-6 * way[key] for key, value in given.items()})
            for sign in (1, -1)
        ]
        along = sum(float((gradients[key] * way[key]).sum()) for key in given)
        assert along == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=2e-5)


@pytest.mark.parametrize(
    "degrees",
    [
        {"tp": 2, "sequence_parallel": True},
        {"pp": 3, "recompute": "full"},
        {"dp": 2, "ep": 2, "zero": 1, "tp": 2},
    ],
)
def test_layouts_of_a_hybrid_agree_with_one_rank(degrees: dict[str, object]) -> None:
    model = hybrid("mamba-2")
    given = drawn(model)
    ends = []
    for layout in ({}, degrees):
        trainer = trainer_of(model, **layout)
        take_weights(trainer, given)
        ends.append(trainer.gradients())
    (one_loss, one), (loss, several) = ends
    assert loss == pytest.approx(one_loss, rel=1e-12)
    for key, gradient in one.items():
        np.testing.assert_allclose(several[key], gradient, rtol=1e-7, atol=1e-9, err_msg=str(key))


def test_a_scan_token_by_token_is_the_attention_that_decays() -> None:
    # State-space duality: y_i = sum over j <= i of exp(L_i - L_j) s_j (C_i . B_j) x_j.
    layout = Layout(global_batch=2, micro_batch=2, sequence=SEQUENCE, precision="fp32")
    program = training_step(hybrid("mamba-2"), layout)
    states_op, output_op = (
        op for op in program.blocks["mamba"].ops if isinstance(op, ScanOp) and op.phase == "F"
    )
    random = np.random.default_rng(5)
    value = random.normal(size=(1, 2, SEQUENCE, 4, 4))
    key, query = random.normal(size=(2, 1, 2, SEQUENCE, 2, 4))
    steps = random.uniform(0.1, 1, size=(1, 2, SEQUENCE, 4))
    decays = -steps
    (states,), flop = ScanKernel(states_op)([value, key, steps, decays])
    (out,), more = ScanKernel(output_op)([query, value, key, steps, decays, states])
    assert flop + more == int(states_op.flop + output_op.flop)
    level = decays.cumsum(axis=2)
    gap = level[:, :, :, None] - level[:, :, None]
    shares = np.exp(np.where(np.tri(SEQUENCE, dtype=bool)[..., None], gap, -np.inf))
    wide = [np.repeat(x, 2, axis=3) for x in (query, key)]
    scores = np.einsum("rbihk,rbjhk->rbijh", *wide) * shares * steps[:, :, None]
    np.testing.assert_allclose(out, np.einsum("rbijh,rbjhv->rbihv", scores, value), rtol=1e-10)
