"""The shipped workloads: all load, cite sources, and name only what exists."""

from __future__ import annotations

import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.library import (
    load_collective_suite,
    load_matrix_suite,
    load_model,
    load_training_suite,
)

CATALOG = open_catalog(environment={})


def names(section: str) -> list[str]:
    return [entry.name for entry in CATALOG.entries(section)]


def test_what_ships():
    assert {
        *("llama2-7b", "llama2-13b", "llama2-70b", "llama3.1-8b", "llama3.1-70b"),
        *("llama3.1-405b", "gpt3-6.7b", "gpt3-23b", "gpt3-46b", "gpt3-175b", "megatron-22b"),
        *("megatron-530b", "megatron-1t", "bert-large", "vit-base", "dit-xl-2"),
        *("mixtral-8x7b", "deepseek-v3", "dlrm-dcnv2", "tiny-gpt"),
    } <= set(names("models"))
    assert set(names("matrix")) >= {"square", "llama", "ragged", "kernels"}
    assert set(names("collective")) >= {"trn1", "trn2", "trn3", "gpu"}
    assert set(names("training")) >= {"nxd-examples", "trn1", "trn2"}


@pytest.mark.parametrize("name", names("models"))
def test_models_load_and_every_number_has_evidence(name):
    model = load_model(CATALOG, name)
    assert model.provenance.evidence
    assert CATALOG.find("models", name).path.read_text(encoding="utf-8").count("\n") <= 45


@pytest.mark.parametrize("name", names("matrix"))
def test_matrix_suites_name_known_chips(name):
    for chip in load_matrix_suite(CATALOG, name).chips:
        assert CATALOG.find("chips", chip)


@pytest.mark.parametrize("name", names("collective"))
def test_collective_suites_name_known_instances(name):
    for place in load_collective_suite(CATALOG, name).places:
        assert CATALOG.find("instances", place.instance)


@pytest.mark.parametrize("name", names("training"))
def test_training_suites_name_known_models_and_instances(name):
    for case in load_training_suite(CATALOG, name).case:
        assert CATALOG.find("instances", case.instance)
        transformer = load_model(CATALOG, case.model).transformer
        assert transformer is not None
        assert case.layout.sequence <= transformer.position.length


# Ranks of an instance: 32 cores on trn1; 4 logical cores on each of 16 chips on trn2, 64 on ultra.
RANKS = {"trn1.32xlarge": 32, "trn2.48xlarge": 64, "trn2-ultraserver": 256}


@pytest.mark.parametrize("name", names("training"))
def test_training_layouts_use_every_rank_and_divide_the_batch(name):
    for case in load_training_suite(CATALOG, name).case:
        layout = case.layout
        assert layout.ranks == case.nodes * RANKS[case.instance], case.label
        assert layout.global_batch % (layout.dp * layout.micro_batch) == 0, case.label
        assert (layout.cp * layout.dp) % layout.ep == 0, case.label


def test_the_example_configurations_are_the_six_shipped_ones():
    rows = [
        (case.model, case.instance, case.nodes, case.layout.tp, case.layout.pp)
        for case in load_training_suite(CATALOG, "nxd-examples").case
    ]
    assert rows == [
        ("llama2-7b", "trn1.32xlarge", 1, 8, 1),
        ("llama3.1-8b", "trn1.32xlarge", 4, 32, 1),
        ("llama3.1-70b", "trn1.32xlarge", 16, 32, 8),
        ("llama3.1-8b", "trn2.48xlarge", 1, 16, 1),
        ("llama3.1-70b", "trn2.48xlarge", 8, 32, 4),
        ("mixtral-8x7b", "trn1.32xlarge", 8, 32, 4),
    ]


def test_llama_products_are_the_models_cut_by_tensor_parallelism():
    for product in load_matrix_suite(CATALOG, "llama").products:
        name, degree, part = product.label.split(" ", 2)
        tp = int(degree.removeprefix("tp"))
        model = load_model(CATALOG, name)
        transformer, vocabulary = model.transformer, model.vocabulary
        assert transformer is not None
        assert vocabulary is not None
        attention, mlp, hidden = transformer.attention, transformer.mlp, transformer.hidden
        assert mlp is not None
        # Where there are more ranks than key-value heads, each rank holds a copy of one.
        heads = attention.heads // tp + 2 * max(attention.kv_heads // tp, 1)  # type: ignore[union-attr]
        expected = {
            "query-key-value": (hidden, heads * attention.head_size),  # type: ignore[union-attr]
            "attention output": (attention.heads // tp * attention.head_size, hidden),  # type: ignore[union-attr]
            "gate-up": (hidden, 2 * mlp.hidden // tp),
            "down": (mlp.hidden // tp, hidden),
            "head": (hidden, vocabulary.size // tp),
        }
        assert (product.k, product.n) == expected[part], product.label
