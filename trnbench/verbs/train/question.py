"""Question of `train`: models on clusters, in layouts given or left open, and how shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.facts.parsing import number_text, place_text
from trnbench.facts.records import asdict
from trnbench.facts.units import Dimension
from trnbench.facts.workload.layout import KNOBS
from trnbench.facts.workload.partial_layout import PartialLayout, TrainCase
from trnbench.predict.settled import Prefer
from trnbench.show.row import cells
from trnbench.verbs.asking.knobs import KNOB_OPTIONS, LAYOUT, knob_texts
from trnbench.verbs.asking.option import Given
from trnbench.verbs.asking.question import Question, group, option
from trnbench.verbs.asking.run_parts import LENGTH_IF_ANY, Part
from trnbench.verbs.asking.shared_options import engine_option
from trnbench.verbs.quotes.buying import Buying
from trnbench.verbs.quotes.question import PREFER, RunRequest, StackChoice

if TYPE_CHECKING:
    from trnbench.engines.emulate.schedule.times import Straggler
    from trnbench.facts.catalog.search import Catalog
    from trnbench.predict.step import Playing

SAVE_EVERY = 10
TASK = "markov"
"""Of runs with real numbers."""
FUNCTIONAL = ("functional",)
MEMORY: Any = option("Show the memory per rank of the worst stage over the step, and its peak.")
STEPS: Any = option(
    "With --engine functional: steps to train; default: 100.", default=100, read=parsing.whole
)
RESUME: Any = option(
    "With --engine functional: keep checkpoints here, continue from the newest.",
    name="resume",
    metavar="DIR",
)
_REAL = ("steps", "resume")
"""Options of a run with real numbers alone."""
_STRAGGLER = re.compile(r"(\d{1,6})=(.+)")


def _straggler(text: str) -> Straggler:
    match = _STRAGGLER.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--straggler: cannot read {text!r}; write STAGE=FACTOR, such as 0=1.2")
    factor = parsing.quantity("--straggler", Dimension.RATIO)(match[2])
    from trnbench.engines.emulate.schedule.times import Straggler

    return Straggler(stage=int(match[1]), factor=factor)


def _versus(text: str) -> PartialLayout:
    """The knobs of a text KNOB=VALUE,..."""
    return KNOB_OPTIONS.value(knob_texts("--vs", text))


def _knobs_text(layout: PartialLayout) -> str:
    texts = {True: "on", False: "off"}
    said = layout.said.items()
    return ",".join(f"{name}={texts[one] if isinstance(one, bool) else one}" for name, one in said)


class FunctionalQuestion(Question):
    """A model to train with real numbers, and the cluster on which it is modelled.

    Open knobs take simple defaults. With a folder the run keeps checkpoints there, and goes on from
    the newest; one is written every `save_every` steps.
    """

    model: str = option("Model name (trnbench workload list models).", argument=True, required=True)
    place: tuple[str, int] = option(
        "Cluster on which it is modelled, e.g. trn1.32xlarge.",
        default=("", 1),
        name="on",
        required=True,
        read=parsing.place,
        write=lambda place: place_text(*place),
        several="one text",
    )
    layout: PartialLayout = group(KNOB_OPTIONS)
    steps: int = STEPS
    folder: Path | None = RESUME
    seed: int = option("Seed of weights, text and rounding.", default=0)
    software: StackChoice = group(StackChoice)
    save_every: int = SAVE_EVERY

    def __post_init__(self) -> None:
        """Refuse what is no run."""
        for name in ("steps", "save_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.seed < 0:
            raise InputError(f"seed must not be negative, found {self.seed}")

    def inputs(self) -> dict[str, object]:
        """Return the question as plain data, with what every run has."""
        from trnbench.engines.execute.optimizer import AdamW

        instance, nodes = self.place
        return {
            "model": self.model,
            "on": f"{instance}:{nodes}",
            **self.layout.given,
            "engine": "functional",
            "steps": self.steps,
            "seed": self.seed,
            "task": TASK,
            "optimizer": asdict(AdamW()),
            "resume": None if self.folder is None else str(self.folder),
            **cells(self.software, "stack release lnc=logical_size assume_supported"),
        }


class TrainQuestion(Question):
    """Models on places: every case by every engine.

    With `parts` whole runs are asked about, all parts of each. `assume_supported`: what a stack
    refuses is predicted as if it ran. `seed` draws how late nodes are in a played step; without one
    all are as late as is expected of the slowest. `timeline` keeps what was simulated, for a chart
    or a trace. `memory` keeps what the worst rank holds, slot by slot. Both take a single case.
    `of_suite` are the cases that a suite brings.
    """

    model: str | None = option(
        "A model by name (trnbench workload list models), org/Name or config.json.",
        metavar="MODEL",
        argument=True,
        completes=("models",),
    )
    places: tuple[tuple[str, int], ...] = option(
        "Cluster, e.g. trn2.48xlarge:4.",
        name="on",
        read=parsing.place,
        write=lambda place: place_text(*place),
        metavar="INSTANCE[:NODES],...",
        completes=("instances",),
    )
    suite: str | None = option(
        "Training suite (trnbench workload list training).", completes=("training",)
    )
    parts: tuple[Part, ...] = group(LENGTH_IF_ANY)
    bought: Buying = group(Buying)
    layout: PartialLayout = group(KNOB_OPTIONS)
    prefer: Prefer = PREFER
    versus: PartialLayout | None = option(
        "Explain the difference to the same step with other knobs: tp=8,pp=4.",
        name="vs",
        parse=_versus,
        write=lambda layout: _knobs_text(layout),
        metavar="KNOB=VALUE,...",
    )
    config: Path | None = option(
        "Knobs as this configuration has them: NxD Training, torchtitan, Megatron, Optimum Neuron, "
        "a Slurm script, or a folder of `launch`.",
        metavar="FILE",
    )
    software: StackChoice = group(StackChoice)
    engines: tuple[str, ...] = engine_option(
        "analytic, simulated (emulate), both, or with real numbers (functional).", *FUNCTIONAL
    )
    steps: int = STEPS
    folder: Path | None = RESUME
    seed: int | None = option(
        "With --engine emulate: draw the delay of every node with this seed. With --engine "
        "functional: seed of weights, text and rounding; default: 0."
    )
    stragglers: tuple[Straggler, ...] = option(
        "A pipeline stage that takes FACTOR times as long: 0=1.2 (repeatable).",
        name="straggler",
        parse=_straggler,
        write=lambda one: f"{one.stage}={number_text(one.factor)}",
        several="repeated",
        metavar="STAGE=FACTOR",
    )
    memory: bool = MEMORY
    timeline: bool = option("Keep what was played.", name="trace", shown=False)
    of_suite: tuple[TrainCase, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what never goes together."""
        if (self.model is None) == (self.suite is None):
            raise InputError("give a model (such as llama3.1-8b) or --suite NAME, one of the two")
        drawn = self.seed is not None and self.engines != FUNCTIONAL
        if (drawn or self.stragglers) and "emulate" not in self.engines:
            option = "--straggler" if self.stragglers else "--seed"
            raise InputError(
                f"{option} acts on the played schedule; it needs --engine emulate or both"
            )
        if self.seed is not None and self.seed < 0:
            raise InputError("--seed must not be negative")
        if self.suite is not None:
            own = (
                self.places
                or self.software.logical_size is not None
                or self.layout.said
                or self.config
            )
            if own:
                raise InputError(
                    "a suite brings its own places and layouts; leave out --on and these"
                )
            if self.parts:
                raise InputError("a suite has steps, no runs; leave out --tokens and --phase")
        elif not self.places:
            raise InputError("on which instance? e.g. --on trn1.32xlarge:32")
        if self.versus is not None and (self.suite or self.parts or self.memory or self.timeline):
            raise InputError(
                "--vs compares two steps; leave out --suite, --tokens, --phase, --plot, --trace "
                "and --memory"
            )
        if self.parts and (self.timeline or self.memory or drawn or self.stragglers):
            raise InputError(
                "a run has a step for each part: leave out --plot, --trace, --memory, --seed and "
                "--straggler, or --tokens and --phase"
            )

    @property
    def cases(self) -> tuple[TrainCase, ...]:
        """Each model on its place: those of the suite, once that is read."""
        if self.model is None:
            return self.of_suite
        other = self.versus
        layouts = {"": self.layout}
        if other is not None:
            said = _knobs_text(self.layout)
            layouts = {f"A: {said or 'as chosen'}": self.layout}
            layouts[f"B: {_knobs_text(other)}"] = self.layout.changed(**other.said)
        return tuple(
            TrainCase(label=label, model=self.model, instance=place, nodes=nodes, layout=layout)
            for place, nodes in self.places
            for label, layout in layouts.items()
        )

    @property
    def runs(self) -> tuple[RunRequest, ...]:
        """The run of each case, where a length is given."""
        return tuple(
            RunRequest(
                model=case.model,
                parts=self.parts,
                instances=(case.instance,),
                nodes=(case.nodes,),
                layout=case.layout,
                software=self.software,
                bought=self.bought,
                prefer=self.prefer,
            )
            for case in self.cases
            if self.parts
        )

    @property
    def functional(self) -> FunctionalQuestion:
        """The same with real numbers."""
        if self.suite is not None or len(self.places) != 1:
            raise InputError("--engine functional trains one model on one place")
        return FunctionalQuestion(
            model=self.model or "",
            place=self.places[0],
            layout=self.layout,
            steps=self.steps,
            folder=self.folder,
            seed=self.seed or 0,
            software=self.software,
        )

    @property
    def playing(self) -> Playing | None:
        """Scope of the steps to be played; None where the closed form is enough."""
        shown = self.timeline or self.memory
        if not shown and "emulate" not in self.engines:
            return None
        from trnbench.predict.step import Playing

        return Playing(seed=self.seed, stragglers=self.stragglers, timeline=shown)

    @classmethod
    def filled(cls, given: Given, catalog: Catalog) -> Given:
        """Return the options with the knobs and hosts of a configuration.

        Of a run also with what the user's defaults say of its purchase, as for `compare`.
        """
        from trnbench.verbs.asking.configuration import CURRENT

        said, current = dict(given), CURRENT.get()
        if current is not None and any(map(given.get, LENGTH_IF_ANY.options())):
            usual = current.options("compare")
            said |= {n: usual[n] for n in Buying.options() if n in usual and not _is_said(given, n)}
        if said.get("config") and said.get("on") and not said.get("suite"):
            from trnbench.verbs.train.configured import of_configuration

            layout = KNOB_OPTIONS.value(
                {name: said[name] for name in (LAYOUT, *KNOBS) if name in said}
            )
            found = of_configuration(catalog, said["on"], Path(said["config"]), layout)
            said |= {"on": (found[0],), **found[1].said}
        return said

    @classmethod
    def read(cls, given: Given) -> TrainQuestion:
        """Return the question that options ask; refuse those that would be for nothing."""
        functional = given.get("engine") in ("functional", FUNCTIONAL)
        real, bought, lengths = (
            [name for name in names if _is_said(given, name)]
            for names in (_REAL, Buying.options(), LENGTH_IF_ANY.options())
        )
        if real and not functional:
            raise InputError(f"--{real[0]} belongs to a run with real numbers: --engine functional")
        if functional and (bought or lengths):
            raise InputError("--engine functional trains --steps; leave out --tokens and --phase")
        if bought and not lengths:
            option = bought[0].replace("_", "-")
            raise InputError(f"--{option} is for the bill of a run: give --tokens or --phase too")
        return super().read(given)

    def settled(self, catalog: Catalog) -> TrainQuestion:
        """Return the question with the cases of its suite, and prices of its instances alone.

        Prices may be of the instance of any case.
        """
        if self.suite is not None:
            return self.but(of_suite=suite_cases(catalog, self.suite))
        if not self.parts:
            return self
        names = [instance for instance, _ in self.places]
        return self.but(bought=self.bought.used(catalog, names))

    def said(self) -> dict[str, Any]:
        unsaid = {"config", *(() if self.parts else Buying.options())}
        return {name: one for name, one in super().said().items() if name not in unsaid}

    def inputs(self) -> dict[str, object]:
        """Return the question as plain data, case by case."""
        plain = super().inputs()
        run = ("parts", "price_date", *self.bought.inputs()) if self.parts else ()
        setup = ("engines", "stack", "release", "logical_size", "assume_supported", "seed")
        return {
            "cases": [
                {
                    "case": case.label or None,
                    "model": case.model,
                    "on": f"{case.instance}:{case.nodes}",
                    **case.layout.said,
                }
                for case in self.cases
            ],
            "suite": self.suite,
            "config": None if self.config is None else str(self.config),
            "prefer": self.prefer,
            "vs": None if self.versus is None else _knobs_text(self.versus),
            **{name: plain[name] for name in setup},
            "stragglers": [f"{one.stage}={one.factor:g}" for one in self.stragglers],
            **{name: plain[name] for name in ("timeline", "memory", *run)},
        }


def _is_said(given: Given, name: str) -> bool:
    return given.get(name) not in (None, (), [], "")


def suite_cases(catalog: Catalog, name: str) -> tuple[TrainCase, ...]:
    """Return the cases of a training suite."""
    from trnbench.facts.workload.library import load_training_suite

    return tuple(
        TrainCase(
            label=case.label,
            model=case.model,
            instance=case.instance,
            nodes=case.nodes,
            layout=PartialLayout.of(case.layout),
        )
        for case in load_training_suite(catalog, name).case
    )


class TrainShowing(Question):
    """Columns and other files of an answer on a step."""

    trace: Path | None = option("Write a Perfetto trace of the schedule.", metavar="FILE")
    plot: bool = option("Draw the schedule.")
    memory: bool = MEMORY
