"""What `workload` is asked: which files, or which configuration becomes a model."""

from __future__ import annotations

from pathlib import Path

from trnbench.errors import InputError
from trnbench.facts.catalog.search import WORKLOAD_SECTIONS
from trnbench.verbs.asking.question import Question, option

STDOUT = "-"


class WorkloadListQuestion(Question):
    """The models and suites of a kind, or of all kinds."""

    kind: str | None = option(
        f"One of {', '.join(WORKLOAD_SECTIONS)}; default: all.",
        default=None,
        metavar="KIND",
        argument=True,
        completes=("kinds of workloads",),
    )


class WorkloadShowQuestion(Question):
    """A model or suite by its name, or `section/name`."""

    name: str = option(
        "",
        default="",
        metavar="NAME",
        argument=True,
        required=True,
        completes=("models", "matrix", "collective", "training"),
    )


class ImportQuestion(Question):
    """A Hugging Face configuration, read as a model of a family.

    `depths`: modules that predict further tokens are taken in. `output` is a file, or - for stdout.
    """

    config: Path = option(
        "A config.json, or its folder.",
        default=Path(),
        metavar="CONFIG_JSON|FOLDER",
        argument=True,
        required=True,
    )
    name: str | None = option(
        "Name of the model; default: the output's stem, or the folder.", default=None
    )
    family: str | None = option(
        "Read it as this family, whatever it says.", default=None, name="as", metavar="FAMILY"
    )
    depths: bool = option("Take in modules of multi-token prediction.", default=False, name="mtp")
    output: str = option("Write to FILE; - is stdout.", default=STDOUT, metavar="FILE", short="-o")
    save: bool = option("Keep it among your own models, for all verbs.", default=False)

    def __post_init__(self) -> None:
        """Refuse two places, and a file that is not named for its model."""
        if self.save and self.output != STDOUT:
            raise InputError("--save and --output both say where the model goes; give one")
        if self.output.endswith(".toml") and Path(self.output).stem != self.model:
            raise InputError(
                f"--name {self.model} contradicts --output {self.output}: a model file has its "
                "model's name"
            )

    @property
    def model(self) -> str | None:
        """The name that the model is to have; None for that of its folder."""
        return self.name or (Path(self.output).stem if self.output != STDOUT else None)
