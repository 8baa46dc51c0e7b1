"""Quantities: every prefix, every refusal, and both ways round."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.errors import UnitError
from trnbench.facts.units import (
    BINARY_PREFIXES,
    COUNT_SUFFIXES,
    DECIMAL_PREFIXES,
    SANE,
    UNITS,
    Dimension,
    exact,
    parse,
    scale_for,
    show,
    significant,
)


def test_decimal_prefixes_are_powers_of_a_thousand_in_order():
    symbols = ["f", "p", "n", "u", "m", "", "k", "M", "G", "T", "P", "E"]
    assert list(DECIMAL_PREFIXES) == symbols
    for exponent, symbol in zip(range(-15, 19, 3), symbols, strict=True):
        assert DECIMAL_PREFIXES[symbol] == float(f"1e{exponent}")


def test_binary_prefixes_are_powers_of_1024_in_order():
    assert list(BINARY_PREFIXES) == ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
    for exponent, factor in enumerate(BINARY_PREFIXES.values(), start=1):
        assert factor == 1024**exponent


def test_count_suffixes_are_those_of_tokens_and_parameters():
    assert COUNT_SUFFIXES == {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("96 GiB", Dimension.BYTES, 96 * 2**30),
        ("96 GB", Dimension.BYTES, 96e9),
        ("1KB", Dimension.BYTES, 1000),
        ("1kB", Dimension.BYTES, 1000),
        ("1 KiB", Dimension.BYTES, 1024),
        ("8 bit", Dimension.BYTES, 1),
        ("1 Gibit", Dimension.BYTES, 2**27),
        ("2.9 TB/s", Dimension.BYTES_PER_S, 2.9e12),
        ("200 Gbit/s", Dimension.BYTES_PER_S, 25e9),
        ("13,120 GiB/s", Dimension.BYTES_PER_S, 13120 * 2**30),
        ("78.64 TFLOP/s", Dimension.FLOP_PER_S, 78.64e12),
        ("380 TOP/s", Dimension.FLOP_PER_S, 380e12),
        ("4 PFLOP", Dimension.FLOP, 4e15),
        ("2.8 GHz", Dimension.HERTZ, 2.8e9),
        ("1.3 us", Dimension.SECONDS, 1.3e-6),
        ("600 ns", Dimension.SECONDS, 6e-7),
        ("5 m", Dimension.SECONDS, 300),
        ("5 min", Dimension.SECONDS, 300),
        ("5 ms", Dimension.SECONDS, 0.005),
        ("60d", Dimension.SECONDS, 60 * 86400),
        ("2 h", Dimension.SECONDS, 7200),
        ("5M USD", Dimension.USD, 5e6),
        ("12.50 USD", Dimension.USD, 12.5),
        ("21.50 USD/h", Dimension.USD_PER_HOUR, 21.5),
        ("0.7 kW", Dimension.WATTS, 700),
        ("2T", Dimension.COUNT, 2e12),
        ("128k", Dimension.COUNT, 128e3),
        ("1,024", Dimension.COUNT, 1024),
        ("18%", Dimension.RATIO, 0.18),
        ("0.18", Dimension.RATIO, 0.18),
        ("1e3 B", Dimension.BYTES, 1000),
    ],
)
def test_parse(text, dimension, value):
    assert parse(text, dimension) == value


@pytest.mark.parametrize(
    ("text", "dimension", "said"),
    [
        ("96", Dimension.BYTES, "has no unit"),
        ("", Dimension.BYTES, "not a quantity"),
        ("GiB", Dimension.BYTES, "not a quantity"),
        ("nan GiB", Dimension.BYTES, "not a quantity"),
        ("inf s", Dimension.SECONDS, "not a quantity"),
        ("100 Gb", Dimension.BYTES, "write 'Gbit' or 'GB'"),
        ("100 Gbps", Dimension.BYTES_PER_S, "write 'Gbit/s' or 'GB/s'"),
        ("2.9 TB", Dimension.BYTES_PER_S, "did you mean 'TB/s'?"),
        ("3 Gib", Dimension.BYTES, "write 'Gibit' or 'GiB'"),
        ("1.3 seconds", Dimension.SECONDS, "unknown unit 'seconds'"),
        ("2 GHz", Dimension.SECONDS, "unknown unit 'GHz'"),
        ("1e400 B", Dimension.BYTES, "out of range, 0.1 to 1e+21 B"),
        ("1e-300 s", Dimension.SECONDS, "out of range"),
        ("1e99999999999999999999 s", Dimension.SECONDS, "out of range"),
        ("1,00 B", Dimension.BYTES, "unknown unit"),
        ("5 kB", Dimension.COUNT, "unknown unit"),
    ],
)
def test_parse_refuses(text, dimension, said):
    with pytest.raises(UnitError) as caught:
        parse(text, dimension)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bare_number_is_taken_only_where_asked():
    assert parse("1024", Dimension.BYTES, bare=True) == 1024


ALL_UNITS = [(dimension, unit) for dimension, units in UNITS.items() for unit in units]


@pytest.mark.parametrize(("dimension", "unit"), ALL_UNITS)
def test_every_unit_means_its_factor(dimension, unit):
    assert parse(f"1 {unit}", dimension) == UNITS[dimension][unit]
    assert parse(f"3{unit}", dimension) == pytest.approx(3 * UNITS[dimension][unit], rel=1e-15)


@given(dimension=st.sampled_from(list(Dimension)), data=st.data())
def test_exact_text_comes_back_to_the_bit(dimension, data):
    value = data.draw(st.just(0.0) | st.floats(*SANE[dimension]))
    assert parse(exact(value, dimension), dimension) == value


@given(
    dimension=st.sampled_from([d for d in Dimension if d is not Dimension.COUNT]), data=st.data()
)
def test_shown_text_comes_back_within_its_digits(dimension, data):
    least, most = SANE[dimension]
    value = data.draw(st.floats(max(least * 2, 1e-9), min(most / 2, 1e18)))
    text = show(value, dimension, digits=6)
    assert parse(text, dimension) == pytest.approx(value, rel=1e-5, abs=0.51e-6 * 1e-12)


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (96 * 2**30, Dimension.BYTES, "96 GiB"),
        (25e9, Dimension.BYTES_PER_S, "25 GB/s"),
        (1.3e-6, Dimension.SECONDS, "1.3 us"),
        (0.0, Dimension.SECONDS, "0 s"),
        (86400 * 27.4, Dimension.SECONDS, "27.4 d"),
        (6738415616, Dimension.COUNT, "6.738B"),
        (0.1234, Dimension.RATIO, "12.34%"),
        (1_540_000, Dimension.USD, "1.54 M USD"),
        (-2048, Dimension.BYTES, "-2 KiB"),
        (math.inf, Dimension.SECONDS, "inf"),
    ],
)
def test_show(value, dimension, text):
    assert show(value, dimension) == text


def test_a_column_keeps_one_scale():
    scale = scale_for(3e12, Dimension.BYTES_PER_S)
    assert show(46.4e12, Dimension.BYTES_PER_S, scale=scale) == "46.4 TB/s"
    assert show(0.82e12, Dimension.BYTES_PER_S, scale=scale) == "0.82 TB/s"


def test_significant_digits():
    assert significant(1234567.0) == "1,234,567"
    assert significant(0.000123456) == "0.0001235"
    assert significant(99.996, 4) == "100"
