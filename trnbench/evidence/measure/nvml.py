"""What an NVIDIA GPU says of itself, by the driver's management library.

The library is called directly: a tool's process would take longer than the measured work, and the
state under load is gone when it answers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

Library = Any
"""The loaded library: functions by name."""
_LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK = 1
_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "temperature",
    0x40: "hardware temperature",
    0x80: "power brake",
}
"""Bits of the reasons for a lower clock; idle and set clocks are none."""
_TEXT_BYTES = 96


class Nvml:
    """The first GPU of the machine."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._device = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self._device))

    def _call(self, name: str, *arguments: object) -> None:
        if (code := getattr(self._library, name)(*arguments)) != 0:
            raise OSError(f"{name} answered {code}")

    def _number(self, name: str, *arguments: object, wide: bool = False) -> int | None:
        """A number that a function of the device writes; None where it is not supported."""
        value = ctypes.c_ulonglong() if wide else ctypes.c_uint()
        try:
            self._call(name, self._device, *arguments, ctypes.byref(value))
        except (OSError, AttributeError):
            return None
        return int(value.value)

    def fixed(self) -> dict[str, str]:
        """Driver, limit of power, and memory protection, by column."""
        driver = ctypes.create_string_buffer(_TEXT_BYTES)
        self._call("nvmlSystemGetDriverVersion", driver, _TEXT_BYTES)
        cells = {"driver": driver.value.decode(errors="replace")}
        if (milliwatts := self._number("nvmlDeviceGetEnforcedPowerLimit")) is not None:
            cells["power_limit"] = f"{milliwatts / 1e3:.0f} W"
        now, pending = ctypes.c_uint(), ctypes.c_uint()
        try:
            self._call(
                "nvmlDeviceGetEccMode", self._device, ctypes.byref(now), ctypes.byref(pending)
            )
            cells["ecc"] = "on" if now.value else "off"
        except (OSError, AttributeError):
            pass
        return cells

    def working(self) -> Mapping[str, str]:
        """Clock now, and the reasons why it is no higher, by column."""
        cells = {}
        now = self._number("nvmlDeviceGetClockInfo", _SM_CLOCK)
        most = self._number("nvmlDeviceGetMaxClockInfo", _SM_CLOCK)
        if now is not None:
            cells["clock"] = f"{now} MHz" + (f" of {most} MHz" if most else "")
        bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", wide=True)
        if bits is not None:
            reasons = [text for bit, text in _REASONS.items() if bits & bit]
            cells["throttled"] = " and ".join(reasons) or "no"
        return cells


def opened(library: Library | None = None) -> Nvml | None:
    """The first GPU; None where the library is missing or refuses."""
    try:
        return Nvml(library or ctypes.CDLL(_LIBRARY))
    except (OSError, AttributeError):
        return None
