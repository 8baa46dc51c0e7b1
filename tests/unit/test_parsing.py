"""What people type, on the command line and in forms: values, or one sentence on what is wrong."""

from __future__ import annotations

import datetime

import pytest

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts import parsing
from trnbench.facts.units import Dimension


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parsing.whole("nodes"), "1,024", 1024),
        (parsing.whole("nodes"), "4k", 4000),
        (parsing.whole("seed", least=0), "0", 0),
        (parsing.sequence("sequence"), "8k", 8192),
        (parsing.sequence("sequence"), "128K", 131072),
        (parsing.sequence("sequence"), "1M", 2**20),
        (parsing.sequence("sequence"), "4,096", 4096),
        (parsing.count("tokens"), "2T", 2e12),
        (parsing.count("tokens"), "2000000000000", 2e12),
        (parsing.count("samples"), "50K", 5e4),
        (parsing.size("size"), "1K", 1024.0),
        (parsing.size("size"), "1 m", 2.0**20),
        (parsing.size("size"), "1.5G", 1.5 * 2**30),
        (parsing.size("size"), "1KiB", 1024.0),
        (parsing.size("size"), "1KB", 1000.0),
        (parsing.size("size"), "64 MB", 64e6),
        (parsing.size("size"), "4096", 4096.0),
        (parsing.duration("deadline"), "90 s", 90.0),
        (parsing.duration("deadline"), "30m", 1800.0),
        (parsing.duration("deadline"), "30 min", 1800.0),
        (parsing.duration("deadline"), "2 h", 7200.0),
        (parsing.duration("deadline"), "60d", 60 * 86400.0),
        (parsing.duration("deadline"), "2w", 14 * 86400.0),
        (parsing.money("budget"), "5M", 5e6),
        (parsing.money("budget"), "5M USD", 5e6),
        (parsing.money("budget"), "5,000,000", 5e6),
        (parsing.share("discount"), "18%", 0.18),
        (parsing.share("discount"), "0.18", 0.18),
        (parsing.share("discount"), "", 0.0),
        (parsing.quantity("share", Dimension.RATIO), "150%", 1.5),
        (parsing.date("day"), "2026-11-21", datetime.date(2026, 11, 21)),
        (parsing.optional(parsing.whole("tp")), "any", None),
        (parsing.optional(parsing.whole("tp")), "8", 8),
        (parsing.several("k", parsing.whole("k")), "1, 2 4", (1, 2, 4)),
        (parsing.place("on"), "trn1.32xlarge:8", ("trn1.32xlarge", 8)),
        (parsing.place("on"), "trn1.32xlarge:1k", ("trn1.32xlarge", 1000)),
        (parsing.place("on"), "trn1.32xlarge", ("trn1.32xlarge", 1)),
    ],
)
def test_texts_become_values(parse, text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (parsing.whole("nodes"), "0", "nodes must be from 1 to 2,147,483,647, found '0'"),
        (parsing.whole("nodes"), "2.5", "'2.5' is not a whole number"),
        (parsing.whole("nodes"), "many", "'many' is not a whole number; write e.g. 8"),
        (parsing.sequence("sequence"), "8q", "'8q' is not a number of tokens; .* 8k"),
        (parsing.sequence("sequence"), "-8k", "sequence must be from 1 to .*, found '-8k'"),
        (parsing.count("tokens"), "-1", "tokens must be above 0, found '-1'"),
        (parsing.count("tokens"), "much", "'much' is not a count; write e.g. 2T"),
        (parsing.size("size"), "0", "size must be above 0, found '0'"),
        (parsing.size("size"), "1 KiBB", "unknown unit 'KiBB'; did you mean 'KiB'"),
        (parsing.size("size"), "1Gb", "does not say bit or byte"),
        (parsing.duration("deadline"), "60", "'60' has no unit; expected e.g. 60d"),
        (parsing.duration("deadline"), "60 mn", "did you mean 'min'"),
        (parsing.money("budget"), "-5M", "budget must be above 0"),
        (parsing.share("discount"), "1.5", "discount must be from 0 to below 100%, found '1.5'"),
        (parsing.share("discount"), "a lot", "discount: 'a lot' is not a quantity"),
        (parsing.confidence("sure"), "49%", "sure must be from 50% to 99%, found '49%'"),
        (parsing.confidence("sure"), "100", "sure must be from 50% to 99%, found '100'"),
        (parsing.confidence("sure"), "", "sure: '' is not a quantity"),
        (parsing.date("day"), "tomorrow", "'tomorrow' is not a date; write e.g. 2026-11-21"),
        (parsing.several("k", parsing.whole("k")), " , ", "k: an empty name in ' , '"),
        (parsing.several("k", parsing.whole("k")), "", "an empty name"),
        (parsing.several("k", parsing.whole("k")), "4,4", "k: 4 is named twice"),
        (parsing.place("on"), ":4", "an empty name"),
        (parsing.place("on"), "trn1.32xlarge:0", "nodes must be a number from 1 to 1,000,000"),
    ],
)
def test_what_is_refused_says_what_was_found_and_what_is_expected(parse, text, said):
    with pytest.raises(InputError, match=said):
        parse(text)


def test_an_unknown_name_proposes_the_nearest():
    with pytest.raises(UnknownNameError, match=r"trn2\.48xlarge"):
        parsing.one_of("instance", ("trn1.32xlarge", "trn2.48xlarge"))("trn2.48xlrge")
