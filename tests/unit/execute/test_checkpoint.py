"""Checkpoints: a run goes on to the bit, and a bad file never loses the one before."""

from __future__ import annotations

import errno

import numpy as np
import pytest

from trnbench.engines.execute.checkpoint import checkpoints, resume, save
from trnbench.errors import EnvironmentFault, InputError

RUN = {"model": "small", "seed": 0, "learning_rate": 0.01}
LAYOUTS = [
    {},
    {"precision": "bf16-sr", "tp": 2, "dp": 2, "pp": 2, "zero": 1},
    {"precision": "bf16-master", "dp": 2, "zero": 3},
]


@pytest.fixture
def make(small_model, small_trainer):
    """Make a fresh trainer of the same run."""

    def made(**degrees):
        return small_trainer(small_model(tied=True), exact=False, **degrees)

    return made


@pytest.mark.parametrize("degrees", LAYOUTS, ids=str)
def test_a_resumed_run_has_the_same_losses_to_the_bit(degrees, make, tmp_path):
    whole = make(**degrees)
    losses = [whole.step() for _ in range(6)]
    first = make(**degrees)
    done = [first.step() for _ in range(3)]
    save(tmp_path, first, done, RUN)
    second = make(**degrees)
    before = resume(tmp_path, second, RUN)
    assert before is not None
    assert [*before, *(second.step() for _ in range(3))] == losses
    for name, weight in whole.weights().items():
        assert (second.weights()[name] == weight).all(), name


def test_an_empty_folder_has_nothing_to_resume(make, tmp_path):
    trainer = make()
    assert resume(tmp_path / "none", trainer, RUN) is None
    assert trainer.steps_done == 0


def test_the_last_two_are_kept(make, tmp_path):
    trainer = make()
    losses = []
    for _ in range(4):
        losses.append(trainer.step())
        save(tmp_path, trainer, losses, RUN)
    assert [path.name for path in checkpoints(tmp_path)] == [
        "step-00000003.npz",
        "step-00000004.npz",
    ]


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "text", "array"])
def test_a_damaged_checkpoint_is_named_with_the_one_before(damage, make, tmp_path):
    trainer = make()
    losses = [trainer.step()]
    save(tmp_path, trainer, losses, RUN)
    losses.append(trainer.step())
    path = save(tmp_path, trainer, losses, RUN)
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 0xFF
    path.write_bytes(
        {
            "cut": bytes(content[: len(content) // 2]),
            "empty": b"",
            "text": b"step",
            "array": b"\x93NUMPY\x01\x00",
        }.get(damage, bytes(content))
    )
    fresh = make()
    with pytest.raises(InputError, match=r"step-00000002\.npz: ") as caught:
        resume(tmp_path, fresh, RUN)
    assert "step-00000001.npz" in (caught.value.hint or "")
    assert "\n" not in caught.value.message
    assert fresh.steps_done == 0
    path.unlink()
    before = resume(tmp_path, fresh, RUN)
    assert before is not None
    assert before == tuple(losses[:1])


def test_a_checkpoint_of_another_run_is_refused_with_what_differs(make, tmp_path):
    trainer = make()
    save(tmp_path, trainer, [trainer.step()], RUN)
    with pytest.raises(InputError, match="seed 0 there, 1 here") as caught:
        resume(tmp_path, make(), {**RUN, "seed": 1})
    assert "learning_rate" not in caught.value.message


def test_a_checkpoint_with_other_weights_under_the_same_name_is_refused(
    make, small_model, small_trainer, tmp_path
):
    trainer = make()
    save(tmp_path, trainer, [trainer.step()], RUN)
    wider = small_trainer(small_model(tied=True, hidden=16), exact=False)
    before = wider.weights()
    with pytest.raises(InputError, match=r"step-00000001\.npz: .* other weights"):
        resume(tmp_path, wider, RUN)
    assert all((weight == before[name]).all() for name, weight in wider.weights().items())


def test_numbers_that_were_changed_are_noticed(make, tmp_path):
    trainer = make()
    path = save(tmp_path, trainer, [trainer.step()], RUN)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["0.weights"] = arrays["0.weights"] + np.float32(1e-3)
    np.savez(path, **arrays)
    with pytest.raises(InputError, match="damaged"):
        resume(tmp_path, make(), RUN)


def full(file, **_):
    file.write(b"half a file")
    raise OSError(errno.ENOSPC, "No space left on device")


def killed(file, **_):
    file.write(b"half a file")
    raise KeyboardInterrupt


def test_a_full_disk_is_one_line_and_leaves_the_checkpoint_before(make, tmp_path, monkeypatch):
    trainer = make()
    losses = [trainer.step()]
    save(tmp_path, trainer, losses, RUN)
    losses.append(trainer.step())
    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(EnvironmentFault, match="No space left on device") as caught:
        save(tmp_path, trainer, losses, RUN)
    assert "\n" not in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001.npz"]
    before = resume(tmp_path, make(), RUN)
    assert before is not None
    assert before == tuple(losses[:1])


def test_a_write_that_was_killed_half_way_counts_for_nothing(make, tmp_path, monkeypatch):
    trainer = make()
    losses = [trainer.step()]
    save(tmp_path, trainer, losses, RUN)
    losses.append(trainer.step())
    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", killed)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, trainer, losses, RUN)
    assert [path.suffix for path in sorted(tmp_path.iterdir())] == [".npz"]
    fresh = make()
    before = resume(tmp_path, fresh, RUN)
    assert before is not None
    again = [*before, fresh.step()]
    assert again == losses
    save(tmp_path, fresh, again, RUN)
    assert {path.suffix for path in tmp_path.iterdir()} == {".npz"}


def test_a_folder_that_cannot_be_made_is_an_environment_fault(make, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EnvironmentFault, match="cannot write a checkpoint"):
        save(tmp_path / "file" / "runs", make(), [], RUN)
