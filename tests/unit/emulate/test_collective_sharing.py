import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collectives import place_collective
from trnbench.engines.emulate.collective.sharing import (
    RoundClasses,
    class_loads,
    fair_rates,
    like_messages,
    transfer_times,
)
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.machine.message_plan.algorithm import Refusal
from trnbench.machine.message_plan.select import algorithm_named
from trnbench.machine.placement import place


def rates(paths, capacity):
    width = max(map(len, paths))
    none = len(capacity)
    links = np.array([[*path, *[none] * (width - len(path))] for path in paths])
    return fair_rates(links, np.append(np.array(capacity, dtype=float), np.inf))


def test_one_link_is_shared_alike():
    assert rates([[0], [0], [0], [0]], [8.0]) == pytest.approx([2, 2, 2, 2])


def test_what_a_slow_message_cannot_use_goes_to_others():
    # The long message is held to 1 by link 1 (2 shared by two); link 0 leaves 10 - 1 = 9.
    assert rates([[0, 1], [1], [0]], [10.0, 2.0]) == pytest.approx([1, 1, 9])


def test_three_levels_of_bottleneck():
    # Link 0: three messages of 1. Link 1 then has 9 - 1 for one message, link 2 20 - 8 for one.
    found = rates([[0], [0], [0, 1], [1, 2], [2]], [3.0, 9.0, 20.0])
    assert found == pytest.approx([1, 1, 1, 8, 12])


def test_the_rest_speeds_up_when_a_message_ends():
    # Two share 2 bytes/s: the first byte is through after 1 s, then 2 of 3 bytes go at 2 bytes/s.
    times = transfer_times(
        np.array([[0], [0]]),
        np.array([1.0, 3.0]),
        np.array([2.0, np.inf]),
    )
    assert times == pytest.approx([1.0, 2.0])


PATHS = st.lists(
    st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True), min_size=1, max_size=12
)


@settings(deadline=None, max_examples=60)
@given(paths=PATHS, capacity=st.lists(st.floats(0.5, 50), min_size=6, max_size=6))
def test_no_link_is_overdrawn_and_every_message_has_a_full_link_where_it_is_fastest(
    paths, capacity
):
    found = rates(paths, capacity)
    load = np.zeros(6)
    for path, rate in zip(paths, found, strict=True):
        load[path] += rate
    assert (load <= np.array(capacity) * (1 + 1e-9)).all()
    for path, rate in zip(paths, found, strict=True):
        full = [link for link in path if load[link] >= capacity[link] * (1 - 1e-6)]
        others = [max(r for p, r in zip(paths, found, strict=True) if link in p) for link in full]
        assert any(rate >= most * (1 - 1e-6) for most in others)


def one_after_another(paths, sizes, capacity):
    """Return when messages are through, speeds found anew from what is left whenever one ends."""
    left, times, now = dict(enumerate(sizes)), [0.0] * len(paths), 0.0
    while left:
        speeds = dict(zip(left, rates([paths[at] for at in left], capacity), strict=True))
        step = min(left[at] / speeds[at] for at in left)
        now += step
        left = {at: size - speeds[at] * step for at, size in left.items()}
        for at in [at for at, size in left.items() if size <= 1e-9 * sizes[at]]:
            times[at] = now
            del left[at]
    return times


@settings(deadline=None, max_examples=60)
@given(
    messages=st.lists(
        st.tuples(
            st.lists(st.integers(0, 9), min_size=1, max_size=2, unique=True), st.integers(1, 9)
        ),
        min_size=1,
        max_size=9,
    )
)
def test_only_what_shares_a_link_with_what_ended_changes_its_speed(messages):
    paths, sizes = zip(*messages, strict=True)
    capacity = [float(1 + link % 3) for link in range(10)]
    links = np.array([[*path, *[10] * (2 - len(path))] for path in paths])
    found = transfer_times(
        links,
        np.array(sizes, dtype=float),
        np.append(capacity, np.inf),
    )
    assert found == pytest.approx(one_after_another(paths, sizes, capacity), rel=1e-7)


def test_classes_that_load_links_alike_are_one():
    def of(links, crossing):
        return RoundClasses(
            first=np.arange(len(links)), links=np.array(links), crossing=np.array(crossing)
        )

    # Two classes of the first round, then the second of them again, though in a wider table.
    found = class_loads(
        (of([[0], [1]], [[2.0], [0.5]]), of([[1, 2], [0, 1]], [[0.5, 0.0], [1.0, 1.0]])), none=2
    )
    first, second = found.numbers
    assert len(found.links) == 3
    assert first[1] == second[0]
    assert found.links[second].tolist() == [[1, 2], [0, 1]]
    assert found.crossing[first].tolist() == [[2.0, 0.0], [0.5, 0.0]]


def joined(parts, fill):
    wide = max(part.shape[1] for part in parts)
    return np.concatenate(
        [np.pad(p, ((0, 0), (0, wide - p.shape[1])), constant_values=fill) for p in parts]
    )


SCATTERED = (0, 5, 9, 33, 60)
PLAYED = [
    *(("kangaring", range(64)), ("halving", range(64)), ("halving", range(0, 64, 4))),
    *itertools.product(("ring", "mesh"), (range(64), range(0, 64, 4), SCATTERED)),
]


@pytest.mark.parametrize(("name", "group"), PLAYED)
def test_like_messages_share_as_their_messages_do_one_by_one(name, group):
    where = place(load_platform(open_catalog(), "trn2.48xlarge"))
    found = place_collective(where, "all-reduce", [group], algorithm_named(name))
    assert not isinstance(found, Refusal)
    like_rounds, like_capacity = like_messages(found.rounds, found.capacity)
    # The first round twice at once, the last one beside them: every class as fast as its messages.
    rounds = [(found.rounds[at], like_rounds[at]) for at in (0, 0, -1)]
    every = fair_rates(
        joined([one.links for one, _ in rounds], len(found.capacity) - 1), found.capacity
    )
    classes = fair_rates(
        joined([of.links for _, of in rounds], len(like_capacity) - 1),
        like_capacity,
        joined([of.crossing for _, of in rounds], 0.0),
    )
    ends = np.cumsum([len(of.first) for _, of in rounds])[:-1]
    starts = np.cumsum([0, *(len(one.source) for one, _ in rounds[:-1])])
    assert len(classes) <= len(every)
    for start, (_, of), rates in zip(starts, rounds, np.split(classes, ends), strict=True):
        assert rates == pytest.approx(every[start + of.first], rel=1e-12)
