"""Question of `measure`: kinds of work in a suite, on which devices, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from trnbench.errors import InputError
from trnbench.evidence.measure.device import DeviceChoice
from trnbench.evidence.measure.suites import KINDS, SuiteName
from trnbench.facts import parsing
from trnbench.facts.records import asdict
from trnbench.verbs.asking.question import Question, option

if TYPE_CHECKING:
    from trnbench.evidence.measure.suites import DecoderSizes
    from trnbench.evidence.measure.worker import WorkRequest

MeasureKind = Literal["all", "matrix", "collective", "train", "steps"]
TimedFramework = Literal["torch", "transformers"]
_HOST_DEVICES = 8


def _decoder(text: str) -> DecoderSizes:
    from trnbench.evidence.measure.suites import decoder_sizes

    return decoder_sizes(text)


def _decoder_text(sizes: Mapping[str, int | str]) -> str:
    return ",".join(f"{name.replace('_', '-')}={size}" for name, size in sizes.items())


def _budget_text(budget_s: float) -> str:
    minutes = budget_s / 60
    return f"{int(minutes)}m" if minutes == int(minutes) else parsing.time_text(budget_s)


class MeasureQuestion(Question):
    """Work of a kind, or of all; `name`: what the machine is called in the rows.

    Unasked it is host-cpu, or called after its chip.
    """

    kind: MeasureKind = option(
        "all, matrix (products, streams, launches), collective, train (small decoders); or steps "
        "of PyTorch on one device.",
        default="all",
        metavar="KIND",
        argument=True,
    )
    suite: SuiteName = option(
        "quick: minutes; full: more sizes; default: quick.", default="quick", metavar="<str>"
    )
    device: DeviceChoice = option(
        "auto, cpu, cuda or neuron: what JAX is to run on.", default="auto", metavar="<str>"
    )
    host_devices: int = option(
        "Virtual devices on a CPU-only host.",
        default=_HOST_DEVICES,
        read=lambda what: parsing.whole(what, most=512),
        metavar="N",
    )
    budget_s: float = option(
        "Time budget: no case starts after it: 90s, 5m.",
        default=300.0,
        read=parsing.duration,
        write=_budget_text,
    )
    name: str | None = option(
        "Name of the machine in the rows.", parse=parsing.file_name, metavar="NAME"
    )
    seed: int = option(
        "Seed of the numbers.",
        default=0,
        read=lambda what: parsing.whole(what, least=0),
        bounds=(0, None),
    )
    decoders: tuple[DecoderSizes, ...] = option(
        "Train this in place of the suite's three: layers, hidden, heads, ffn, vocab, "
        "sequence, micro-batch, micro-batches, tp, precision, attention; may be repeated.",
        name="decoder",
        parse=_decoder,
        write=_decoder_text,
        metavar="NAME=VALUE,...",
        several="repeated",
    )

    framework: TimedFramework | None = option(
        "With steps: torch or transformers; default: torch.", default=None, metavar="<str>"
    )

    def __post_init__(self) -> None:
        """Refuse options of other kinds of work."""
        if self.framework is not None and self.kind != "steps":
            raise InputError("--framework goes with measure steps")
        if self.kind == "steps" and self.host_devices != _HOST_DEVICES:
            raise InputError("--host-devices goes with JAX; measure steps uses one device")
        if self.decoders and self.kind not in ("all", "train"):
            raise InputError(
                f"--decoder says what is trained: measure all or train, not {self.kind}"
            )

    @property
    def work(self) -> WorkRequest:
        """The work as the measuring process is told it."""
        from trnbench.evidence.measure.worker import WorkRequest

        return WorkRequest(
            kinds=KINDS if self.kind == "all" else (self.kind,),
            suite=self.suite,
            device=self.device,
            host_devices=self.host_devices,
            budget_s=self.budget_s,
            instance=self.name,
            seed=self.seed,
            decoders=self.decoders,
        )

    @property
    def script(self) -> list[str]:
        """Arguments of the script that times steps of PyTorch."""
        return [
            *("--framework", self.framework or "torch", "--device", self.device),
            *("--suite", self.suite, "--budget", str(self.budget_s), "--seed", str(self.seed)),
        ]

    def inputs(self) -> dict[str, object]:
        given = {} if self.framework is None else {"framework": self.framework}
        return {**asdict(self.work), **given}


class MeasureShowing(Question):
    """Folder of the machine's specs; `quick` says the suite that is usual."""

    write_spec: str | None = option(
        "Write the machine's chip, instance and calibrations into your own data.",
        parse=parsing.file_name,
        metavar="NAME",
    )
    force: bool = option("With --write-spec: replace your own of that name.")
    quick: bool = option("Short for --suite quick.")
    script: bool = option("With steps: print the script that times them, and measure nothing.")
