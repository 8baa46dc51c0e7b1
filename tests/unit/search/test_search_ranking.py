import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.predict.search.ranking import LayoutRanking
from trnbench.program.points import Points

FIRST = np.zeros(1, int)


def points(clusters, columns) -> Points:
    index = (np.array(clusters), np.array(columns))
    return Points(shape=(3, 1000), index=index)


def test_of_equals_the_first_run_and_then_the_first_place_wins():
    ranking = LayoutRanking(clusters=3, top=2)
    ranking.add(1, points([0, 0], [3, 5]), np.zeros(2, int), np.array([1.0, 1.0]), np.zeros(2))
    ranking.add(0, points([0], [9]), FIRST, np.array([1.0]), np.zeros(1))
    ranking.add(2, points([0], [0]), FIRST, np.array([1.0]), np.zeros(1))
    best = ranking.of_clusters()[0]
    assert best.run.tolist() == [0, 1]
    assert best.place.tolist() == [9, 3]


def test_scores_that_agree_to_seven_digits_are_equal():
    ranking = LayoutRanking(clusters=3, top=1)
    ranking.add(0, points([0], [7]), FIRST, np.array([2.0]), np.zeros(1))
    ranking.add(1, points([0], [1]), FIRST, np.array([2.0 - 1e-12]), np.zeros(1))
    assert ranking.of_clusters()[0].place.tolist() == [7]
    ranking.add(2, points([0], [1]), FIRST, np.array([1.999]), np.zeros(1))
    assert ranking.of_clusters()[0].run.tolist() == [2]


@settings(deadline=None, max_examples=50)
@given(
    scores=st.lists(st.integers(1, 20), min_size=1, max_size=60),
    top=st.integers(1, 5),
    size=st.integers(1, 7),
    data=st.data(),
)
def test_chunks_make_no_difference_and_every_cluster_has_its_best(scores, top, size, data):
    clusters = data.draw(st.lists(st.integers(0, 2), min_size=len(scores), max_size=len(scores)))
    ranking = LayoutRanking(clusters=3, top=top)
    whole = points(clusters, range(len(scores)))
    seen = np.array(scores, dtype=float)
    for start, chunk in zip(range(0, len(scores), size), whole.chunks(size), strict=True):
        part = seen[start : start + size]
        ranking.add(0, chunk, chunk.index[0], part, part * 10)
    best = ranking.of_clusters()
    for cluster in range(3):
        wanted = sorted(
            (s, i) for i, (s, c) in enumerate(zip(scores, clusters, strict=True)) if c == cluster
        )
        places = [cluster * 1000 + i for _, i in wanted[:top]]
        found = best[cluster].place.tolist() if cluster in best else []
        assert found == places
        if found:
            assert (best[cluster].memory_bytes == best[cluster].score * 10).all()
