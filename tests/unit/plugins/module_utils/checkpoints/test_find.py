"""Real checkpoints of each framework: complete ones are accepted, and each injected defect is detected."""

from __future__ import annotations

import json
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._checkpoints import find
from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import Checkpoint
from ansible_collections.muster.training.plugins.module_utils._checkpoints.find import find_checkpoints

ARCHIVE = Path(__file__).resolve().parents[3] / "fixtures" / "checkpoints" / "checkpoints.tar.xz"
VERSION = "lightning_logs/version_0/checkpoints"
# name: format, checkpoints (newest first), ranks, whether it cannot be loaded by a different number of ranks
REAL = {
    "transformers": ("transformers", [("checkpoint-4", 4), ("checkpoint-2", 2)], 2, False),
    "deepspeed": ("deepspeed", [("global_step2", 2), ("global_step1", 1)], 2, False),
    "zero1": ("deepspeed", [("global_step2", 2), ("global_step1", 1)], 2, True),
    "zero3": ("deepspeed", [("global_step2", 2), ("global_step1", 1)], 2, True),
    "fsdp": ("dcp", [("step-20", 20), ("step-10", 10)], None, False),
}


@pytest.fixture
def real(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path)  # our own archive; Debian's Python 3.11 has no filters
    return tmp_path


def newest(directory: Path) -> Checkpoint:
    return find_checkpoints(str(directory))[0]


def cuts(size: int) -> Iterator[int]:
    """Yield the sizes to truncate to: every 1,000th byte, the first and last bytes, and zero."""
    yield from sorted({0, 1, 4, 8, 100, *range(1000, size, 1000), size - 23, size - 1} & set(range(size)))


@pytest.mark.parametrize("name", REAL)
def test_real_checkpoint_is_complete(real: Path, name: str) -> None:
    form, names, ranks, fixed = REAL[name]
    checkpoints = find_checkpoints(str(real / name))
    assert [(entry["name"], entry["step"]) for entry in checkpoints] == names
    for entry in checkpoints:
        assert (entry["format"], entry["complete"], entry["reason"]) == (form, True, "")
        assert (entry["world_size"], entry["fixed_world"]) == (ranks, fixed)
        assert entry["size"] >= 5000


def test_lightning_files_have_the_step_that_they_record(real: Path) -> None:
    checkpoints = find_checkpoints(str(real / "lightning"))
    names = {entry["name"].rpartition("/")[2]: entry["step"] for entry in checkpoints}
    assert names == {"last.ckpt": 4, "epoch=0-step=4.ckpt": 4, "epoch=0-step=2.ckpt": 2}
    assert all(entry["complete"] and entry["format"] == "lightning" for entry in checkpoints)


@pytest.mark.parametrize("name", [*REAL, "lightning"])
def test_truncation_at_any_byte_is_detected(real: Path, name: str) -> None:
    """Each file of the newest checkpoint, except texts that no framework needs for resuming."""
    checkpoint = newest(real / name)
    tried = 0
    for part in checkpoint["parts"]:
        if part.endswith(("config.json", "latest")):
            continue
        path = Path(checkpoint["path"]) / part if part else Path(checkpoint["path"])
        content = path.read_bytes()
        for size in cuts(len(content.rstrip())):
            path.write_bytes(content[:size])
            entries = {entry["name"]: entry for entry in find_checkpoints(str(real / name))}
            entry = entries[checkpoint["name"]]
            assert not entry["complete"], (part, size)
            assert (part.rpartition("/")[2] or path.name) in entry["reason"], entry["reason"]
            tried += 1
        path.write_bytes(content)
    assert tried >= 10
    assert newest(real / name)["complete"]


@pytest.mark.parametrize("name", REAL)
def test_missing_file_is_detected(real: Path, name: str) -> None:
    checkpoint = newest(real / name)
    optional = ("config.json", "training_args.bin")
    for part in checkpoint["parts"]:
        if part.endswith(optional):
            continue
        path = Path(checkpoint["path"]) / part
        path.rename(real / "aside")
        entry = {entry["name"]: entry for entry in find_checkpoints(str(real / name))}.get(checkpoint["name"])
        if part != "rng_state_1.pth":  # without it, nothing shows that there was a rank 1
            assert entry is not None and not entry["complete"], part
        (real / "aside").rename(path)


def test_damaged_newest_checkpoint_selects_the_older_one(real: Path) -> None:
    (real / "zero1" / "global_step2" / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    first, second = find_checkpoints(str(real / "zero1"))
    assert first["reason"] == "zero_pp_rank_1_mp_rank_00_optim_states.pt is missing (saved by 2 ranks)"
    assert (second["name"], second["complete"]) == ("global_step1", True)


def test_universal_checkpoint_fits_any_number_of_ranks(real: Path) -> None:
    """As ds_to_universal writes it: a directory for each parameter, and some files of the ranks."""
    source, target = real / "zero3" / "global_step2", real / "zero3" / "global_step2_universal"
    (target / "zero" / "0.weight").mkdir(parents=True)
    name = "zero_pp_rank_1_mp_rank_00_model_states.pt"
    (target / name).write_bytes((source / name).read_bytes())
    write_torch(target / "zero" / "0.weight" / "fp32.pt")
    entry = newest(real / "zero3")
    assert (entry["name"], entry["reason"], entry["fixed_world"]) == ("global_step2_universal", "", False)


def test_save_without_updated_latest_is_detected(real: Path) -> None:
    (real / "zero1" / "latest").write_text("global_step1")
    first, second = find_checkpoints(str(real / "zero1"))
    assert "it still names global_step1" in first["reason"]
    assert second["complete"]


def test_tag_in_latest_that_was_never_saved_is_reported(real: Path) -> None:
    (real / "zero1" / "latest").write_text("global_step9")
    entry = newest(real / "zero1")
    assert (entry["name"], entry["step"], entry["complete"]) == ("global_step9", 9, False)


def test_final_model_is_not_treated_as_the_newest_checkpoint(real: Path) -> None:
    assert (real / "transformers" / "model.safetensors").exists()
    assert [entry["name"] for entry in find_checkpoints(str(real / "transformers"))] == ["checkpoint-4", "checkpoint-2"]


def test_directory_that_is_itself_a_checkpoint(real: Path) -> None:
    entry = newest(real / "transformers" / "checkpoint-4")
    assert (entry["name"], entry["path"]) == (".", str(real / "transformers" / "checkpoint-4"))
    assert entry["complete"]


def test_deepspeed_files_inside_a_trainer_checkpoint_are_detected(real: Path) -> None:
    checkpoint = real / "transformers" / "checkpoint-4"
    for name in ("model.safetensors", "optimizer.pt"):
        (checkpoint / name).unlink()
    (real / "zero1" / "global_step2").rename(checkpoint / "global_step4")
    (checkpoint / "latest").write_text("global_step4")
    entry = newest(real / "transformers")
    assert (entry["complete"], entry["reason"], entry["fixed_world"], entry["world_size"]) == (True, "", True, 2)
    (checkpoint / "global_step4" / "zero_pp_rank_0_mp_rank_00_optim_states.pt").unlink()
    assert newest(real / "transformers")["reason"].startswith("global_step4: zero_pp_rank_0")
    (checkpoint / "latest").unlink()
    assert not newest(real / "transformers")["complete"]


def test_safetensors_shards_are_compared_with_their_index(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint-7"
    checkpoint.mkdir()
    for number in (1, 2):
        write_safetensors(checkpoint / f"model-{number}.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "../../etc/passwd"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    (checkpoint / "trainer_state.json").write_text('{"global_step": 7}')
    assert newest(tmp_path)["complete"]
    (checkpoint / "model-2.safetensors").unlink()
    assert newest(tmp_path)["reason"] == "model-2.safetensors is missing"


def write_safetensors(path: Path, size: int = 16, header: bytes | None = None) -> None:
    tensor = {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}
    text = header if header is not None else json.dumps({"w": tensor, "__metadata__": {"format": "pt"}}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(size))


@pytest.mark.parametrize(
    ("header", "complete"),
    [
        (None, True),
        (b"{}", False),  # bytes that do not belong to any tensor
        (b"[" * 100_000, False),
        (b'{"w": {"data_offsets": [0, 99]}}', False),
        (b'{"w": {"data_offsets": ["0", 16]}}', False),
        (b'{"w": {"data_offsets": [0, ' + b"9" * 10_000 + b"]}}", False),
    ],
)
def test_hostile_safetensors(tmp_path: Path, header: bytes | None, complete: bool) -> None:
    write_safetensors(tmp_path / "step-1.safetensors", header=header)
    assert newest(tmp_path)["complete"] is complete


def test_header_of_exabytes_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "step-1.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}")
    assert "truncated" in newest(tmp_path)["reason"]


def write_torch(path: Path, data: bytes = b"\x80\x02}.", compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/data/0", bytes(64))


def test_nothing_in_a_pickle_is_executed(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path}/executed",)

    write_torch(tmp_path / "step=3.ckpt", pickle.dumps({"bomb": Bomb(), "global_step": 5}))
    entry = newest(tmp_path)
    assert (entry["step"], entry["complete"]) == (5, True)
    assert not (tmp_path / "executed").exists()


def test_zip_bomb_is_not_decompressed(tmp_path: Path) -> None:
    write_torch(tmp_path / "step=3.ckpt", bytes(2**26), zipfile.ZIP_DEFLATED)
    entry = newest(tmp_path)
    assert (entry["step"], entry["complete"]) == (3, True)


def test_false_zip_directory_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "step=3.ckpt"
    write_torch(path)
    content = path.read_bytes()
    for entries, length, start in ((2, 2**31, 0), (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF), (9, 118, 3), (2, 0, 0)):
        path.write_bytes(content[:-14] + struct.pack("<HHLLH", entries, entries, length, start, 0))
        assert not newest(tmp_path)["complete"]


@pytest.mark.parametrize(
    "data", [b"\x80", b"\x80\x04\x8e" + b"\xff" * 8, b"\x80\x04\x95" * 1000, b"I" + b"9" * 10**6, b"\xff"]
)
def test_pickle_that_never_ends_does_not_block(tmp_path: Path, data: bytes) -> None:
    write_torch(tmp_path / "step=3.ckpt", data)
    assert newest(tmp_path)["step"] == 3
    directory = tmp_path / "dcp"
    directory.mkdir()
    (directory / ".metadata").write_bytes(b"\x80\x04" + data + b"__0_0.distcp.")
    assert newest(directory)["reason"] == "__0_0.distcp is missing"


def test_links_pipes_and_directories_do_not_count_as_checkpoint_files(tmp_path: Path, real: Path) -> None:
    """A link may lead to a dead mount, and a pipe may block forever."""
    checkpoint = real / "transformers" / "checkpoint-4"
    (checkpoint / "trainer_state.json").unlink()
    os.mkfifo(checkpoint / "trainer_state.json")
    assert newest(real / "transformers")["reason"] == "trainer_state.json, which is written last, is missing"
    (checkpoint / "trainer_state.json").unlink()
    (checkpoint / "trainer_state.json").symlink_to("/dev/zero")
    assert not newest(real / "transformers")["complete"]
    (real / "transformers" / "checkpoint-9").symlink_to(checkpoint)
    (real / "transformers" / "loop").symlink_to(real / "transformers")
    os.mkfifo(real / "transformers" / "step-99.pt")
    assert newest(real / "transformers")["name"] == "checkpoint-4"
    os.mkfifo(real / "zero1" / "pipe")
    (real / "zero1" / "latest").unlink()
    os.mkfifo(real / "zero1" / "latest")
    assert newest(real / "zero1")["reason"] == "latest, which is written last, is missing"


def test_number_of_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "MAX_PARTS", 50)
    monkeypatch.setattr(find, "MAX_SCANNED", 300)
    directory = tmp_path / "step-4"
    directory.mkdir()
    for number in range(100):
        (directory / f"{number}.pt").touch()
    assert "more than 50 files" in " ".join(newest(tmp_path)["damaged"].values())
    for number in range(1000):
        (tmp_path / f"data{number}").touch()
    scan = find.Scan(str(tmp_path))
    assert len(list(scan)) <= 300 and scan.truncated


def test_hundred_thousand_files_are_scanned_within_limits(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"d{number}").mkdir()
        for name in range(10):
            (tmp_path / f"d{number}" / f"{name}.txt").touch()
    scan = find.Scan(str(tmp_path))
    assert list(scan) == []
    assert scan.scanned == 2200


@pytest.mark.parametrize("content", ["missing", "file", "empty"])
def test_no_checkpoint(tmp_path: Path, content: str) -> None:
    path = tmp_path / "out"
    if content == "file":
        path.touch()
    elif content == "empty":
        path.mkdir()
    assert find_checkpoints(str(path)) == []


def test_weights_that_a_job_reads_are_not_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "data" / "embeddings").mkdir(parents=True)
    write_torch(tmp_path / "data" / "embeddings" / "vocabulary.pt")
    (tmp_path / "checkpoints").mkdir()
    write_torch(tmp_path / "checkpoints" / "last.pt")
    write_torch(tmp_path / "checkpoints" / "epoch_12.pt")
    entries = find_checkpoints(str(tmp_path))
    assert [(entry["name"], entry["step"], entry["unit"]) for entry in entries] == [
        ("checkpoints/epoch_12.pt", 12, "epoch"),
        ("checkpoints/last.pt", None, "step"),
    ]


def test_run_named_after_its_epochs_is_searched(real: Path) -> None:
    (real / "transformers").rename(real / "lr-3e-4-epochs10")
    (real / "lr-3e-4-epochs10" / "model.pt").touch()
    assert newest(real)["name"] == "lr-3e-4-epochs10/checkpoint-4" or newest(real)["step"] == 20


def test_fsdp_shards_without_dcp_need_the_same_ranks(tmp_path: Path) -> None:
    directory = tmp_path / "step-8"
    directory.mkdir()
    for rank in (0, 1, 2):
        write_torch(directory / f"pytorch_model_fsdp_rank{rank}.bin")
    entry = newest(tmp_path)
    assert (entry["complete"], entry["world_size"], entry["fixed_world"]) == (True, 3, True)
    (directory / "pytorch_model_fsdp_rank1.bin").unlink()
    assert newest(tmp_path)["reason"] == "the shard of rank 1 is missing"
