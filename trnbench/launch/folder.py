"""A plan, a framework and a scheduler -> the files of one folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.facts.records import Record, replace
from trnbench.facts.units import Dimension, show
from trnbench.launch.plan import LaunchPlan
from trnbench.launch.software import Framework, Scheduler, Texts, environment_of
from trnbench.launch.written import FILE, VALUES, UserValue, from_template, named_in

PREDICTION = "prediction.json"
_PORT = 41000
"""NxD Training's rendezvous port; its set-up reserves it."""
_ABOUT: Mapping[str, str] = {
    FILE: "values that are yours",
    "environment.sh": "environment of every process",
    "train.sh": "what runs on each host",
    "start.sh": "hands the job over",
    PREDICTION: "what was predicted, for `trnbench verify`",
}


class LaunchFolder(Record, eq=False):
    """Texts of the files, the values that the user fills in, and the assumptions."""

    texts: Texts
    values: tuple[UserValue, ...]
    assumes: tuple[str, ...]

    @property
    def empty(self) -> tuple[UserValue, ...]:
        return tuple(value for value in self.values if value.to_fill_in)


def launch_folder(
    plan: LaunchPlan,
    framework: Framework,
    scheduler: Scheduler,
    *,
    version: str,
    predicted: tuple[tuple[str, str], ...],
) -> LaunchFolder:
    """All files but the prediction itself; `predicted` is its text for people."""
    stamp = (
        f"Written by trnbench {version} on {plan.date}: {framework.title} "
        f"({framework.versions}) with {scheduler.title} ({scheduler.versions})."
    )
    arguments = tuple(framework.arguments(plan))
    job = scheduler.files(plan, framework, stamp)
    environment = environment_of(plan, framework)
    inside = (framework.folder, *framework.script, *arguments, *environment.values())
    of_files = [job.texts[name] for name in job.filled]
    own = framework.files(plan, stamp)
    # The scheduler's defaults win: it knows the paths and names on its hosts.
    defaults = {**framework.defaults, **framework.own_defaults(plan), **scheduler.defaults}
    defaults["JOB_NAME"] = plan.name
    if plan.steps is not None:
        defaults |= {"MAX_STEPS": str(plan.steps)}
    names = named_in(
        (*inside, *own.values(), *of_files, *job.start, *job.texts.values(), "${VENV}")
    )
    values = tuple(replace(VALUES[n], default=defaults.get(n, VALUES[n].default)) for n in names)
    # train.sh tests the values that it uses itself; start.sh, which hands the job over, tests all.
    needed = {value.name for value in values if not value.optional}
    in_train = [name for name in named_in((*inside, *own.values())) if name in needed]
    assumes = (*framework.assumes, *scheduler.assumes, *_of_cluster(plan))
    shared = {"stamp": stamp, "plan": plan, "framework": framework, "scheduler": scheduler}
    texts = {
        **own,
        **job.texts,
        FILE: from_template("values.env", values=values, **shared),
        "environment.sh": from_template("environment.sh", environment=environment, **shared),
        "train.sh": from_template(
            "train.sh",
            **{"lines": _lines(arguments), "needed": in_train, "where": scheduler.where},
            **{"port": _PORT, "compiler": framework.compiler, "about": _layout_text(plan)},
            **shared,
        ),
        "start.sh": from_template(
            "start.sh",
            **{"needed": [name for name in names if name in needed], "filled": job.filled},
            **{"names": named_in(of_files), "start": job.start, **shared},
        ),
    }
    listed = [(name, _ABOUT.get(name, scheduler.title)) for name in sorted({*texts, PREDICTION})]
    listed = [(name, framework.title if name in own else about) for name, about in listed]
    texts["README.md"] = from_template(
        "README.md",
        **{"values": values, "assumes": assumes, "files": listed, "predicted": predicted},
        **{"compiler": framework.compiler, "compile": _time_text(plan.compile_s.value)},
        checkpoint=_time_text(plan.checkpoint_interval_s),
        empty=[value.name for value in values if value.to_fill_in],
        **shared,
    )
    return LaunchFolder(texts=texts, values=values, assumes=assumes)


def _of_cluster(plan: LaunchPlan) -> tuple[str, ...]:
    instance = plan.platform.instance
    if instance.hosts == 1:
        return ()
    return (
        f"the {instance.hosts} hosts of each {instance.name} are set up as one domain, and are "
        "numbered one after the other",
    )


def _lines(words: Sequence[str]) -> list[list[str]]:
    """Words of a command in lines, each flag with its values."""
    lines: list[list[str]] = []
    for word in words:
        if lines and not word.startswith("--") and lines[-1][0].startswith("--"):
            lines[-1].append(word)
        else:
            lines.append([word])
    return lines


def _layout_text(plan: LaunchPlan) -> str:
    layout = plan.layout
    degrees = " ".join(f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "dp", "cp", "ep"))
    return f"{degrees}, {plan.micro_batches} micro-batches of {layout.micro_batch}."


def _time_text(time_s: float) -> str:
    minutes = time_s / 60
    if minutes < 1:
        return show(time_s, Dimension.SECONDS, digits=3)
    return f"{minutes:.0f} minutes" if minutes < 180 else f"{minutes / 60:.1f} hours"
