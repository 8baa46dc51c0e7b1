"""What backends call their devices decides what is asked of them; a fake one stands for each."""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import pytest

from trnbench.errors import EnvironmentFault, InputError
from trnbench.evidence.measure import nvml
from trnbench.evidence.measure.device import (
    capabilities,
    host_flags,
    kept_variables,
    open_devices,
    peak_memory_bytes,
)
from trnbench.evidence.measure.loops import AllDevices, Repeats
from trnbench.evidence.measure.suites import decoder_sizes, suite_for, with_given
from trnbench.evidence.measure.worker import WorkRequest, sum_bits, tasks_of


@dataclass
class FakeDevice:
    platform: str
    device_kind: str
    told: dict = field(default_factory=dict)

    def memory_stats(self):
        return self.told or None


def can(platform, kind, count=8, environment=None, **told):
    devices = [FakeDevice(platform, kind, told) for _ in range(count)]
    return capabilities(devices, environment or {})


def test_neuron_cores_compile_slowly_and_have_no_fused_kernel():
    found = can("neuron", "NC_v3", 64, {"NEURON_LOGICAL_NC_CONFIG": "2"})
    assert (found.backend, found.chip, found.logical_size) == ("neuron", "trainium2", 2)
    assert found.fused_attention is None
    assert found.formats[0] == "bf16"
    assert "fp8_e4m3" in found.formats, "its FP8 is IEEE-like"
    gpu = can("gpu", "NVIDIA H100 80GB HBM3")
    for name in ("quick", "full"):
        few, many = suite_for(found, name), suite_for(gpu, name)
        assert len(few.message_bytes) < len(many.message_bytes) / 2
    shapes = {case.shape for case in suite_for(found, "full").products}
    assert shapes < {case.shape for case in suite_for(gpu, "full").products}


def test_one_device_exchanges_nothing_and_many_exchange_in_pairs_and_all_together():
    assert suite_for(can("gpu", "NVIDIA H200", 1), "full").groups == ()
    assert suite_for(can("gpu", "NVIDIA H200", 2), "full").groups == (2,)
    assert suite_for(can("gpu", "NVIDIA H200", 8), "full").groups == (2, 4, 8)


def test_what_a_spec_needs_is_measured_first_and_slow_formats_last():
    gpu = can("gpu", "NVIDIA H100 80GB HBM3", 1)
    machine = AllDevices(jax=None, devices=[None], can=gpu, rule=Repeats())
    request = WorkRequest(
        kinds=("matrix", "collective", "train"),
        suite="full",
        device="cuda",
        host_devices=8,
        budget_s=60,
        instance=None,
        seed=0,
    )
    names = [what for what, _ in tasks_of(machine, suite_for(gpu, "full"), request)]
    first = next(i for i, name in enumerate(names) if "steps of a decoder" in name)
    before = names[:first]
    assert any("bf16" in name for name in before)
    assert any("streams" in name for name in before)
    assert not any(name.startswith(("fp8", "fp16", "fp32")) for name in before)
    assert "fp8_e4m3fn" in next(name for name in names if name.startswith("fp"))
    assert "fp32" in [name for name in names if name.startswith(("bf16", "fp"))][-1]
    quick = suite_for(gpu, "quick").products
    assert sum(case.format == "fp32" for case in quick) == 1


def test_a_chip_s_sums_of_narrow_products_are_in_its_file():
    assert [sum_bits(name) for name in ("h100", "h200", "a100-80gb", None)] == [14, 14, None, None]


class FakeLibrary:
    """A management library that knows some functions, and refuses others."""

    def __init__(self, **numbers):
        self.numbers = numbers

    def __getattr__(self, name):
        def call(*arguments):
            if name in ("nvmlInit_v2", "nvmlDeviceGetHandleByIndex_v2"):
                return 0
            if name == "nvmlSystemGetDriverVersion":
                arguments[0].value = b"580.1"
                return 0
            if name not in self.numbers:
                return 3
            values = self.numbers[name]
            for place, value in zip(arguments[-len(values) :], values, strict=True):
                place._obj.value = value
            return 0

        return call


def test_a_gpu_tells_its_clock_and_why_it_is_no_higher():
    gpu = nvml.opened(
        FakeLibrary(
            nvmlDeviceGetClockInfo=[1560],
            nvmlDeviceGetMaxClockInfo=[1980],
            nvmlDeviceGetCurrentClocksThrottleReasons=[0x4 | 0x20],
            nvmlDeviceGetEnforcedPowerLimit=[700000],
        )
    )
    assert gpu is not None
    assert gpu.working() == {
        "clock": "1560 MHz of 1980 MHz",
        "throttled": "power cap and temperature",
    }
    assert gpu.fixed() == {"driver": "580.1", "power_limit": "700 W"}, "its ECC is not told"
    silent = nvml.opened(FakeLibrary())
    assert silent is not None
    assert silent.working() == {}


@pytest.mark.parametrize(
    ("platform", "kind", "chip"),
    [
        ("neuron", "trn1", "trainium1"),
        ("gpu", "NVIDIA H100 80GB HBM3", "h100"),
        ("gpu", "NVIDIA H200", "h200"),
        ("gpu", "NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("gpu", "NVIDIA GeForce RTX 4090", None),
        ("cpu", "cpu", None),
    ],
)
def test_a_device_is_known_by_its_name(platform, kind, chip):
    assert can(platform, kind).chip == chip


def test_devices_of_a_host_share_it_and_memory_is_what_the_backend_tells():
    assert can("cpu", "cpu").shares_host
    gpu = can("gpu", "NVIDIA H200", bytes_limit=100, peak_bytes_in_use=7)
    assert (gpu.memory_bytes, gpu.fused_attention, gpu.shares_host) == (100.0, "cudnn", False)
    told = [FakeDevice("gpu", "x", {"peak_bytes_in_use": n}) for n in (3, 9)]
    assert peak_memory_bytes(told) == 9.0
    assert peak_memory_bytes([FakeDevice("cpu", "cpu")]) is None


def test_a_backend_that_is_not_measured_is_refused_by_name():
    with pytest.raises(EnvironmentFault, match="JAX runs on 'tpu'"):
        can("tpu", "TPU v5")


def test_host_devices_replace_what_was_set_and_keep_other_flags():
    name = "--xla_force_host_platform_device_count"
    level = "--xla_gpu_autotune_level"
    assert host_flags(f"--a=1 {name}=3", 8) == f"--a=1 {level}=3 {name}=8"
    assert host_flags(f"{level}=4", 8) == f"{level}=4 {name}=8", "the user's own level stays"
    assert kept_variables({"XLA_FLAGS": "x", "HOME": "/"}) == "XLA_FLAGS=x"


def test_without_jax_the_exact_install_line_is_given(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jax", None)
    for name in ("XLA_FLAGS", "JAX_PLATFORMS"):
        monkeypatch.setenv(name, "")
    with pytest.raises(EnvironmentFault, match="JAX is not installed") as refused:
        open_devices("cuda", 8)
    assert refused.value.hint == "install it: pip install 'trnbench[measure]' 'jax[cuda13]'"


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("tp=3", "tp 3 does not divide devices 8"),
        ("tp=8", "tp 8 does not divide heads 4"),
        ("heads=3", "hidden 256 is not an even number for each of 3 heads"),
    ],
)
def test_a_decoder_that_does_not_lie_on_the_devices_is_refused(sizes, said):
    host = can("cpu", "cpu")
    with pytest.raises(InputError, match=said):
        with_given(suite_for(host, "quick"), [decoder_sizes(sizes)], host)


def test_given_decoders_take_the_place_of_the_suite_s_and_keep_the_rest():
    host = can("cpu", "cpu")
    suite = suite_for(host, "quick")
    assert with_given(suite, [], host) is suite
    (case,) = with_given(suite, [decoder_sizes("layers=7,tp=2,sequence=1k")], host).decoders
    first = suite.decoders[0]
    assert (case.layers, case.tp, case.dp, case.sequence) == (7, 2, 4, 1024)
    assert (case.hidden, case.precision) == (first.hidden, first.precision)


class FakeJax:
    numpy = ml_dtypes  # it has some types and not others, as releases of JAX have


def test_what_does_not_fit_in_memory_is_refused_before_it_is_allocated():
    gpu = can("gpu", "NVIDIA H200", bytes_limit=1000)
    machine = AllDevices(jax=FakeJax, devices=[None, None], can=gpu, rule=Repeats())
    machine.check_memory(800, "a product")
    with pytest.raises(EnvironmentFault, match="a product needs 801 B of memory, 800 B of"):
        machine.check_memory(801, "a product")
    host = AllDevices(jax=FakeJax, devices=[None, None], can=can("cpu", "cpu", 2), rule=Repeats())
    with pytest.raises(EnvironmentFault, match="a stream needs"):
        host.check_memory(2.0**60, "a stream")


def test_a_format_that_this_jax_lacks_is_said():
    gpu = can("gpu", "NVIDIA H200")
    machine = AllDevices(jax=FakeJax, devices=[None], can=gpu, rule=Repeats())
    assert machine.dtype("bf16") is ml_dtypes.bfloat16
    with pytest.raises(EnvironmentFault, match="this JAX has no numbers of type float16"):
        machine.dtype("fp16")
