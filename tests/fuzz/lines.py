"""Command lines made from the options that the command itself offers, with values at extremes.

A new verb or option enters by itself: its values follow from its type and from what stands for
them in its help. Clusters stay small, so that a line that is answered is answered soon.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer

from tests.fuzz import inputs
from tests.fuzz.texts import JUNK, NUMBERS, STEPS
from trnbench.cli.main import VERBS, application
from trnbench.facts.workload.layout import KNOBS
from trnbench.facts.workload.partial_layout import knob_texts

INSTANCES = ("trn1.2xlarge", "trn1.32xlarge", "trn2.48xlarge", "p5.48xlarge", "p4d.24xlarge")
MODELS = ("tiny-gpt", "llama2-7b", "mixtral-8x7b", "dit-xl-2", "bert-large", "resnet-50")
CHIPS = ("trainium1", "trainium2", "trainium3", "h100", "a100-40gb")
OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute", "broadcast")
WORDS = {
    "N": ("1", "2", "4", "8", "64"),
    "NUMBER": ("1", "1.25", "2", "32"),
    "SIZE": ("1KiB", "64KiB", "1MiB", "7"),
    "SHARE": ("10%", "0.5", "80%"),
    "TIME": ("30 min", "12h", "60d"),
    "USD": ("1.5", "100", "5M"),
    "RATE": ("0.01", "1"),
    "YYYY-MM-DD": ("2026-11-21", "0001-01-01", "9999-12-31", "2024-02-30"),
    "MODEL": MODELS,
    "OP": OPERATIONS,
    "CHIP,...": (*CHIPS, "trainium1,h100"),
    "INSTANCE": INSTANCES,
    "INSTANCE,...": (*INSTANCES, "trn1.32xlarge,p5.48xlarge"),
    "INSTANCE[:NODES]": (*INSTANCES, *(f"{name}:2" for name in INSTANCES)),
    "INSTANCE[:NODES],...": (*INSTANCES, *(f"{name}:2" for name in INSTANCES)),
    "N,...": ("1", "2", "1,2,4"),
    "[MxKxN[xBATCH]...]": ("512x512x512", "4096x1x77", "64x64x64x8", "1x1x1"),
    "FORMAT,...": ("bf16", "fp8_e4m3", "fp32,bf16"),
    "FORMAT": ("bf16", "fp32", "int8"),
    "RECIPE": ("bf16-master", "fp32", "bf16-sr"),
    "RECIPE,...": ("bf16-sr", "fp32,bf16"),
    "NAME...": (*INSTANCES[:3], *CHIPS[:2]),
    "NAME": (*INSTANCES[:2], *CHIPS[:2], *MODELS[:2]),
    "[CLAIM]...": ("trn1-bf16", "trn3-compute"),
    "KEEP:GROUP": ("4:16", "2:4", "1:1"),
    "GROUPS": ("2", "4@8", "0-3;4-7"),
    "OP:SIZE[:GROUPS]": ("all-reduce:1MiB", "all-gather:64KiB:4"),
    "A-B[=SHARE]": ("0-1", "0-net=0.5"),
    "STAGE=FACTOR": ("0=1.5",),
    "TOKENS@SEQUENCE": ("1B@2048", "0.5B@4096"),
    "NAME=USD": ("trn1.32xlarge=10",),
    "'A=4x B'": ("trn1.2xlarge=2x trn1.32xlarge",),
    "N@STORE": ("3@s3-standard",),
    "NxRATE": ("8x400Gbit/s",),
    "N:1": ("2:1",),
    "POWER": ("10.2kW",),
}
SUITED = {
    **{knob.option: knob_texts(knob) for knob in KNOBS.values() if knob_texts(knob)},
    "--job": ("pretrain", "finetune", "lora", "dpo", "orpo", "grpo", "grpo", "ppo"),
    "--recompute": ("none", "selective", "full", "full:1", "attention", "any"),
    "--context-parallel": ("ring", "all-to-all", "hybrid:2", "any"),
    "--pipeline-layout": ("Et|tL", "Ett*2|L", "Et*4|(t|)*2tL", "any"),
    "--stack": ("nxd-trn1", "nxdt", "torchtitan", "megatron", "optimum-neuron", "mine"),
    "--with": ("torchrun", "slurm", "parallelcluster", "eks", "sagemaker", "batch", "ecs", "ray"),
    "--purchase": ("on-demand", "spot", "reserved-1y", "capacity-block,on-demand", "own"),
    "--region": ("us-east-1", "us-west-2", "mars-1"),
    "--scenario": ("no/such.toml",),
    "--against": ("no-such-run",),
    "--plot-file": ("out.svg", "out.png"),
    "--report": ("out.html", "out.md"),
    "--output": ("out.json", "out.csv", "out.md", "out.jsonl", "-", "/dev/full", "no/such.json"),
    "--trace": ("out.trace.json", "/dev/full"),
    "--tag": ("mine", "a b", "\u202e"),
    "--suite": ("square", "llama", "trn1", "trn2", "gpu", "quick"),
    "--seed": ("0", "1", "7"),
    "--confirm": ("1", "3"),
    "--algorithm": ("ring", "mesh", "tree", "halving-doubling", "kangaring", "direct", "auto"),
    "--verb": ("train", "compare", "matrix"),
    "--model": ("llama2-7b", "llama3.1-8b"),
    "--instance": INSTANCES,
    "--chip": CHIPS,
    "--as": ("llama", "mixtral", "gpt2"),
    "--name": ("mine",),
    "--launch": ("made",),
    "--evidence": ("steps.csv",),
    "--config": ("config.json",),
    "--figure": ("step_time_s", "mfu", "cost_usd"),
    "--best": ("step_time_s", "mfu"),
    "--by": ("model", "instance", "on"),
    "--rows": ("model", "on", "tp"),
    "--columns": ("nodes", "tp"),
}
"""What suits an option, beside what suits all that are of its kind."""
POSITIONAL = {
    ("spec", "list"): ("chips", "instances", "prices", "calibration", "purchase", "claims"),
    ("workload", "list"): ("models", "matrix", "collective", "training", "fleets", "studies"),
    ("workload", "show"): (*MODELS, "square", "trn1"),
    ("spec", "new"): ("mine", "my cluster", "x/y"),
    ("help",): ("layout", "calibration", "--tp", "MFU", "plan", "purchase"),
    ("fleet",): ("no-such-fleet", "steps.csv"),
    ("measure",): ("no-such-kind",),
    ("workload", "import"): ("config.json",),
    ("prices", "show"): INSTANCES,
    ("study", "run"): ("no-such-study",),
    ("study", "show"): ("bench", "no-such-study"),
    ("launch",): ("tiny-gpt", "llama2-7b", "mixtral-8x7b"),
}
"""What suits the first word after a verb, where that is no name of any kind; nothing runs long."""
BASES = {
    "train": "tiny-gpt --on trn1.2xlarge --global-batch 8",
    "compare": "tiny-gpt --tokens 1B --on trn1.2xlarge --nodes 1",
    "plan": "tiny-gpt --tokens 1B --on trn1.2xlarge --nodes 1",
    "matrix": "512x512x512 --on trainium1",
    "collective": "all-reduce --on trn1.32xlarge:2 --min-size 1KiB --max-size 1MiB",
    "numerics": "tiny-gpt --steps 1 --seeds 1",
    "calibrate": "steps.csv --stack mine",
    "explain": "steps.csv",
    "validate": "--evidence steps.csv",
    "claims": "trn1-bf16",
    "launch": "llama2-7b --on trn1.32xlarge:2 --stack nxdt --with slurm --global-batch 64 -o made",
    "prices refresh": "--source steps.csv --dry-run",
}
"""What makes a line whole, or the answer small; its options are taken with others' values too."""
LEFT_OUT = {
    "--source",
    "--suite",
    "--engine=functional",
    "--steps",
    "--seeds",
    "--help",
    "--resume",
}
"""What would ask a network, or runs long by nature; `inputs` has runs of their own for these."""
REFUSED = {
    "--json",
    "--spec-dir",
    "--config",
    "--resume",
    "--scenario",
    "--against",
    "--with",
    "--stack",
}
"""What refuses most lines that have it: left out where a line is to be answered."""


@cache
def verbs() -> dict[tuple[str, ...], list[Any]]:
    """Return the parameters of every command."""

    def below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
        commands = getattr(command, "commands", None)
        if commands is None:
            yield path, command.params
        for name, inner in (commands or {}).items():
            yield from below(inner, (*path, name))

    found = dict(below(typer.main.get_command(application(*VERBS)), ()))
    return {path: params for path, params in found.items() if path != ("tui",)}


def value(parameter: Any, chance: random.Random, unfit: float = 0.16) -> str:
    """Return a value of an option that suits it, or with a chance an extreme, or junk."""
    choices = getattr(parameter.type, "choices", None)
    roll = chance.random()
    if roll < unfit * 0.75:
        return chance.choice(NUMBERS)
    if roll < unfit:
        return chance.choice(JUNK)
    if choices:
        return str(chance.choice([getattr(one, "value", one) for one in choices]))
    if parameter.opts[0] in SUITED:
        return chance.choice(SUITED[parameter.opts[0]])
    metavar = parameter.metavar or ""
    if metavar in WORDS:
        return chance.choice(WORDS[metavar])
    if "|" in metavar:
        return str(chance.choice(metavar.split("|")))
    if metavar in ("FILE", "DIR", "FOLDER", "PATH...", "MEASUREMENTS...", "CONFIG_JSON"):
        return chance.choice(["steps.csv", "config.json", "out", ".", "no/such", "/dev/null"])
    names = (*INSTANCES, *MODELS, *CHIPS, "nxd-trn1", "ring", "us-east-1", "auto", "none", "full")
    return chance.choice(names)


def line(seed: int, folder: Path) -> list[str]:
    """Return the command line of a seed; the files it may name are written into `folder`."""
    chance = random.Random(seed)
    # One extreme is enough to refuse a line: every other one is made of what suits, to be answered.
    unfit = chance.choice((0.16, 0.0))
    known = verbs()
    likely = [path for path in known if not unfit and " ".join(path) in BASES]
    path = chance.choice([*known, *likely * 4])
    parameters = known[path]
    (folder / "steps.csv").write_text(STEPS)
    (folder / "config.json").write_text(inputs.config_json(chance))
    options = [one for one in parameters if one.opts[0].startswith("-")]
    base = BASES.get(" ".join(path), BASES.get(path[0], ""))
    words = [*path, *base.split()]
    for one in () if base else parameters:
        if one in options:
            words += [one.opts[0], value(one, chance, unfit)] if one.required else []
        elif path in POSITIONAL and chance.random() >= unfit:
            words.append(chance.choice(POSITIONAL[path]))
        else:
            words.append(value(one, chance, unfit))
    for one in chance.sample(options, min(len(options), chance.randint(0, 5))):
        name = chance.choice(one.opts)
        if name in LEFT_OUT or (not unfit and name in REFUSED):
            continue
        if getattr(one, "is_flag", False):
            words.append(name)
            continue
        given = value(one, chance, unfit)
        if f"{name}={given}" not in LEFT_OUT:
            while name in words:  # a later one would count; take the place of the first
                at = words.index(name)
                del words[at : at + 2]
            words += [name, given]
    if unfit and chance.random() < 0.1:
        words.insert(chance.randrange(len(words) + 1), chance.choice(JUNK))
    return [word.replace("\0", "") for word in words]  # no system hands one over
