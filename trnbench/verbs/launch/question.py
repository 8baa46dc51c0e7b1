"""Question of `launch`: a model on a cluster, what starts it there, and where files go."""

from __future__ import annotations

import datetime
from pathlib import Path

from trnbench.errors import InputError, UnknownNameError, listed
from trnbench.facts import parsing
from trnbench.facts.catalog.search import CONFIGURATION, Catalog
from trnbench.facts.workload.choices import MachinesFrom
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.verbs.asking.knobs import KNOB_OPTIONS
from trnbench.verbs.asking.option import Given
from trnbench.verbs.asking.question import Question, group, option


class LaunchQuestion(Question):
    """A step to be started; what its layout leaves open is chosen.

    `checkpoint_interval_s` replaces the best, `tokens` or `steps` say how long the run is. Where
    `model` is an answer in JSON, its row says what is not given here. `date` is written into the
    files.
    """

    model: str = option(
        "A model by name, org/Name or config.json; or an answer of `plan --json`, which says all "
        "but --with.",
        default="",
        metavar="MODEL|PLAN.json",
        argument=True,
        completes=("models",),
    )
    places: tuple[tuple[str, int], ...] = option(
        "Where.",
        name="on",
        read=parsing.place,
        write=lambda place: parsing.place_text(*place),
        metavar="INSTANCE[:NODES]",
        completes=("instances",),
    )
    stack: str = option(
        "Framework: nxdt, ...: see --list; or a training stack of one; default: the usual one.",
        default="",
        metavar="FRAMEWORK",
        completes=("stacks",),
    )
    scheduler: str = option(
        "torchrun, slurm, ...: see --list.", default="", name="with", metavar="SCHEDULER"
    )
    layout: PartialLayout = group(KNOB_OPTIONS)
    logical_size: int | None = option(
        "Logical core size on Trainium2 and 3: 1 or 2; default: 2.", name="lnc", read=parsing.whole
    )
    purchase: MachinesFrom | None = option(
        "Where machines come from; default: on demand where they are sold so.",
        metavar="on-demand|capacity-block",
    )
    tokens: float | None = option("Length of the run: 2T.", read=parsing.count)
    steps: int | None = option(
        "Length of the run in steps; default: a value to change, 100 at first.", read=parsing.whole
    )
    checkpoint_interval_s: float | None = option(
        "Between checkpoints: 30 min; default: the best.", read=parsing.duration
    )
    row: int = option(
        "Of PLAN.json: which row; default: the first.", default=1, metavar="N", bounds=(1, None)
    )
    date: datetime.date = option(
        "The day that the files tell; default: today.",
        factory=datetime.date.today,
        read=parsing.date,
        shown=False,
    )

    @property
    def instance(self) -> str:
        return self.places[0][0]

    @property
    def nodes(self) -> int:
        return self.places[0][1]

    @classmethod
    def filled(cls, given: Given, catalog: Catalog) -> Given:
        """Return the options with those of a plan's row; what is given wins, but for the place."""
        file = str(given.get("model") or "")
        if not file.endswith(".json") or Path(file).name == CONFIGURATION:
            return given
        if given.get("on") is not None:
            raise InputError("a plan says where: leave out --on")
        from trnbench.verbs.launch.rows import options_of_answer

        planned = options_of_answer(catalog, Path(given["model"]), given.get("row") or 1)
        said = {name: value for name, value in given.items() if value is not None}
        said.pop("row", None)
        if "steps" in said:
            planned["tokens"] = None
        return {**planned, **said, "model": planned["model"]}

    def settled(self, catalog: Catalog) -> LaunchQuestion:
        """Return the question; refuse one that does not say what runs where, or says it twice."""
        said = {"MODEL": self.model, "--on": self.places, "--with": self.scheduler}
        if lacks := [name for name, value in said.items() if not value]:
            raise InputError(
                f"launch needs {listed(lacks)}: MODEL --on INSTANCE:NODES --with SCHEDULER",
                hint="`trnbench launch --list` shows frameworks and schedulers",
            )
        from trnbench.launch.catalogue import SCHEDULERS, usual_framework

        if self.scheduler not in SCHEDULERS:
            raise UnknownNameError("scheduler", self.scheduler, SCHEDULERS)
        if self.tokens is not None and self.steps is not None:
            raise InputError("--tokens and --steps both say how long the run is; give one of them")
        if len(self.places) != 1:
            raise InputError("--on: a job runs on one cluster, INSTANCE:NODES")
        return self if self.stack else self.but(stack=usual_framework(catalog, self.instance))

    def inputs(self) -> dict[str, object]:
        """Return the question as plain data, with every knob of its layout."""
        return {
            "model": self.model,
            "on": f"{self.instance}:{self.nodes}",
            "stack": self.stack,
            "with": self.scheduler,
            **self.layout.plain,
            **self.layout.said,
            "lnc": self.logical_size,
            "purchase": self.purchase,
            "tokens": self.tokens,
            "steps": self.steps,
            "checkpoint_interval_s": self.checkpoint_interval_s,
        }


class LaunchShowing(Question):
    """Choice between a list of frameworks and schedulers, and files in a folder."""

    listed: bool = option("Tell which frameworks and schedulers there are, and where.", name="list")
    into: Path | None = option(
        "Write the files there; without it, say what would be written.",
        name="output",
        short="-o",
        metavar="FOLDER",
    )
    force: bool = option("Replace files of a folder that has some.")
