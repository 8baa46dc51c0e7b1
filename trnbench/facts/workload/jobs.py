"""What a step is for, and what knobs of its job take where nothing is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

Job = Literal["pretrain", "finetune", "lora", "dpo", "orpo", "grpo", "ppo"]
JOBS: tuple[Job, ...] = get_args(Job)
ADAPTED: tuple[Job, ...] = ("lora", "dpo", "orpo", "grpo", "ppo")
"""Jobs that may train adapters; the first trains nothing else."""
PAIRED: tuple[Job, ...] = ("dpo", "orpo")
"""Jobs that learn from pairs of answers to a prompt (arXiv 2305.18290, 2403.07691)."""
REINFORCED: tuple[Job, ...] = ("grpo", "ppo")
"""Jobs that learn from answers of their own (arXiv 2402.03300, 1707.06347)."""
DEPTHS_TRAINED: tuple[Job, ...] = ("pretrain", "finetune")
"""Jobs that train depths of multi-token prediction with the model."""
OF_ADAPTERS: Mapping[str, int | str] = {"adapter_rank": 16, "adapter_on": "all-linear"}
"""What adapters are where nothing is said of them: a rank in wide use, PEFT's QLoRA."""
OF_ANSWERS: Mapping[str, int | str] = {
    "samples_per_prompt": 8,
    "reference": "on",
    "update_epochs": 1,
    "mini_batches": 1,
    "generation_batch": 64,
}
"""What a job that writes answers has where nothing is said of them: TRL's group, one update on all
answers (verl's `ppo_epochs` 1; its mini-batches are often several), and a batch that most engines
hold (verl allows up to 256, its `max_num_seqs`)."""


def job_defaults(given: Mapping[str, object]) -> Mapping[str, int | str]:
    """Return what knobs of its job take in a layout where nothing is said of them."""
    named = (given.get("adapter_rank"), given.get("adapter_on"))
    packed = given.get("frozen_format") not in (None, "none")
    job = given.get("job")
    found: dict[str, int | str] = {}
    if job == "lora" or any(named) or packed:
        found |= OF_ADAPTERS
    if job in REINFORCED:
        found |= {**OF_ANSWERS, "reward": "model" if job == "ppo" else "verifier"}
        sequence = given.get("sequence")
        if isinstance(sequence, int):
            found["response"] = max(sequence // 2, 1)
    return found


def sequences_per_sample(job: object) -> int:
    """Return how many sequences a sample of a job has: a pair is an answer chosen, one rejected."""
    return 2 if job in PAIRED else 1
