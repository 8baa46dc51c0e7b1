"""Who is faster, by how much, at what."""

from __future__ import annotations

from trnbench.show.faster import faster_text


def test_one_that_leads_everywhere_is_named_once():
    timed = [("p5en", "256 MiB", 1.0), ("trn2", "256 MiB", 2.4)]
    timed += [("p5en", "1 MiB", 1.0), ("trn2", "1 MiB", 1.3)]
    assert faster_text(timed) == "p5en is 2.4x faster at 256 MiB, 1.3x at 1 MiB."


def test_leads_that_change_hands_and_draws_are_said():
    timed = [("a", "x", 1.0), ("b", "x", 2.0), ("a", "y", 3.0), ("b", "y", 1.0)]
    assert faster_text(timed) == "a is 2x faster at x; b is 3x faster at y."
    assert faster_text([("a", "x", 1.0), ("b", "x", 1.04)]) == "a and b are about as fast at x."


def test_of_three_the_next_is_named():
    timed = [("a", "x", 1.0), ("b", "x", 2.0), ("c", "x", 3.0)]
    assert faster_text(timed) == "a is 2x faster than b at x."


def test_without_a_rival_nothing_is_said():
    assert faster_text([("a", "x", 1.0), ("a", "x", 2.0), ("b", "y", 2.0)]) == ""


def test_a_single_rival_is_named_where_that_is_not_plain():
    timed = [("h100", "x", 1.0), ("trainium2 (1 core)", "x", 10.0)]
    assert faster_text(timed, named=True) == "h100 is 10x faster than trainium2 (1 core) at x."
