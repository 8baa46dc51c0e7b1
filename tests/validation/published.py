"""The published rows, scored once for all tests that read their scores, which run together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from trnbench.verbs.validate.run import validate

SETS = ("trainium", "gpu")
TOGETHER = pytest.mark.xdist_group("calibration")


@cache
def scored() -> Mapping[str, Any]:
    """Return the sections of `validate`, by the names of their sets."""
    return {section.name: section for section in validate(set=SETS)}
