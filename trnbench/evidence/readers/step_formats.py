"""Step lines of training software: one entry per format, best known first.

Sources are the loggers of each project and published logs, named beside the entries. A marker is in
every step line and nowhere else; a line with the marker that the pattern misses counts as unread.
Patterns run over blocks of many lines, so none may cross a line.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from trnbench.facts.records import Record

Told: TypeAlias = Literal["time", "steps", "samples", "tokens", "tokens each"]
"""Quantity of a line: seconds per step; steps, samples or tokens per second; tokens per device."""

_DIGITS = r"\d[\d,]*+\.?+\d*+(?:[eE][-+]?\d+)?+"


class StepFormat(Record):
    """Step line of a piece of software."""

    name: str
    marker: str
    pattern: str
    """Groups step and value, or only value; LINE skips to the first match of the rest."""
    told: Told = "time"
    scale: float = 1.0
    """Factor to base units."""
    window: int = 1
    """Steps of the value's moving average, which starts cold."""
    remark: str = ""
    batch: str = ""
    """Pattern of the global batch, at most once per step line."""
    skipped: str = ""
    """Pattern of iterations without an optimizer step."""
    memory: str = ""
    """Pattern of a rank's memory, GiB."""

    def compiled(self, pattern: str) -> re.Pattern[bytes]:
        """A pattern compiled for searching files."""
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
"""Unambiguous formats with a step's time or rate."""

SUMMARY = StepFormat(
    name="Hugging Face Trainer's summary",
    marker="'train_steps_per_second': ",
    pattern=r"'train_steps_per_second': '?NUMBER",
    told="steps",
    remark="the mean of the whole run, start-up and evaluation included",
)
"""Steps per second of a whole run, in its last line."""
