"""Options as other tools call them -> the option of this program that is meant, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from shlex import quote

from trnbench.errors import did_you_mean

_MEANT: Mapping[str, str] = {
    "--on INSTANCE": "gpu gpus gpu-type instance instances instance-type instance-types machine "
    "machines hardware hw cluster chip chips accelerator device type platform system",
    "--micro-batch N": "mbs micro-batch-size microbatch microbatch-size batch-per-gpu "
    "per-device-batch-size per-device-train-batch-size",
    "--global-batch N": "gbs batch batch-size bs bsz global-batch-size train-batch-size",
    "--sequence N": "seq seq-len seqlen seq-length sequence-length context-length context-window "
    "ctx max-seq-len max-seq-length max-length block-size",
    "--job JOB": "task method mode-of-training",
    "--job lora": "lora peft qlora",
    "--job finetune": "finetune sft fine-tune",
    "--job dpo": "dpo",
    "--job orpo": "orpo",
    "--job grpo": "grpo rl rlhf",
    "--job ppo": "ppo",
    "--adapter-rank N": "rank lora-rank lora-r r",
    "--tp N": "tensor-parallel tensor-parallel-size tensor-model-parallel-size "
    "tensor-parallelism tensor",
    "--pp N": "pipeline-parallel pipeline-parallel-size pipeline-model-parallel-size "
    "pipeline-parallelism pipeline stages",
    "--cp N": "context-parallel-size context-parallel-degree context-parallelism",
    "--ep N": "expert-parallel expert-parallel-size expert-model-parallel-size",
    "--vpp N": "virtual-pipeline interleave virtual-pipeline-size",
    "--zero N": "zero-stage zero1 zero2 zero3 fsdp ddp deepspeed",
    "--recompute MODE": "activation-checkpointing gradient-checkpointing checkpointing remat ac",
    "--precision RECIPE": "dtype fp8 bf16 fp16 format mixed-precision amp precision-recipe",
    "--attention KERNEL": "flash flash-attention attn attn-impl",
    "--nodes N": "num-nodes nnodes n-nodes node size world-size num-gpus ngpus",
    "--deadline TIME": "days time max-days within by until due finish",
    "--budget USD": "max-cost cost spend limit",
    "--price NAME=USD": "price-per-hour hourly rate usd-per-hour cost-per-hour prices",
    "--purchase spot": "spot",
    "--purchase on-demand": "on-demand ondemand od",
    "--purchase reserved": "reserved ri",
    "--purchase capacity-block": "capacity-block capacity-blocks cb",
    "--purchase savings-plan": "savings-plan sp",
    "--tokens N": "token train-tokens num-tokens total-tokens epochs iters",
    "--samples N": "examples dataset-size num-samples",
    "--stack NAME": "framework software backend engine-name",
    "--with SCHEDULER": "scheduler slurm eks",
    "--evidence FILE": "file csv measured measurements rows log results",
    "--format csv": "csv",
    "--format markdown": "markdown md",
    "--json": "js as-json",
    "--report FILE.html": "html pdf",
    "--output FILE": "out output-file outfile save",
    "--details": "verbose v full long more",
    "--quiet": "silent q",
    "--confidence SHARE": "probability sure certainty percentile",
    "--baseline INSTANCE": "base reference-instance relative-to",
    "--plot": "chart graph draw",
    "--layout KNOB=VALUE,...": "parallelism parallel degrees strategy",
}
_BY_WORD: Mapping[str, tuple[str, ...]] = {
    word: tuple(meant for meant, words in _MEANT.items() if word in words.split())
    for words in _MEANT.values()
    for word in words.split()
}
"""Options that a word may mean, the likeliest first."""
_OTHER_VERB = {
    "--deadline": "`trnbench plan MODEL --deadline 30d` sizes a cluster for it",
    "--budget": "`trnbench plan MODEL --budget 2M` keeps to it",
    "--price": "`trnbench compare` takes it",
    "--confidence": "`trnbench plan` takes it",
    "--purchase": "`trnbench plan` takes it",
    "--tokens": "`trnbench plan MODEL --tokens 2T` plans a run",
    "--nodes": "the number goes behind the instance: --on trn2.48xlarge:4",
    "--on": "`trnbench train`, `compare` and `plan` take it",
    "--memory": "`trnbench train` shows it",
    "--model": "the model is written first, without an option",
    "--tp": "`trnbench train` takes it",
}
"""Remedies for an option that a verb does not have."""
_FIRST = ("model", "model-name", "name-or-path", "model-name-or-path")


def meant_option(verb: str, typed: str, known: Collection[str]) -> str:
    """Remedy for an unknown option of a verb that knows these options."""
    word = typed.lstrip("-").partition("=")[0].replace("_", "-").casefold()
    if f"--{word}" in known:
        return f"write --{word}"
    for meant in _BY_WORD.get(word, ()):
        option = meant.split()[0]
        if option in known:
            return f"write {meant}"
        if option in _OTHER_VERB:
            return _OTHER_VERB[option]
    if word in _FIRST:
        return _OTHER_VERB["--model"]
    if f"--{word}" in _OTHER_VERB:
        return _OTHER_VERB[f"--{word}"]
    near = did_you_mean(f"--{word}", sorted(known)).removeprefix("; ")
    lists = "trnbench --help" if verb == "trnbench" else f"trnbench {verb} --help-all"
    return near or f"`{lists}` lists its options"


def stray_word(verb: str, words: str, known: Collection[str]) -> str:
    """Message on words that are no option, behind the arguments of a verb with known options."""
    remedy = "write a value with blanks in quotes"
    if "--on" in known and re.match(r"[a-z][\w-]*\d", words, re.IGNORECASE):
        remedy = "separate instances by commas: --on A,B"
    if "--evidence" in known and re.search(r"[/.]", words):
        remedy = f"give measurements with --evidence {quote(words)}"
    return f"{verb} has no use for {words!r} here; {remedy}"
