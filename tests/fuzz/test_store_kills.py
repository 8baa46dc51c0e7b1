"""A killed study goes on to the same table, killed runs are kept once or not, migrations whole."""

from __future__ import annotations

import pytest

from tests.fuzz.store_kills import (
    migration_after_kills,
    runs_after_kills,
    study_after_kills,
    table_of,
)


def checked(tmp_path, seed, kills, cells):
    for name in ("alone", "study", "runs", "migration"):
        (tmp_path / name).mkdir()
    whole = table_of(tmp_path / "alone", cells)
    assert set(study_after_kills(seed, tmp_path / "study", kills, cells)) == {whole}
    kept, ended, started = runs_after_kills(seed, tmp_path / "runs", kills)
    assert ended <= kept <= started
    migration_after_kills(seed, tmp_path / "migration", kills)


@pytest.mark.slow
def test_a_sample_of_kills_loses_and_doubles_nothing(tmp_path):
    checked(tmp_path, 1, 2, 40)


@pytest.mark.soak
def test_two_hundred_kills_lose_and_double_nothing(tmp_path):
    checked(tmp_path, 2, 67, 1500)
