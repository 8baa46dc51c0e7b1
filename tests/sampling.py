"""Cases of which the quick suites hold a sample; `make soak` runs all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

import pytest

Case = TypeVar("Case")


def sampled(cases: Iterable[Case], kept: Collection[Case]) -> list[object]:
    """Return the cases for `parametrize`, those that are not kept marked `soak`."""
    return [case if case in kept else pytest.param(case, marks=pytest.mark.soak) for case in cases]
