"""Error statistics of a few rows, worked by hand."""

from __future__ import annotations

import pytest

from trnbench.evidence.comparison import Comparison
from trnbench.evidence.statistics import (
    errors_of,
    fit_score_of,
    memory_errors_of,
    naive_baseline,
    naive_memory,
    ranking,
    summarise,
)


def row(measured: float, predicted: float | None, **other: object) -> Comparison:
    given = {"id": "r", "set": "gpu_training", **other}
    return Comparison(measured_s=measured, predicted_s=predicted, **given)  # type: ignore[arg-type]


def test_errors_of_four_rows():
    # +0.20, -0.10, +0.02, -0.40: sizes have mean 0.18 and median 0.15, bias -0.07, half are near.
    rows = [row(1.0, 1.2), row(2.0, 1.8), row(10.0, 10.2), row(5.0, 3.0), row(1.0, None)]
    found = errors_of(rows)
    assert found is not None
    assert found.rows == 4
    assert found.mape == pytest.approx(0.18)
    assert found.median == pytest.approx(0.15)
    assert found.largest == pytest.approx(0.40)
    assert found.bias == pytest.approx(-0.07)
    assert found.near == pytest.approx(0.5)
    assert found.coverage is None


def test_nothing_predicted_has_no_errors():
    assert errors_of([row(1.0, None)]) is None
    assert errors_of([]) is None
    assert summarise([row(1.0, None)]).errors == {}


def test_coverage_and_half_width():
    # 1.0 lies in 0.9..1.3 (half-width 0.2 of 1.0), 2.0 not in 2.1..2.9 (0.4 of 2.5 = 0.16).
    rows = [row(1.0, 1.0, low_s=0.9, high_s=1.3), row(2.0, 2.5, low_s=2.1, high_s=2.9)]
    found = errors_of(rows)
    assert found is not None
    assert found.coverage == pytest.approx(0.5)
    assert found.half_width == pytest.approx(0.18)


def layouts(*pairs: tuple[float, float], **other: object) -> list[Comparison]:
    return [
        row(
            measured,
            predicted,
            question="q",
            configuration=f"layout {i}",
            tokens=1000.0,
            ranks=8,
            **other,
        )
        for i, (measured, predicted) in enumerate(pairs)
    ]


def test_kendalls_tau_counts_pairs_that_differ_by_more_than_5_percent():
    # Measured 1.00, 1.04, 1.20, 1.50; pairs over 5 %: all but the first two. Predicted order
    # 1.3, 1.0, 1.1, 1.4: (1, 3) and (1, 4): wrong, right; (2, 3), (2, 4), (3, 4) right.
    found = ranking(layouts((1.0, 1.3), (1.04, 1.0), (1.2, 1.1), (1.5, 1.4)))
    assert found is not None
    assert found.pairs == 5
    assert found.tau == pytest.approx((4 - 1) / 5)
    # The second is chosen: 1.04 instead of 1.00.
    assert found.regret == pytest.approx(0.04)
    assert found.groups == 1


def test_every_group_of_layouts_has_its_order_and_its_choice():
    found = ranking(
        [
            *layouts((1.0, 2.0), (1.5, 1.0), (2.0, 3.0), layout="tp8"),
            *(
                row(m, m, question="p", configuration=str(m), tokens=1.0, layout=f"of {m}")
                for m in (1.0, 2.0)
            ),
        ]
    )
    assert found is not None
    first, second = found.by_group
    # Of three pairs one is wrong; 1.5 is chosen instead of 1.0.
    assert (first.question, first.layouts, first.pairs) == ("q", 3, 3)
    assert first.tau == pytest.approx(1 / 3)
    assert first.regret == pytest.approx(0.5)
    assert (second.tau, second.regret) == (1.0, 0.0)
    assert (second.chosen, second.best) == ("of 1.0", "of 1.0")
    # Over all pairs, and over groups.
    assert found.tau == pytest.approx((1 + 1) / 4)
    assert found.regret == pytest.approx(0.25)


def test_a_tie_in_prediction_counts_neither_way():
    found = ranking(layouts((1.0, 1.0), (2.0, 1.0)))
    assert found is not None
    assert found.tau == 0


def test_layouts_are_compared_by_time_per_token_and_chip():
    # Twice the ranks and a quarter of the time for half the tokens: the same per token and chip.
    small = row(4.0, 4.0, question="q", configuration="a", tokens=1000.0, ranks=8)
    large = row(1.0, 1.0, question="q", configuration="b", tokens=500.0, ranks=16)
    assert ranking([small, large]) is None


def test_rows_of_one_configuration_are_no_pair_and_other_questions_do_not_mix():
    once, again = layouts((1.0, 1.0)), layouts((2.0, 1.0))
    assert ranking(once + again) is None
    other = [row(2.0, 2.0, question="p", configuration="layout 1", tokens=1000.0, ranks=8)]
    assert ranking(once + other) is None


def test_the_naive_baseline_uses_rows_marked_fit_and_never_the_configuration_itself():
    # Utilisation 0.5 and 0.25 on rows marked fit; 1.0 on one that is not.
    machine = {"platform": "m", "ideal_s": 1.0}
    fit = [
        row(2.0, 1.0, use="fit", configuration="a", **machine),
        row(4.0, 1.0, use="fit", configuration="b", **machine),
    ]
    more = row(1.0, 1.0, use="more", configuration="c", **machine)
    predicted = {r.configuration: r.predicted_s for r in naive_baseline([*fit, more])}
    # a from b: 1 / 0.25; b from a: 1 / 0.5; c from the median of both: 1 / 0.375.
    assert predicted == pytest.approx({"a": 4.0, "b": 2.0, "c": 1 / 0.375})


def test_without_rows_marked_fit_the_others_serve():
    machine = {"platform": "m", "ideal_s": 1.0}
    rows = [
        row(2.0, 1.0, configuration="a", **machine),
        row(4.0, 1.0, configuration="b", **machine),
    ]
    assert [r.predicted_s for r in naive_baseline(rows)] == [4.0, 2.0]
    assert naive_baseline(rows[:1]) == ()


def test_groups_are_counted_apart():
    rows = [
        row(1.0, 1.1, fitted=True, use="fit", stack="s", own_stack=True, basis="measured"),
        row(1.0, 1.2, use="more", stack="s", own_stack=True, basis="measured"),
        row(1.0, 1.4, use="more", stack="t", own_stack=True, basis="transferred", assumed=("x",)),
        row(1.0, None, use="more", stack="t"),
    ]
    found = summarise(rows)
    assert (found.rows, found.predicted) == (4, 3)
    means = {name: round(errors.mape, 6) for name, errors in found.errors.items()}
    assert means == {
        "all": pytest.approx(0.7 / 3, abs=1e-6),
        "fitted": 0.1,
        "unseen": 0.3,
        "unseen, within stack": 0.2,
        "unseen, cross stack": 0.4,
        "marked fit": 0.1,
        "marked more": 0.3,
        "nothing assumed": 0.15,
    }
    assert sorted(found.stacks) == ["s", "t"]


def weighed(measured: float | None, predicted: float | None, **other: object) -> Comparison:
    given: dict[str, object] = {"outcome": "measured", "platform": "m", "memory_of": "rank"}
    sizes = {"memory_measured_bytes": measured, "memory_predicted_bytes": predicted}
    return row(1.0, None, **(given | sizes | other))


def test_memory_is_scored_of_rows_that_ran():
    rows = [
        weighed(10.0, 12.0, memory_low_bytes=9.0, memory_high_bytes=15.0),
        weighed(10.0, 9.0, memory_low_bytes=8.0, memory_high_bytes=9.5),
        weighed(10.0, 99.0, outcome="crashed_or_oom"),
        weighed(None, 9.0),
    ]
    found = memory_errors_of(rows)
    assert found is not None
    assert found.rows == 2
    assert found.mape == pytest.approx(0.15)
    assert found.bias == pytest.approx(0.05)
    assert found.coverage == pytest.approx(0.5)
    assert summarise(rows).memory["unseen"] == found


def test_the_naive_memory_is_the_median_of_a_machines_other_configurations():
    rows = [weighed(size, 1.0, configuration=str(i)) for i, size in enumerate((1.0, 2.0, 6.0))]
    chip = weighed(50.0, 1.0, configuration="3", memory_of="chip")
    assert [one.memory_predicted_bytes for one in naive_memory([*rows, chip])] == [4.0, 3.5, 1.5]


def fits(outcome: str, probability: float | None) -> Comparison:
    return row(1.0, None, outcome=outcome, fit_probability=probability)


def test_fit_is_scored_by_precision_recall_and_both_kinds_of_rows_alike():
    ran = [fits("measured", p) for p in (1.0, 0.5, 0.9, 0.49)]
    crashed = [fits("crashed_or_oom", p) for p in (0.0, 0.8)]
    found = fit_score_of([*ran, *crashed, fits("measured", None)])
    assert found is not None
    assert (found.ran, found.crashed) == (4, 2)
    # Four are called fitting, of which three ran; three of four that ran, one of two that crashed.
    assert found.precision == pytest.approx(0.75)
    assert found.recall == pytest.approx(0.75)
    assert found.specificity == pytest.approx(0.5)
    assert found.balanced_accuracy == pytest.approx(0.625)


def test_fit_without_one_kind_of_rows_has_no_balance():
    found = fit_score_of([fits("measured", 0.2)])
    assert found is not None
    assert (found.precision, found.recall) == (None, 0.0)
    assert (found.specificity, found.balanced_accuracy) == (None, None)
    assert fit_score_of([row(1.0, 1.0)]) is None
