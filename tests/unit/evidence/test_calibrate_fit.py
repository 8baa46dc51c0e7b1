"""A fit finds what data tell, stays near its priors elsewhere, and says which is which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.fakes import CHIP, STACK, known
from trnbench.evidence.fit.calibrate import calibrate
from trnbench.evidence.fit.problem import Measured, problem
from trnbench.evidence.fit.solve import fit, without
from trnbench.facts.calibration.chip_efficiency import Ratios
from trnbench.facts.calibration.training_stack import TrainingEfficiency
from trnbench.facts.records import replace
from trnbench.predict.ranges import END, Range, correlation_matrix, ranges_of, replaced

RANGES = {
    "tensor_share": (0.7, 0.9),
    "memory_share": (0.6, 0.8),
}
STACK_RANGES = {
    "factor": (0.8, 1.25),
    "communication": (0.7, 1.4),
    "step": (0.01, 0.04),
    "overlaps.tensor": (0.2, 0.6),
    "kernels.attention_forward_share": (0.4, 0.6),
    "kernels.attention_backward_share": (0.3, 0.5),
}


def efficiency(stack="training-x", **changes):
    return TrainingEfficiency(
        chip=replace(CHIP, provenance=known(RANGES)),
        stack=replace(STACK, name=stack, provenance=known(STACK_RANGES), **changes),
    )


@dataclass
class Work:
    """A step of so many ideal seconds on the tensor units, on links, and fixed steps."""

    tensor: float
    links: float = 0.0
    attention: float = 0.0
    steps: float = 1.0

    def times_s(self, given):
        chip, stack = given.chip, given.stack
        attention = self.attention / stack.kernels.attention_forward_share
        links = self.links * stack.communication * (1 - stack.overlaps.tensor)
        computed = self.tensor / chip.tensor_share + attention
        time = given.whole_factor * (computed + links) + self.steps * stack.step_s
        return np.reshape(time, (1, -1))


def row(name, work, measured_s, *, scatter=0.035, stack="training-x", configuration=None):
    return Measured(
        id=name,
        configuration=configuration or name,
        measured_s=measured_s,
        scatter=scatter,
        times_s=work.times_s,
        efficiency=efficiency(stack),
    )


WORKS = [
    Work(10.0),
    Work(1.0, 20.0),
    Work(5.0, 5.0, 3.0),
    Work(0.02, steps=50.0),
    Work(8.0, 1.0, 9.0),
    Work(2.0, 30.0),
]


def measured_with(truth, works=WORKS, **kwargs):
    real = replaced(efficiency(), truth)
    return [
        row(f"r{i}", work, float(work.times_s(real)[0, 0]), **kwargs)
        for i, work in enumerate(works)
    ]


def value(found, key):
    return next(one.value for one in found.parameters if one.parameter.key == key)


def test_known_numbers_are_found_again():
    truth = {"factor": 1.1, "step": 0.03, "communication": 1.2, "overlaps.tensor": 0.4}
    found = calibrate(measured_with(truth, scatter=0.0005))
    # A chip's share and a factor on everything, or a link's time and its overlap, are told only as
    # a product.
    share = value(found, "factor") / value(found, "chip.tensor_share")
    assert share == pytest.approx(1.1 / 0.8, rel=0.005)
    assert value(found, "step") == pytest.approx(0.03, rel=0.01)
    exposed = value(found, "communication") * (1 - value(found, "overlaps.tensor"))
    assert value(found, "factor") * exposed == pytest.approx(1.1 * 1.2 * 0.6, rel=0.01)
    assert max(abs(one.fitted) for one in found.rows) < 0.002


def test_numbers_that_data_cannot_tell_apart_are_named():
    found = calibrate(measured_with({"factor": 1.1}, [Work(10.0), Work(20.0)], scatter=0.0005))
    ((one, other, correlation),) = found.inseparable
    assert {one, other} == {("chip-x", "chip.tensor_share"), ("training-x", "factor")}
    # A larger share of the peak makes up for a larger factor.
    assert correlation > 0.99


def test_three_rows_stay_near_the_priors():
    rows = measured_with({"factor": 1.5}, WORKS[:3])
    found = calibrate(rows)
    before = max(abs(one.prior) for one in found.rows)
    after = max(abs(one.fitted) for one in found.rows)
    assert after < before
    for one in found.parameters:
        assert abs(one.deviation) < 2.5
        assert one.width <= 1
    # The memory's share has no part in these times.
    memory = next(one for one in found.parameters if one.parameter.key == "chip.memory_share")
    assert not memory.told
    assert memory.value == 0.7
    assert memory.ends == pytest.approx((0.6, 0.8))


def test_a_held_chip_does_not_move():
    found = calibrate(measured_with({"factor": 1.2}), held={"chip-x"})
    assert {one.parameter.owner for one in found.parameters} == {"training-x"}
    assert value(found, "factor") > 1.05


def test_with_everything_held_nothing_is_fitted_and_errors_stand():
    found = calibrate(measured_with({"factor": 1.25}), held={"chip-x", "training-x"})
    assert found.parameters == ()
    for one in found.rows:
        assert one.fitted == one.prior == one.without_configuration
        assert one.expected == 0


def test_an_error_without_a_row_is_that_of_a_fit_without_it():
    rows = measured_with({"factor": 1.15, "step": 0.025})
    rows[2] = replace(rows[2], id="odd", measured_s=1.1 * rows[2].measured_s)
    whole = fit(problem(rows))
    ((errors, expected),) = without(whole, [[2]])
    part = fit(problem([one for i, one in enumerate(rows) if i != 2]))
    places = {one.place: z for one, z in zip(part.problem.parameters, part.deviations, strict=True)}
    moved = np.array([[places[one.place] for one in whole.problem.parameters]])
    log = whole.problem.logs(moved)[2, 0]
    assert errors[0] == pytest.approx(np.exp(log) / rows[2].measured_s - 1, abs=0.003)
    assert abs(errors[0]) > abs(whole.errors[2])
    assert expected[0] > 0


def test_many_are_left_out_at_once_as_one_by_one():
    rows = measured_with({"factor": 1.3, "communication": 1.3}, scatter=0.02)
    whole = fit(problem(rows))
    together = without(whole, [[0], [1, 2], [5]])
    alone = [without(whole, [group])[0] for group in ([0], [1, 2], [5])]
    for (errors, expected), (again, expected_again) in zip(together, alone, strict=True):
        assert errors == pytest.approx(again, abs=1e-3)
        assert expected == pytest.approx(expected_again, rel=0.05)


def test_a_row_that_no_other_agrees_with_costs_little_and_is_named():
    rows = measured_with({"factor": 1.2})
    rows.append(row("jump", Work(10.0), 60.0))
    found = calibrate(rows)
    assert [one.row.id for one in found.outliers] == ["jump"]
    others = [one.fitted for one in found.rows if one.row.id != "jump"]
    assert max(map(abs, others)) < 0.04


def test_no_step_leads_to_where_it_is_worse():
    # Times that no parameter explains: a row far below and one far above.
    rows = [row("a", Work(0.02, steps=50.0), 0.01), row("b", Work(10.0), 900.0), *measured_with({})]
    found = calibrate(rows)
    assert max(abs(np.log1p(one.without_configuration)) for one in found.rows) < 6
    assert max(abs(one.without_configuration) for one in found.rows[2:]) < 0.5


def test_a_fit_that_is_no_better_on_rows_left_out_stays_as_it_was():
    # Each row says the contrary of the other.
    rows = [row("a", Work(10.0), 6.0, scatter=0.01), row("b", Work(10.0), 26.0, scatter=0.01)]
    found = calibrate(rows)
    assert not found.better
    assert all(one.deviation == 0 and not one.moved for one in found.parameters)
    assert found.spreads["training-x"] == STACK.spread
    assert calibrate(measured_with({"factor": 1.2})).better


def test_one_configuration_tells_of_the_overall_factor_alone():
    rows = [row(f"a{i}", Work(5.0, 5.0, 3.0), 30.0, configuration="a") for i in range(3)]
    found = calibrate(rows)
    assert {one.parameter.key for one in found.parameters if one.moved} == {"factor"}
    assert value(found, "factor") > 1.05


def test_releases_walk():
    near: dict[str, Ratios] = {"2.28": 1.0, "2.27": 1.0, "2.20": 1.0}
    ranges = {'releases."2.27"': (0.975, 1.0256), 'releases."2.20"': (0.93, 1.0753)}
    chip = replace(CHIP, releases=near, provenance=known(ranges))
    stack = replace(STACK, name="training-x", releases={}, provenance=known({}))

    def of(release, measured_s):
        given = TrainingEfficiency(chip=chip, stack=replace(stack, release=release))
        one = row(release, Work(8.0), measured_s, configuration="a", scatter=0.02)
        return replace(one, efficiency=given)

    found = fit(problem([of("2.28", 10.0), of("2.27", 10.1), of("2.20", 11.5)]))
    keys = [one.key for one in found.problem.parameters]
    newer, older = (found.deviations[keys.index(f'chip.releases."{n}"')] for n in ("2.27", "2.20"))
    assert 0 < newer < older
    mixing = problem([of("2.27", 10.1), of("2.20", 11.5)]).mixing
    # The newer of two is the older's step on the way from the newest.
    assert (mixing @ mixing.T)[0, 1] == pytest.approx(np.log(1.0256) / np.log(1.0753), rel=0.03)


def test_rows_of_one_configuration_count_together_as_one():
    lone = fit(problem([row("a", Work(10.0), 15.0)]))
    many = [row(f"a{i}", Work(10.0), 15.0, scatter=0.3) for i in range(9)]
    apart = fit(problem(many))
    repeated = fit(problem([replace(one, configuration="a") for one in many]))
    at = [one.key for one in lone.problem.parameters].index("factor")
    # What is particular to a configuration does not average out over its rows.
    assert apart.widths[at] < 0.9 * repeated.widths[at]
    lone = fit(problem([replace(many[0], configuration="a")]))
    assert repeated.widths[at] == pytest.approx(lone.widths[at], rel=0.01)


def test_stacks_on_one_chip_share_its_numbers_and_lean_on_each_others_kernels():
    work = Work(1.0, attention=9.0)
    slow = work.times_s(replaced(efficiency(), {"kernels.attention_forward_share": 0.4}))
    rows = [
        row("a", work, float(slow[0, 0]), scatter=0.01),
        row("a2", Work(1.0, attention=4.0), 12.25, scatter=0.01),
        row("b", Work(10.0), 12.5, stack="training-y", scatter=0.01),
    ]
    found = calibrate(rows)
    shares = {
        one.parameter.owner: one.value
        for one in found.parameters
        if one.parameter.key == "kernels.attention_forward_share"
    }
    assert shares["training-x"] < shares["training-y"] < 0.5
    assert sum(one.parameter.key == "chip.tensor_share" for one in found.parameters) == 1
    assert [one.without_stack is not None for one in found.rows] == [True] * 3
    # One kernel's two passes go together.
    of = found.of("training-x")
    backward = of["kernels.attention_backward_share"]
    assert backward.deviation == of["kernels.attention_forward_share"].deviation
    assert 0.3 < backward.value < 0.4


def test_a_lucky_row_proves_little_about_the_scatter_and_an_odd_one_widens_it():
    works = [Work(10.0), Work(12.0)]
    lucky = calibrate(measured_with({"factor": 1.1}, works)).spreads["training-x"]
    odd = calibrate([row(str(i), Work(10.0), time) for i, time in enumerate((15, 19, 24))])
    assert 0.85 < lucky.low < 0.95
    assert odd.spreads["training-x"].low < 0.9
    assert odd.spreads["training-x"].high > 1.1


@pytest.mark.parametrize("deviation", [-2.0, -END, 0.0, END, 2.0])
def test_a_range_has_its_ends_where_its_interval_ends(deviation):
    one = Range(value=1.0, low=0.5, high=4.0)
    expected = {-END: 0.5, 0.0: 1.0, END: 4.0}
    found = float(one.at(np.array(deviation)))
    assert found == pytest.approx(expected.get(deviation, found))
    assert (found > 1) == (deviation > 0)


def test_pairs_that_contradict_each_other_still_make_a_correlation():
    # a goes with b and b with c, but a against c: nothing can be so.
    found = correlation_matrix(
        ["a", "b", "c"], {("a", "b"): 0.9, ("b", "c"): 0.9, ("a", "c"): -0.9, ("a", "x"): 0.5}
    )
    assert np.diag(found) == pytest.approx(np.ones(3))
    assert np.linalg.eigvalsh(found).min() > 0
    np.linalg.cholesky(found)


def test_an_earlier_fits_correlation_is_part_of_the_prior():
    stack = efficiency(correlations={"chip.tensor_share": {"factor": 0.99}})
    rows = [replace(one, efficiency=stack) for one in measured_with({"factor": 1.2}, WORKS[:1])]
    loose = fit(problem(measured_with({"factor": 1.2}, WORKS[:1])))
    held = fit(problem(rows))
    # Both only move together, which leaves their ratio: the row can hardly be followed.
    assert abs(held.errors[0]) > abs(loose.errors[0])


def test_ranges_are_found_by_key():
    found = ranges_of(efficiency())
    assert set(found) == {*(f"chip.{key}" for key in RANGES), *STACK_RANGES}
    assert found["overlaps.tensor"].linear
    assert found["chip.tensor_share"].most == 1.0


def test_a_part_of_a_step_tells_what_the_whole_does_not():
    works = [Work(10.0, steps=0.0), Work(10.0, steps=100.0)]
    whole = row("a", works[1], 16.5, scatter=0.02)
    part = replace(row("a", works[0], 15.0, scatter=0.02, configuration="a"), quantity="device")
    other = row("b", Work(20.0), 30.0, scatter=0.02)
    alone, both = calibrate([whole, other]), calibrate([whole, part, other])
    assert value(both, "step") < value(alone, "step")
    # Errors and scatters of a stack are those of whole steps.
    assert len(both.rows) == 3
    assert len([one for one in both.rows if one.row.quantity == "step"]) == 2


def test_a_lone_row_narrows_the_level_and_leaves_the_scatter_as_it_was():
    # 40 % slower than predicted: a level, not the distance between two configurations.
    found = calibrate([row("a", Work(10.0), 1.4 * 12.5, scatter=0.01)])
    (factor,) = (one for one in found.parameters if one.parameter.key == "factor")
    assert factor.value > factor.parameter.prior.value
    assert factor.width < 0.5
    assert found.spreads["training-x"] == STACK.spread
