"""Monitors and profilers of devices: how busy, how much memory, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trnbench.errors import DataFileError
from trnbench.evidence.readers.devices import read_devices

SAMPLES = Path(__file__).parents[2] / "samples"
SMI = "timestamp, index, utilization.gpu [%], memory.used [MiB]\n"


def read(tmp_path, text):
    path = tmp_path / "monitor.txt"
    path.write_text(text)
    return read_devices(path)


def report(busy, held=300):
    cores = {str(i): {"neuroncore_utilization": one} for i, one in enumerate(busy)}
    memory = {"neuroncore_memory_usage": {"0": {"tensors": held, "constants": 100}}}
    used = {"neuron_runtime_used_bytes": {"usage_breakdown": memory}}
    told = {
        "neuroncore_counters": {"neuroncores_in_use": cores},
        "memory_used": used,
        "execution_stats": {"error_summary": {"generic": 1, "hardware": 0}},
    }
    return json.dumps({"neuron_runtime_data": [{"pid": 1, "report": told}]}) + "\n"


def test_neuron_monitor(tmp_path):
    idle = '{"neuron_runtime_data": []}\n'
    found = read(
        tmp_path, idle + report([40, 60]) + report([80, 100], held=900) + report([70, 70]) + idle
    )
    assert (found.tool, found.samples, found.devices, found.errors) == ("neuron-monitor", 5, 2, 3)
    assert found.busy == pytest.approx(0.7)
    assert found.memory_peak_bytes == 1000
    sample = read_devices(SAMPLES / "neuron_monitor.jsonl")
    assert (sample.samples, sample.busy, sample.memory_peak_bytes) == (3, 0.425, 600)


def test_a_stream_that_was_cut_off_is_read_up_to_there(tmp_path):
    found = read(tmp_path, report([50]) * 3 + report([50])[:90])
    assert (found.samples, found.unread) == (3, 1)


def test_a_profile_says_fractions_and_calls_them_percent():
    found = read_devices(SAMPLES / "neuron_explorer_summary.json")
    assert (found.tool, found.run_s, found.busy) == ("neuron-profile", 3.132, 0.4017)
    assert dict(found.shares)["tensor engine"] == 0.1806


def test_nvidia_smi(tmp_path):
    text = SMI + "".join(
        f"2026/11/23, {i % 2}, {60 + 20 * (i % 2)} %, {1024 + i} MiB\n" for i in range(8)
    )
    found = read(tmp_path, text)
    assert (found.devices, found.samples, found.busy) == (2, 8, pytest.approx(0.7))
    assert found.memory_peak_bytes == 1031 * 2**20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            report([50]) + "{broken\n" * 2,
            "2 of 3 samples of neuron-monitor cannot be read, first line 2",
        ),
        (report([5000]), "1 of 1 samples"),
        ('{"neuron_runtime_data": []}\n', "no sample in which a device was in use"),
        (SMI + "x, 0, [N/A], 3 MiB\n", "1 of 1 samples of nvidia-smi cannot be read, first line 2"),
        (
            '{"a": {"total_time": 1.0, "tensor_engine_active_time_percent": 18.06}}',
            "18.06 is not a number between",
        ),
        ('{"a": {"total_time": 1.0, "x_active_time": 18', "not valid JSON"),
        ("step time: 1 s\n", "is of no known monitor"),
    ],
)
def test_half_understood_monitors_are_refused(tmp_path, text, said):
    with pytest.raises(DataFileError, match=said):
        read(tmp_path, text)
