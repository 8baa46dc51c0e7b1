"""Settings of every test: CI draws the same examples on each run, a developer's runs explore."""

from __future__ import annotations

import os

# Tests run side by side, and sums of matrix products depend on how many threads share them. This
# must be set before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "explore")
