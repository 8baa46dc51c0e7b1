"""Inputs that may be anything: files, tables and command lines, damaged at random by a seed."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.fuzz import foreign
from tests.fuzz.texts import JUNK, NUMBERS, STEPS, damaged
from trnbench.facts.catalog.search import SECTIONS, built_in_folder

ROOT = built_in_folder()
FILES = sorted(
    path
    for section, folder in SECTIONS.items()
    for path in (ROOT / folder / section).glob("*.toml")
)
TABLES = sorted((ROOT / "workloads" / "published").glob("*.csv"))
MOST_ROWS = 8
"""Of a published table that are kept: enough to be read, few enough to be quick."""


def damaged_table(text: str, chance: random.Random) -> str:
    """Return the heading and a few rows of a table of measurements, with cells overwritten."""
    heading, *rows = text.splitlines()
    kept = [heading, *chance.sample(rows, min(MOST_ROWS, len(rows)))]
    for _ in range(chance.randint(1, 6)):
        line = chance.randrange(len(kept))
        cells = kept[line].split(",")
        cells[chance.randrange(len(cells))] = chance.choice(JUNK)
        kept[line] = ",".join(cells)
    text = "\n".join(kept) + "\n"
    return damaged(text, chance) if chance.random() < 0.3 else text


def config_json(chance: random.Random) -> str:
    """Return a published model's configuration, cut down and damaged."""
    fields: dict[str, object] = dict(chance.choice(CONFIGS))
    for _ in range(chance.randint(0, 2)):
        key = chance.choice(list(fields))
        junk: list[object] = [*JUNK, *map(_number, NUMBERS), None, [], {}, True]
        fields[key] = chance.choice(junk)
    text = json.dumps(fields, indent=1)
    return damaged(text, chance) if chance.random() < 0.2 else text


def _number(text: str) -> float | str:
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return text


def log(chance: random.Random) -> str:
    """Return a log of training steps, with progress bars, junk and steps at their extremes."""
    lines = []
    for step in range(chance.randint(0, 12)):
        number = chance.choice([f"{chance.uniform(0.5, 20):.3f}"] * 6 + list(NUMBERS))
        lines.append(
            chance.choice(
                [
                    *[f"step {step} | step time: {number} s"] * 3,
                    f"{step},{number}",
                    f"Epoch 1\rEpoch 2 {number} tokens/s",
                    "x" * chance.choice([3, 200_000]),
                    chance.choice(JUNK),
                ]
            )
        )
    heading = chance.choice(["", "step,step_time_s\n", '"step_time_ms"\n', "start\n"])
    return heading + "\n".join(lines) + "\n"


PRICES = (
    "instance,region,purchase,usd_per_hour,date_from,source\n"
    "trn1.32xlarge,us-east-1,on-demand,21.5,2026-11-01,mine\n"
    "p5.48xlarge,us-east-1,on-demand,55.04,2026-11-02,mine\n"
)


def checkpoint(path: Path, chance: random.Random) -> None:
    """Write an archive of arrays that is more or less a checkpoint."""
    import numpy as np

    note = json.dumps({"run": {}, "losses": [1.0], "digest": "0"}).encode()
    np.savez(path, note=np.frombuffer(note, dtype=np.uint8), weights=np.ones(4))
    content = bytearray(path.read_bytes())
    for _ in range(chance.randint(0, 3)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    if chance.random() < 0.3:
        content = content[: chance.randrange(len(content))]
    path.write_bytes(bytes(content))


_LLAMA: dict[str, object] = {
    **{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu"},
    **{"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 100},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128},
    **{"rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16"},
}
CONFIGS: tuple[dict[str, object], ...] = (
    _LLAMA,
    {
        **_LLAMA,
        **{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]},
        **{"num_local_experts": 4, "num_experts_per_tok": 2},
    },
    {
        **_LLAMA,
        **{"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]},
        **{"kv_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "qk_nope_head_dim": 16},
        **{"q_lora_rank": 24, "first_k_dense_replace": 1, "n_routed_experts": 4},
        **{"num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32},
    },
    {
        **{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_head": 4},
        **{"n_layer": 2, "n_positions": 128, "vocab_size": 100},
    },
)

_RUN = ("--model", "llama3.1-8b", "--on", "trn1.32xlarge:2", "--tp", "8")
_MEASURED = (*_RUN, "--global-batch", "64", "--sequence", "2048")
USES: dict[str, tuple[str, ...]] = {
    "chips": (
        "matrix 512x512x512 --on {name} --engine both --kernel blocked",
        "matrix 4096x1x77 --on {name} --json",
        "spec show {name}",
        "train llama2-7b --on trn1.32xlarge:2 --tp 8 --pp 1 --global-batch 64",
    ),
    "instances": (
        "train llama2-7b --on {name} --tp 8 --pp 1 --global-batch 64 --json",
        "collective all-reduce --on {name}:2 --max-size 1MiB",
        "compare tiny-gpt --tokens 1B --on {name} --nodes 1",
        "spec show {name}",
    ),
    "calibration": (
        "train llama2-7b --on trn1.32xlarge:2 --tp 8 --global-batch 64 --json",
        "train mixtral-8x7b --on p5.48xlarge:2 --tp 8 --global-batch 64 --stack {stack}",
        "compare tiny-gpt --tokens 1B --on trn1.2xlarge --nodes 1",
        "collective all-reduce --on trn1.32xlarge:2 --max-size 1MiB --stack {name}",
    ),
    "prices": (
        "compare tiny-gpt --tokens 1B --on trn1.2xlarge,{name} --nodes 1 --tp 1 --pp 1",
        "prices show {name}",
        "claims trn1-bf16",
    ),
    "purchase": ("compare tiny-gpt --tokens 1B --on trn1.2xlarge --nodes 1 --purchase on-demand",),
    "reliability": ("compare tiny-gpt --tokens 1B --on trn1.2xlarge --nodes 1",),
    "claims": ("claims trn1-bf16 trn3-compute",),
    "explain": ("explain steps.csv",),
    "compilers": (
        "train llama3.1-8b --on trn1.32xlarge --tp 8 --pp 1 --global-batch 64 --stack nxdt",
    ),
    "models": (
        "train {name} --on trn1.32xlarge:4 --json",
        "workload show {name}",
        "compare {name} --samples 1M --on trn1.32xlarge --nodes 1",
    ),
    "fleets": ("fleet {name} --json",),
    "matrix": ("matrix --suite {name} --on trainium1",),
    "collective": ("collective --suite {name}",),
    "training": ("workload show {name}",),
}
"""Command lines that read a file of a section; what else they name is shipped."""


def asked(seed: int, folder: Path) -> list[list[str]]:
    """Return the command lines of a seed, with the damaged input they read written in `folder`."""
    chance = random.Random(seed)
    kind = chance.choices(range(10), (10, 3, 2, 2, 1, 1, 1, 6, 3, 2))[0]
    (folder / "steps.csv").write_text(STEPS)
    match kind:
        case 0:
            return _of_a_data_file(chance, folder)
        case 1:
            path = chance.choice(TABLES)
            _write(folder / path.name, damaged_table(path.read_text("utf-8"), chance))
            return [["validate", "--evidence", path.name]]
        case 2:
            _write(folder / "config.json", config_json(chance))
            found = ["workload", "import", "config.json", "-o", "models/small.toml"]
            (folder / "models").mkdir()
            used = "train small --on trn1.2xlarge --global-batch 8 --sequence 32 --spec-dir ."
            return [found, ["workload", "validate", "models"], used.split()]
        case 3:
            _write(folder / "run.log", log(chance))
            verb = chance.choice([["calibrate", "--stack", "nxd-trn1"], ["explain"]])
            return [[*verb, "run.log", *_MEASURED]]
        case 4:
            text = damaged(damaged_table(STEPS, chance), chance)
            _write(folder / "steps.csv", text)
            verb = chance.choice([["calibrate", "--stack", "nxd-trn1"], ["explain"]])
            return [[*verb, "steps.csv"]]
        case 5:
            _write(folder / "prices.csv", damaged(PRICES, chance))
            return [["prices", "refresh", "--source", "prices.csv", "--dry-run"]]
        case 7:
            return foreign.of_another_tool(chance, folder)
        case 8:
            return foreign.of_answers(chance, folder)
        case 9:
            return foreign.of_configurations(chance, folder)
        case _:
            (folder / "run").mkdir()
            checkpoint(folder / "run" / chance.choice(CHECKPOINTS), chance)
            numbers = "train tiny-gpt --on trn1.2xlarge --engine functional --steps 1 --resume run"
            return [[*numbers.split(), "--global-batch", "2", "--sequence", "8"]]


CHECKPOINTS = ("step-00000001.npz", "step-99999999.npz")


def _of_a_data_file(chance: random.Random, folder: Path) -> list[list[str]]:
    path = chance.choice(FILES)
    section, name = path.parent.name, path.stem
    copy = folder / section / path.name
    _write(copy, damaged(path.read_text("utf-8"), chance))
    verb = "spec" if SECTIONS[section] == "specs" else "workload"
    use = chance.choice(USES.get(section, (f"{verb} show {name}",))).format(
        name=name, stack=name.removeprefix("training-")
    )
    return [[verb, "validate", str(copy)], [*use.split(), "--spec-dir", "."]]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
