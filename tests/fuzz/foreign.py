"""Inputs that other programs wrote, damaged: logs, sweeps, monitors, configurations, answers."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.texts import BYTES, JUNK, NUMBERS, STEPS, damaged

HERE = Path(__file__).parent
SAMPLES = sorted(
    path for path in (HERE.parent / "samples").iterdir() if path.suffix != ".md" and path.is_file()
)
GOLDEN = HERE.parent / "golden"
_RUN = "--model llama3.1-8b --on trn1.32xlarge:2 --tp 8 --global-batch 64 --sequence 2048"
OF_SAMPLES: dict[str, tuple[str, ...]] = {
    "nccl": (
        "validate --evidence {file} --on p5.48xlarge:2",
        "calibrate {file} --stack mine --on p5.48xlarge:2",
    ),
    "neuron_": ("explain steps.csv {file}", "validate --evidence {file}"),
    "": (
        f"explain {{file}} {_RUN}",
        f"calibrate {{file}} --stack nxd-trn1 {_RUN}",
        "validate --evidence {file}",
    ),
}
"""Command lines that read a sample, by how its name begins; the first that fits."""
SMI = (
    "timestamp, index, utilization.gpu [%], memory.used [MiB]\n"
    "2026/11/01 10:00:00.000, 0, 97 %, 60123 MiB\n"
    "2026/11/01 10:00:00.002, 1, 96 %, 60125 MiB\n"
)
PLAIN = (
    "step_time_ms: 1200\nstep_time_ms: 1210\n",
    "step time (s): 1.2\nstep time (s): 1.3\n",
    "1: train_step_timing in s: 1.2\n1: train_step_timing in s: 1.3\n",
    "step 1 4,500 tokens/s\nstep 2 4,510 tokens/s\n",
)
CONFIGS: dict[str, str] = {
    "job.sh": (
        "#!/bin/bash\nTP=8\nPP=${PP:-1}\nGPT_ARGS=(\n  --tensor-model-parallel-size $TP\n"
        "  --pipeline-model-parallel-size $PP --micro-batch-size 1 --global-batch-size 64\n"
        "  --seq-length 2048 --bf16 --recompute-granularity selective\n"
        "  --recompute-modules core_attn\n)\n"
        'torchrun --nproc_per_node 8 pretrain_gpt.py "${GPT_ARGS[@]}"\n'
    ),
    "job.toml": (
        "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 1\n"
        "global_batch_size = 64\nseq_len = 2048\nsteps = 10\n[parallelism]\n"
        "tensor_parallel_degree = 8\npipeline_parallel_degree = 1\n"
        "[activation_checkpoint]\nmode = 'selective'\n"
    ),
    "job.yaml": (
        "name: run\ntrainer:\n  devices: 32\n  num_nodes: 2\n  max_steps: 10\n"
        "distributed_strategy:\n  tensor_model_parallel_size: 8\n"
        "  pipeline_model_parallel_size: 1\n  zero1: True\n"
        "data:\n  micro_batch_size: 1\n  global_batch_size: 64\n  seq_length: 2048\n"
        "model:\n  max_position_embeddings: 2048\n"
        "  activations_checkpoint_granularity: selective\nprecision:\n  type: mixed_precision\n"
    ),
}


def of_another_tool(chance: random.Random, folder: Path) -> list[list[str]]:
    """Return the lines that read a damaged log, sweep or monitor, which is written in `folder`."""
    (folder / "steps.csv").write_text(STEPS)
    roll = chance.random()
    if roll < 0.15:
        name, raw, begins = "smi.csv", SMI.encode(), "neuron_"
    elif roll < 0.35:
        name, raw, begins = "run.log", chance.choice(PLAIN).encode(), ""
    else:
        sample = chance.choice(SAMPLES)
        name, raw = sample.name, sample.read_bytes()
        begins = next(begin for begin in OF_SAMPLES if name.startswith(begin))
    (folder / name).write_bytes(damaged_bytes(raw, chance))
    return [chance.choice(OF_SAMPLES[begins]).format(file=name).split()]


def damaged_bytes(raw: bytes, chance: random.Random) -> bytes:
    """Return the content of a file with what may befall it on the way: cut, joined, overwritten."""
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(raw) + 1)
        match chance.randrange(7):
            case 0:
                raw = raw[:at]
            case 1:
                raw = raw.rstrip(b"\n")
            case 2:
                raw = raw[:at] + chance.choice(BYTES) + raw[at + chance.randrange(2) :]
            case 3:
                raw = raw.replace(b"\n", chance.choice((b"\r", b"\r\n", b"", b" ")))
            case 4:
                raw = raw[:at] + raw[at:][: chance.randint(1, 200)] * 2 + raw[at:]
            case _:
                text = damaged(raw.decode("utf-8", "surrogateescape"), chance)
                raw = text.encode("utf-8", "surrogatepass")
    return raw


def of_answers(chance: random.Random, folder: Path) -> list[list[str]]:
    """Return the lines that read a damaged answer in JSON: a diff, a launch, a verification."""
    answer = json.loads((GOLDEN / "train.json").read_text("utf-8"))
    whole = json.dumps(answer)
    row = answer["rows"][0]
    match chance.randrange(3):
        case 0:
            line = "runs diff a.json b.json"
        case 1:
            line = "launch b.json --stack nxdt --with slurm"
        case _:
            answer["schema"], row["stack"] = "trnbench.launch/1", "nxdt"
            answer["rows"] = [row]
            line = "verify . run.log"
    for _ in range(chance.randint(0, 3)):
        place = chance.choice([answer, row, row, row, answer.get("inputs"), answer.get("summary")])
        if place and isinstance(place, dict):
            place[chance.choice([*place])] = chance.choice(
                [*JUNK, *map(_number, NUMBERS), None, [], {}, True, -1, [[]], 10**350, "any"]
            )
    text = json.dumps(answer)
    text = damaged(text, chance) if chance.random() < 0.4 else text
    (folder / "a.json").write_text(whole)
    (folder / "run.log").write_text(PLAIN[0])
    for name in ("b.json", "prediction.json"):
        (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    return [line.split()]


def _number(text: str) -> float | str:
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return text


def of_configurations(chance: random.Random, folder: Path) -> list[list[str]]:
    """Return the lines that read a damaged configuration of training software."""
    name = chance.choice([*CONFIGS])
    (folder / name).write_bytes(damaged_bytes(CONFIGS[name].encode(), chance))
    return [["train", "llama3.1-8b", "--on", "trn1.32xlarge:2", "--config", name]]


def kept(folder: Path) -> list[tuple[int, Sequence[str]]]:
    """Return what was found before: exit codes and command lines; the files are in `folder`.

    A line of `lines.txt` is an exit code and a command line; `#` begins a remark.
    """
    for path in filter(Path.is_file, (HERE / "corpus").iterdir()):
        (folder / path.name).write_bytes(path.read_bytes())
    found: list[tuple[int, Sequence[str]]] = []
    for text in (HERE / "corpus" / "lines.txt").read_text("utf-8").splitlines():
        if text and not text.startswith("#"):
            code, line = text.split(maxsplit=1)
            found.append((int(code), shlex.split(line)))
    return found
