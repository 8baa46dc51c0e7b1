"""Claims about figures: agreement up to rounding, provisos, multiples, verdicts together."""

from __future__ import annotations

import pytest

from trnbench.errors import UnknownNameError
from trnbench.evidence.claims.claim import FigureCheck, RatioCheck, listed, of_interval, together
from trnbench.evidence.claims.figures import claimable, figure_finding, ratio_finding
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform

CATALOG = open_catalog(environment={})
ROUNDING = 0.025
BF16 = ("headline_bf16_flop_per_s", "peak_bf16_flop_per_s")


def platforms(*names):
    return [load_platform(CATALOG, name) for name in names]


def figure(claimed, *figures, on=("trn1.32xlarge",), at_least=False):
    check = FigureCheck(instances=on, figures=figures, claimed=claimed, at_least=at_least)
    return figure_finding(check, platforms(*on), ROUNDING)


def ratio(times, *figures, of="trn2.48xlarge", to=("trn1.32xlarge",), over=()):
    check = RatioCheck(of=(of,), to=to, figures=figures, over=over, times=times)
    return ratio_finding(check, platforms(of), platforms(*to), ROUNDING)


def test_rounding_is_granted():
    # 16 chips of 190 are 3.04 PFLOP/s; 16 x 2 x 128 x 128 x 2 x 2.8 GHz are 2.936.
    found = figure("3 PFLOP/s", *BF16)
    assert found.verdict == "holds"
    assert found.says == "headline bf16 3.04 PFLOP/s; peak bf16 2.936 PFLOP/s"


def test_some_figures_and_no_figure():
    assert figure("2.9 PFLOP/s", *BF16).verdict == "holds only if"
    assert figure("2.9 PFLOP/s", *BF16).reason == "only peak bf16"
    missed = figure("3,360 TFLOP/s", *BF16)
    # 3,040 of 3,360
    assert (missed.verdict, missed.reason) == ("does not", "0.905 times what is claimed")


def test_a_prefix_may_be_read_otherwise():
    # 512 GiB are 549.8 GB, 7 % above.
    found = figure("512 GB", "memory_bytes")
    assert (found.verdict, found.reason) == ("holds only if", "only if GB is read as GiB")
    assert figure("512 GiB", "memory_bytes").verdict == "holds"


def test_at_least_is_met_by_more():
    assert figure("30000", "cluster_chips").verdict == "does not"
    assert figure("30000", "cluster_chips", at_least=True).verdict == "holds"
    assert figure("300K", "cluster_chips", at_least=True).verdict == "does not"


def test_of_several_instances_those_that_have_it_are_named():
    on = ("trn1n.32xlarge", "trn1.32xlarge")
    found = figure("1.6 Tbit/s", "fabric_network_one_way_bytes_per_s", on=on)
    assert (found.verdict, found.reason) == ("holds only if", "only trn1n.32xlarge")


def test_multiples_are_at_least_so_large():
    # 46.4 / 13.12 TB/s = 3.54; 1,536 / 512 GiB = 3
    assert ratio("4x", "memory_bandwidth_bytes_per_s").verdict == "does not"
    assert ratio("3.6x", "memory_bandwidth_bytes_per_s").verdict == "holds"
    both = ratio("3x", "memory_bytes", "memory_bandwidth_bytes_per_s")
    assert both.verdict == "holds"
    assert both.says == "device memory 3x; memory bandwidth 3.54x"


def test_a_figure_over_another():
    # 64 GB/s on each of two links, over 1,600 Gbit/s for 64 chips: 128 / 25 = 5.12
    found = ratio(
        "5x",
        "fabric_neuronlink_z_one_way_bytes_per_s",
        of="trn2-ultraserver",
        to=("trn2u.48xlarge",),
        over=("fabric_network_a_chip_one_way_bytes_per_s",),
    )
    assert found.verdict == "holds"
    assert found.cases[0].value == pytest.approx(5.12)


def test_sparsity_gains_less_where_dense_products_are_fast_already():
    known = claimable(load_platform(CATALOG, "trn2.48xlarge"))
    assert known["sparse_gain_bf16"].value == 4
    assert known["sparse_gain_fp8_e4m3"].value == 2


def test_an_unknown_figure_is_told_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'memory_bytes'"):
        figure("1 GB", "memory_byte")


def test_several_instances_and_figures_at_once_would_be_unreadable():
    with pytest.raises(ValueError, match="not both"):
        FigureCheck(instances=("a", "b"), figures=("c", "d"), claimed="1 GB")


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "does not"], "holds only if"),
        (["holds", "undecided"], "holds only if"),
        (["holds only if"], "holds only if"),
        (["does not", "undecided"], "undecided"),
        (["does not"], "does not"),
        ([], "undecided"),
    ],
)
def test_verdicts_together(verdicts, verdict):
    assert together(verdicts) == verdict


def test_an_interval_around_the_claim_tells_nothing():
    assert of_interval(2.0, 3.0, 2.0) == "holds"
    assert of_interval(1.0, 1.9, 2.0) == "does not"
    assert of_interval(1.0, 2.0, 2.0) == "undecided"


def test_few_names_stand_for_many():
    assert listed(["a", "b", "a"]) == "a, b"
    assert listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"
