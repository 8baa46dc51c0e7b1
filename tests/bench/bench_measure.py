"""How near training steps on this machine come to what its other measured rows predict of them.

Needs JAX and some minutes; by the clock on the wall, and by processor time where devices share a
host, which the load of others lengthens little.
"""

from __future__ import annotations

from statistics import median

from tests.bench.figure import show
from trnbench.verbs.measure.run import measure

BAR = 0.25
DEVICES = (2, 8)


def main() -> None:
    """Print the error of the training steps of three shapes, end to end."""
    for devices in DEVICES:
        verdict = measure("all", host_devices=devices, budget="10m").verdict
        if verdict is None:
            print(f"{devices} devices: no training step was measured")
            continue
        for clock, steps in (("wall", verdict.wall), ("processor", verdict.processor)):
            errors = [abs(step.error) for step in steps if step.error is not None]
            if errors:
                what = f"steps from kernels, {devices} devices, by {clock} clock"
                show(what, median(errors), "median error", BAR, "at most")


if __name__ == "__main__":
    main()
