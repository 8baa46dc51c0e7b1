"""Exchanges by hand: what ranks hold afterwards, and what each link carried."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from trnbench.engines.execute.coverage import memory_bytes, problems
from trnbench.engines.execute.draws import text_of
from trnbench.engines.execute.exchange import Book, Message
from trnbench.errors import InputError
from trnbench.facts.workload.layout import Layout
from trnbench.program.step import training_step


def message(op, elements, *, axis="tp", group=(4, 1), stage=0):
    return Message(
        op=op,
        axis=axis,
        phase="F",
        stage=stage,
        elements=elements,
        element_bytes=2.0,
        group=group,
    )


def test_a_ring_carries_every_piece_over_all_links_but_one():
    """10 elements of 2 bytes on 4 ranks lie in pieces of 3, 3, 2 and 2.

    Reduce-scatter: the piece that ends at a rank never takes the link out of it: 20 - 2 * piece.
    """
    book = Book(world=4, ranks_per_stage=4)
    book.collective(message("reduce-scatter", 10))
    links = book.links_bytes()
    assert [links[i, (i + 1) % 4] for i in range(4)] == [14, 14, 16, 16]
    assert links.sum() == 60
    assert book.by_operation() == {("reduce-scatter", "tp"): (4, 60.0)}


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather():
    books = [Book(world=4, ranks_per_stage=4) for _ in range(2)]
    books[0].collective(message("all-reduce", 10))
    books[1].collective(message("reduce-scatter", 10))
    books[1].collective(message("all-gather", 10))
    assert (books[0].links_bytes() == books[1].links_bytes()).all()


def test_groups_lie_where_their_stride_puts_them():
    """Two groups of two, two apart, on the second stage of four ranks: 4-6 and 5-7."""
    book = Book(world=8, ranks_per_stage=4)
    book.collective(message("all-to-all", 6, axis="dp", group=(2, 2), stage=1), runs=5)
    links = book.links_bytes()
    # Half of 6 elements of 2 bytes, five times, each way.
    assert {(int(a), int(b)): links[a, b] for a, b in np.argwhere(links)} == {
        (4, 6): 30,
        (6, 4): 30,
        (5, 7): 30,
        (7, 5): 30,
    }


def test_both_ends_of_a_pipeline_share_a_vocabulary_rank_by_rank():
    book = Book(world=6, ranks_per_stage=2)
    book.collective(message("all-reduce", 8, axis="tied", group=(2, 1), stage=-1))
    links = book.links_bytes()
    assert {(int(a), int(b)) for a, b in np.argwhere(links)} == {(0, 4), (4, 0), (1, 5), (5, 1)}
    assert links.sum() == 4 * 16


def test_messages_go_from_stage_to_stage_rank_by_rank():
    book = Book(world=4, ranks_per_stage=2)
    book.send(0, 1, "F", 5, 4.0)
    links = book.links_bytes()
    assert links[0, 2] == links[1, 3] == 20
    assert links.sum() == 40
    assert book.by_operation() == {("send", "pp"): (2, 40.0)}


@pytest.mark.parametrize("task", ["markov", "copy"])
def test_texts_follow_from_seed_and_step(task):
    text = text_of(task, 16, seed=3)
    batch = text.batch(5, samples=4, length=12)
    assert batch.shape == (4, 13)
    assert (batch == text_of(task, 16, seed=3).batch(5, 4, 12)).all()
    assert (batch != text.batch(6, 4, 12)).any()
    assert (batch != text_of(task, 16, seed=4).batch(5, 4, 12)).any()
    assert batch.min() >= 0
    assert batch.max() < 16
    if task == "copy":
        assert (batch[:, 7:] == batch[:, :6]).all()


def test_a_word_of_the_chain_has_few_followers():
    text = text_of("markov", 64, seed=0)
    pairs: dict[int, set[int]] = {}
    for step in range(20):
        for row in text.batch(step, 8, 32):
            for first, second in pairwise(row):
                pairs.setdefault(int(first), set()).add(int(second))
    assert max(map(len, pairs.values())) <= 8
    assert np.mean([len(found) for found in pairs.values()]) > 2


def test_texts_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="unknown task"):
        text_of("books", 16, 0)
    with pytest.raises(InputError, match="2 words"):
        text_of("copy", 1, 0)


def test_models_that_do_not_predict_text_are_told_so():
    from trnbench.facts.catalog.search import open_catalog
    from trnbench.facts.workload.library import load_model

    catalog = open_catalog()
    layout = Layout(global_batch=1, sequence=16, precision="fp32")
    for name, words in (("bert-large", "gaps"), ("tiny-gpt", None)):
        program = training_step(load_model(catalog, name), layout)
        found = problems(program)
        assert (words is None) == (not found), (name, found)
        assert words is None or words in found[0]
    large = training_step(load_model(catalog, "llama3.1-8b"), layout)
    # 8e9 weights six times over in 8 bytes are 3.9e11.
    assert memory_bytes(large) > 3.8e11
