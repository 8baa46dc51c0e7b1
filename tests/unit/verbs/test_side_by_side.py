"""Work shared among processes gives what one process would, or says what went wrong."""

from __future__ import annotations

import os
import signal

import pytest

from trnbench.errors import EnvironmentFault, InputError
from trnbench.verbs.compare.run import each


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_results_stand_in_the_order_of_the_things(workers: int) -> None:
    offset = 10
    assert each(lambda one: one + offset, range(7), workers) == [*range(10, 17)]
    assert each(lambda one: one + offset, [], workers) == []


def test_several_processes_work() -> None:
    asked = os.getpid()
    assert len(set(each(lambda _: os.getpid(), range(4), 2))) == 2
    assert {asked} == set(each(lambda _: os.getpid(), range(4), 1))


@pytest.mark.parametrize("wrong", [0, 1])
def test_what_goes_wrong_in_any_of_them_is_raised(wrong: int) -> None:
    def work(number: int) -> int:
        if number == wrong:
            raise InputError("no such thing")
        return number

    with pytest.raises(InputError, match="no such thing"):
        each(work, range(4), 2)


def test_one_that_is_killed_is_told() -> None:
    asked = os.getpid()

    def work(number: int) -> int:
        if os.getpid() != asked:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(EnvironmentFault, match="ended from outside"):
        each(work, range(4), 2)
