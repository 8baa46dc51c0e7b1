"""The shipped calibrations are what `make calibration` writes, and predict as well as promised."""

from __future__ import annotations

import datetime
import shlex
from statistics import fmean, median

import pytest
import tomli

from tests.sampling import sampled
from tests.validation.published import SETS, TOGETHER, scored
from trnbench.evidence.fit.calibrate import mean_error
from trnbench.evidence.fit.population import main as write_population
from trnbench.evidence.fit.problem import KERNEL
from trnbench.evidence.predict import Predictor
from trnbench.evidence.rows import RowFault, read_evidence
from trnbench.evidence.training_cases import Reader
from trnbench.facts.catalog.search import built_in_folder, open_catalog
from trnbench.facts.units import Dimension, parse
from trnbench.predict.setup import family_of
from trnbench.verbs.calibrate.run import calibrate

SPECS = built_in_folder() / "specs"
PUBLISHED = built_in_folder() / "workloads" / "published"
DENSE_STACKS = (
    *("training-megatron-a100", "training-llm-foundry-ampere", "training-llm-foundry-hopper"),
    *("training-nemo-hopper", "training-megatron-blackwell"),
)


pytestmark = [pytest.mark.slow, TOGETHER]


def fitted_by_make(chips):
    """Return what `make calibration` writes: its commands, GPUs' first."""
    recipe = (SPECS.parent / "Makefile").read_text().partition("\ncalibration:")[2]
    commands = recipe.partition("\n\n")[0].replace("\\\n", " ").split("@$(BIN)/trnbench ")[1:]
    words = shlex.split(commands[("gpu", "trainium").index(chips)])
    also = words[words.index("--also") + 1].split(",") if "--also" in words else ()
    return calibrate(
        [SPECS.parent / word for word in words if word.endswith(".csv")],
        also=also,
        all_rows="--all-rows" in words,
        date=datetime.date.fromisoformat(words[words.index("--date") + 1]),
        catalog=open_catalog([SPECS / "priors"]),
    )


@pytest.fixture(scope="module")
def gpu():
    return fitted_by_make("gpu")


@pytest.fixture(scope="module")
def trainium():
    return fitted_by_make("trainium")


def leaves(table, path=""):
    """Yield (key path, number, or whatever else it is) of all but notes and correlations.

    Correlations are rounded to two digits and cut off below 0.2, which machines may not agree on.
    """
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}.{key}")
        elif key not in ("note", "correlations"):
            quantity = path and key in ("value", "low", "high") and isinstance(value, str)
            unit = Dimension.BYTES if path.startswith(".memory.") else Dimension.SECONDS
            # A habit's value is a word ("fp8"), no quantity.
            quantity = quantity and not path.startswith(".habits")
            yield f"{path}.{key}", parse(value, unit) if quantity else value


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@pytest.mark.parametrize("chips", sampled(SETS, ()))
def test_the_shipped_calibrations_are_current(chips, request):
    found = request.getfixturevalue(chips)
    for name in found.names():
        shipped = dict(leaves(tomli.loads((SPECS / "calibration" / f"{name}.toml").read_text())))
        made = dict(leaves(tomli.loads(found.text(name))))
        numbers = {key: value for key, value in shipped.items() if is_number(value)}
        again = {key: made.pop(key) for key in numbers}
        # Errors are rounded, and tell no more than that.
        errors = {key: numbers.pop(key) for key in [*numbers] if key.startswith(".fit.")}
        assert {key: again.pop(key) for key in errors} == pytest.approx(errors, rel=0.05)
        assert again == pytest.approx(numbers, rel=5e-3), f"{name}: run `make calibration`"
        assert made == {key: value for key, value in shipped.items() if not is_number(value)}


@pytest.mark.soak
def test_every_row_marked_fit_was_fitted(gpu):
    assert gpu.unused == ()


@pytest.mark.soak
def test_trainium_rows_are_met(trainium):
    of = {
        kind: [row for row in trainium.calibration.rows if row.row.id.startswith(f"ndoc-{kind}")]
        for kind in ("GPT3", "Llama", "BERT", "ViT")
    }
    llm = of["GPT3"] + of["Llama"]
    assert mean_error(row.fitted for row in llm) <= 0.06
    assert mean_error(row.without_configuration for row in llm) <= 0.08
    assert mean_error(row.fitted for row in of["BERT"]) <= 0.08
    assert mean_error(row.fitted for row in of["ViT"]) <= 0.15


@pytest.mark.soak
def test_rows_of_2026_are_met_with_their_device_times(trainium):
    rows = [row for row in trainium.calibration.rows if row.row.id.startswith(("trnx", "axlearn"))]
    of = {part: [row for row in rows if row.row.quantity == part] for part in ("step", "device")}
    assert (len(of["step"]), len(of["device"])) == (10, 5)
    assert mean_error(row.fitted for row in of["step"]) <= 0.06
    assert mean_error(row.without_configuration for row in of["step"]) <= 0.17
    assert mean_error(row.fitted for row in of["device"]) <= 0.06


@pytest.mark.soak
def test_gpu_rows_are_met(gpu):
    steps = [one for one in gpu.calibration.rows if one.row.quantity == "step"]
    tuned = [one for one in steps if one.row.stack in DENSE_STACKS]
    assert mean_error(one.fitted for one in tuned if not one.row.small) <= 0.07
    kernels = [one for one in gpu.calibration.rows if one.row.quantity == KERNEL]
    assert mean_error(one.fitted for one in kernels) <= 0.08


@pytest.mark.soak
@pytest.mark.parametrize(
    ("stack", "small", "most"),
    [("megatron-a100", True, 0.20), ("hf-ampere", False, 0.11), ("internevo-ampere", False, 0.10)],
)
def test_families_of_2026_are_met_by_fits_without_their_configuration(gpu, stack, small, most):
    steps = [one for one in gpu.calibration.rows if one.row.stack == f"training-{stack}"]
    left_out = [one.without_configuration for one in steps if one.row.small or not small]
    assert len(left_out) >= 10
    assert mean_error(left_out) <= most


@pytest.mark.soak
def test_releases_are_told_by_every_stack_of_their_chip(trainium):
    parameters = trainium.calibration.parameters
    of_releases = [one for one in parameters if "releases" in one.parameter.key]
    assert {one.parameter.owner for one in of_releases} == {"chip-trainium1"}
    # Software of 2022 was slower than that of 2025.
    effects = {one.parameter.key: one.value for one in of_releases}
    assert effects['chip.releases."2.5"'] > 1.08 > effects['chip.releases."2.24"']


@pytest.mark.soak
def test_what_rows_do_not_tell_is_not_called_derived(gpu):
    made = {name: dict(leaves(tomli.loads(gpu.text(name)))) for name in gpu.names()}
    seen = {True: 0, False: 0}
    for one in gpu.calibration.parameters:
        kind = made.get(one.parameter.owner, {}).get(f".{one.parameter.key}.kind")
        if kind is not None:
            seen[one.told] += 1
            assert (kind == "derived") == one.told, one.parameter
    assert min(seen.values()) > 5


def test_unseen_rows_of_fitted_gpu_stacks_are_met():
    unseen = [row for row in scored()["gpu"].rows if row.within_stack and not row.fitted]
    # Six of them are small tests with virtual stages whose number their files leave in doubt.
    assert fmean(abs(row.error) for row in unseen if row.error is not None) <= 0.075


def test_intervals_hold_what_they_promise():
    unseen = [
        row
        for section in scored().values()
        for row in section.rows
        if row.within_stack and not row.fitted and row.error is not None
    ]
    assert 0.70 <= fmean(row.time.covered for row in unseen) <= 0.93
    assert median((row.high_s - row.low_s) / 2 / row.predicted_s for row in unseen) <= 0.15


def test_nothing_fitted_is_near_already():
    catalog = open_catalog([SPECS / "priors"])
    reader, predictor = Reader(catalog), Predictor()
    errors = []
    for case in reader.cases(read_evidence(PUBLISHED / "gpu_steps.csv")):
        if isinstance(case, str) or not case.setup.own_stack:
            continue
        setup = case.setup
        if setup.stack.name in DENSE_STACKS and family_of(setup.model) == "decoder":
            try:
                times_s = predictor.prepared(case).times_s(setup.efficiency)
            except RowFault:
                continue
            assert case.step.step_time_s is not None
            errors.append(abs(float(times_s.min()) / case.step.step_time_s - 1))
    assert len(errors) > 300
    assert fmean(errors) <= 0.11


@pytest.mark.soak
def test_the_shipped_population_is_what_make_writes(tmp_path):
    gpus = ("gpu_steps", "families_2026", "hf_one_gpu", "nanotron_steps")
    names = (*gpus, "trainium_steps", "trainium_steps_2026")
    made = tmp_path / "made.toml"
    write_population([*(str(PUBLISHED / f"{name}.csv") for name in names), "2026-11-27", str(made)])
    shipped = SPECS / "calibration" / "population-of-software.toml"
    told, again = (dict(leaves(tomli.loads(one.read_text()))) for one in (shipped, made))
    numbers = {key: value for key, value in told.items() if isinstance(value, float)}
    assert {key: again.pop(key) for key in numbers} == pytest.approx(numbers, rel=2e-2)
    assert again == {key: value for key, value in told.items() if key not in numbers}
