from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from trnbench.errors import UnknownNameError
from trnbench.facts.numbers.formats import ALIASES, FORMATS, format_named


@pytest.mark.parametrize("name", [name for name, f in FORMATS.items() if f.dtype_name])
def test_ranges_agree_with_the_types_that_store_them(name):
    format = FORMATS[name]
    dtype_name = format.dtype_name or ""
    if name == "int8":
        info = np.iinfo(np.int8)
        assert (format.max_value, format.min_value, format.smallest) == (info.max, info.min, 1)
        return
    stored = ml_dtypes.finfo(getattr(ml_dtypes, dtype_name, dtype_name))
    assert format.max_value == float(stored.max)
    assert format.min_value == float(stored.min)
    assert format.mantissa_bits == stored.nmant
    assert format.min_exponent == stored.minexp
    assert format.smallest == float(stored.smallest_subnormal)
    assert format.bits == stored.bits


def test_tf32_is_fp32_with_ten_mantissa_bits():
    tf32 = FORMATS["tf32"]
    assert tf32.max_value == (2 - 2**-10) * 2.0**127
    assert tf32.smallest == 2.0**-136
    assert tf32.bytes_per_element == 4.0


@pytest.mark.parametrize(
    ("name", "bytes_per_element"),
    # One byte of scale for 32 elements: 1 + 1/32 and 1/2 + 1/32.
    [("mxfp8_e4m3", 1.03125), ("mxfp4", 0.53125), ("bf16", 2.0), ("fp64", 8.0), ("int8", 1.0)],
)
def test_storage_counts_the_shared_scale(name, bytes_per_element):
    assert FORMATS[name].bytes_per_element == bytes_per_element


def test_max_exponent_is_the_emax_of_the_block_scale_rules():
    emax = {name: FORMATS[name].max_exponent for name in ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp4")}
    assert emax == {"mxfp8_e4m3": 8, "mxfp8_e5m2": 15, "mxfp4": 2}


def test_aliases_resolve_and_never_shadow_a_name():
    assert not ALIASES.keys() & FORMATS.keys()
    for alias, name in ALIASES.items():
        assert format_named(alias) is FORMATS[name]
    assert format_named(" BFloat16 ").name == "bf16"
    assert format_named("fp8-e4m3").max_value == 240


def test_unknown_format_proposes_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown number format 'bf61'.*'bf16'"):
        format_named("bf61")


def test_formats_load_without_numpy():
    heavy = "{'numpy', 'ml_dtypes'} & {*sys.modules}"
    code = f"import sys, trnbench.facts.numbers.formats; print(sorted({heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
