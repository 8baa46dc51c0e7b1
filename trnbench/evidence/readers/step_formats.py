"""What training software prints of a step: one entry a format, best known first.

Sources: the loggers of each project and their published logs, named beside the entries. A marker
stands in every line of a step and nowhere else; a line with it that the pattern does not read is
counted as unread. Patterns run over blocks of many lines, so none may cross a line.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from trnbench.facts.records import Record

Told: TypeAlias = Literal["time", "steps", "samples", "tokens", "tokens each"]
"""What a line tells: seconds of a step; steps, samples or tokens a second of the cluster; or tokens
a second of each device."""

_DIGITS = r"\d[\d,]*+\.?+\d*+(?:[eE][-+]?\d+)?+"


class StepFormat(Record):
    """How a piece of software prints a step.

    `pattern` has the groups step and value, in this order, or value alone; LINE in it is what a
    line has before the first place where all that follows LINE is found. `scale` makes base units
    of the value. `window`: the value is a moving average over so many steps, which starts cold.
    `more`: patterns of the global batch (batch), of iterations whose optimizer did not run
    (skipped) and of a rank's memory in GiB (memory), each once in a line of a step.
    """

    name: str
    marker: str
    pattern: str
    told: Told = "time"
    scale: float = 1.0
    window: int = 1
    remark: str = ""
    batch: str = ""
    skipped: str = ""
    memory: str = ""

    def compiled(self, pattern: str) -> re.Pattern[bytes]:
        """One of the patterns as files are searched."""
        before, _, after = pattern.partition("LINE")
        if after:
            # What a lazy [^\n\r]*? would skip, but not a byte at a time.
            letter, rest = after[0], after[1:].replace("NUMBER", f"(?:{_DIGITS})")
            before += rf"(?:[^{letter}\n\r]++|{letter}(?!{rest}))*+"
        return re.compile((before + after).replace("NUMBER", f"({_DIGITS})").encode())


EXACT = (
    # NVIDIA/Megatron-LM, megatron/training/training.py; the last rank prints.
    StepFormat(
        name="Megatron-LM",
        marker="elapsed time per iteration (ms):",
        pattern=r"iteration +(\d{1,9})/LINEelapsed time per iteration \(ms\): NUMBER",
        scale=1e-3,
        batch=r"global batch size: +(\d{1,9})",
        skipped=r"number of skipped iterations: +(\d{1,9})",
    ),
    # aws-neuron/neuronx-distributed, tp_pp_llama_hf_pretrain/logger.py: the rate beside the time is
    # a moving average and counts what lies between steps.
    StepFormat(
        name="NeuronX Distributed",
        marker=" step_time ",
        pattern=r"step (\d{1,9}) step_time NUMBER ?s\b",
    ),
    StepFormat(
        name="NeMo",
        marker="train_step_timing in s: ",
        pattern=r"iteration (\d{1,9})/LINEtrain_step_timing in s: NUMBER",
        batch=r"global_batch_size: (\d{1,9})",
    ),
    # pytorch/torchtitan, torchtitan/components/metrics.py: tokens of one rank over its time.
    StepFormat(
        name="torchtitan",
        marker="tps: ",
        pattern=r"step: +(\d{1,9}) LINEtps: NUMBER",
        told="tokens each",
        memory=r"memory: +NUMBER ?GiB",
    ),
    # aws-neuron/neuronx-distributed, training_utils.py Throughput: a window of 10 steps.
    StepFormat(
        name="NeuronX Distributed ZeRO-1",
        marker="step_loss : ",
        pattern=r"\(\d+, (\d{1,9})\) step_loss : LINEthroughput : NUMBER seq/s",
        told="samples",
        window=10,
    ),
    StepFormat(
        name="NeuronX Distributed with Lightning",
        marker=" loss is ",
        pattern=r"step (\d{1,9}) loss is LINEthroughput NUMBER seq/s",
        told="samples",
        window=10,
    ),
    StepFormat(
        name="neuronx-nemo-megatron",
        marker="iteration_time=",
        pattern=r"global_step=(\d{1,9})LINEiteration_time=NUMBER",
    ),
    # huggingface/optimum-neuron, optimum/neuron/trainers/metrics: a mean of the last 50 steps.
    StepFormat(
        name="Optimum Neuron",
        marker="'train/step_time': ",
        pattern=r"'train/step_time': '?NUMBER",
        remark="a mean of up to 50 steps, which starts cold",
    ),
)
"""Formats that tell a step's time or rate and can be nothing else."""

SUMMARY = StepFormat(
    name="Hugging Face Trainer's summary",
    marker="'train_steps_per_second': ",
    pattern=r"'train_steps_per_second': '?NUMBER",
    told="steps",
    remark="the mean of the whole run, start-up and evaluation included",
)
"""Steps a second of a whole run, as its last line."""
