"""Rows to fit, taken together: the same numbers as one by one, and few of them left out cheaply."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trnbench.evidence.fit.problem import problem
from trnbench.evidence.fit.rows import FitRows, marked_rows, measured_rows
from trnbench.evidence.fit.solve import Fit, fit, without
from trnbench.evidence.fit.start import start_of
from trnbench.evidence.rows import read_evidence
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.predict.fit import ManyLayouts

SWEEP = Path(__file__).parents[2] / "user_files" / "eager_sweep.csv"
CATALOG = open_catalog(environment={})


def rows_of(*places: int) -> FitRows:
    (file,) = marked_rows([read_evidence(SWEEP)])
    rows = tuple(file.rows[place] for place in places) if places else file.rows
    files = [replace(file, rows=rows)]
    return measured_rows(CATALOG, files, stack=start_of(CATALOG, "ours", files, None).stack)


@pytest.fixture(scope="module")
def together() -> FitRows:
    return rows_of()


@pytest.fixture(scope="module")
def fitted(together) -> Fit:
    return fit(problem(together.rows, held={row.chip for row in together.rows}))


def test_rows_on_one_grid_take_as_long_as_rows_alone(together):
    points = np.random.default_rng(1).normal(size=(300, len(problem(together.rows).parameters)))
    found = problem(together.rows).logs(points)
    for place in (0, 7, 20):
        alone = problem(rows_of(place).rows).logs(points)
        np.testing.assert_array_equal(alone[0], found[place])


def test_memory_of_many_layouts_is_that_of_each(together):
    numbers = {"memory.states": np.array([1.0, 1.2]), "memory.communicator": np.array([0.0, 1e9])}
    several = ManyLayouts.of([(row.memory, row.of) for row in together.held])
    found = several.bytes_by(numbers)
    assert found.shape == (len(together.held), 2)
    for row, sizes in zip(together.held, found, strict=True):
        np.testing.assert_allclose(row.memory.bytes_by(numbers, row.of), sizes, rtol=1e-12)


def test_a_number_at_its_limit_is_moved_to_its_one_side(together):
    """Software that hides all launches may hide less: its rows are asked."""
    every = problem(together.rows)
    (place,) = [i for i, one in enumerate(every.parameters) if one.key == "host.overlap"]
    assert every.parameters[place].prior.value == every.parameters[place].prior.most
    _, slopes = every.slopes(np.zeros(len(every.parameters)))
    assert float(slopes[:, place].min()) < -0.01


@pytest.mark.slow
def test_a_row_is_left_out_by_a_fit_that_never_saw_it(together, fitted):
    places = list(range(0, len(together.rows), 5))
    left_out = without(fitted, [[place] for place in places])
    moved = 0.0
    for place, (errors, _) in zip(places, left_out, strict=True):
        others = [row for i, row in enumerate(together.rows) if i != place]
        alone = fit(problem(others, held={row.chip for row in together.rows}))
        error = problem(together.rows, held={row.chip for row in together.rows}).logs(
            alone.deviations[np.newaxis]
        )[place, 0] - np.log(together.rows[place].measured_s)
        assert errors[0] == pytest.approx(np.expm1(error), abs=0.02)
        moved = max(moved, abs(errors[0] - fitted.errors[place]))
    assert moved > 0.02


@pytest.mark.slow
def test_of_many_each_is_left_out_as_of_few(together, fitted, monkeypatch):
    places = [[place] for place in range(len(together.rows))]
    few = without(fitted, places)
    monkeypatch.setattr("trnbench.evidence.fit.solve.MANY", 1)
    many = without(fitted, places)
    far = np.array([np.abs(other - one) for (one, _), (other, _) in zip(few, many, strict=True)])
    # Of many, a search takes fewer steps.
    assert far.max() < 0.06
    assert far.mean() < 0.01
