"""Tests in a browser run where one is found; CI, which installs one, takes none for a fault."""

from __future__ import annotations

import os

import pytest

from tests.browser.chromium import found

REQUIRED = "TRNBENCH_TEST_PROGRAMS"


@pytest.fixture(autouse=True)
def browser():
    if found() is None:
        if os.environ.get(REQUIRED) == "required":
            pytest.fail("no Chromium is installed, and here these tests must run")
        pytest.skip("no browser: chromium is not installed")
