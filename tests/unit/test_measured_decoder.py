"""What JAX computes on eight forced devices is what one device computes, and what we count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("measured-decoder"),
    pytest.mark.skipif(find_spec("jaxlib") is None, reason="JAX is not installed"),
]

SHORT_COMPILING = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
"""Half of the time goes into code that would be fast; what is counted and computed is the same."""


@pytest.fixture(scope="module")
def found():
    command = [sys.executable, "-m", "tests.measured_decoder"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **SHORT_COMPILING}
    )
    return json.loads(done.stdout)


def test_a_step_on_tp_2_x_dp_2_has_the_losses_of_one_device(found):
    assert found["tp2dp2"]["losses"] == pytest.approx(found["one"]["losses"], abs=1e-5)
    assert sorted(found["one"]["losses"], reverse=True) == found["one"]["losses"], "it falls"


def test_the_compiler_counts_the_operations_that_the_program_does(found):
    assert found["product"] == pytest.approx(2 * 64 * 128 * 32, rel=0.03)
    # What it counts besides are passes between products, of which the program counts bytes.
    for name in ("one", "tp2dp2"):
        ratio = found[name]["compiled_flop"] / found[name]["flop"]
        assert 1.0 < ratio < 1.1, name


def test_collectives_of_pairs_and_of_all_devices_move_the_right_data(found):
    assert len(found["collectives"]) == 10
    assert {tuple(one[:2]) for one in found["collectives"] if one[3] != 0.0} == set()
