from __future__ import annotations

import pytest

from trnbench.engines.execute.numbers.demonstrations import accumulate_demo
from trnbench.errors import InputError


def test_documented_case():
    demo = accumulate_demo()
    assert demo.exact == 2048
    assert demo.nearest == 1024
    # Below 2048 fp16 steps by 1, so each addition is a fair coin: sigma = sqrt(2048 / 4) = 22.6.
    assert abs(demo.stochastic - 2048) <= 4 * 22.7
    assert accumulate_demo(seed=1).stochastic != demo.stochastic
    assert accumulate_demo() == demo


def test_steps_the_format_holds_are_never_lost():
    demo = accumulate_demo(format="fp32", count=64)
    assert demo.nearest == demo.stochastic == demo.exact == 1056


def test_negative_count():
    with pytest.raises(InputError, match="count must not be negative"):
        accumulate_demo(count=-1)
