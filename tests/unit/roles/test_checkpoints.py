"""Completeness, upload and manifest of checkpoints, with a fake S3 server."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._checkpoint_service import checkpoints, copier, local
from ansible_collections.muster.training.plugins.module_utils._checkpoint_service import service as service_module
from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._files import bounded
from ansible_collections.muster.training.plugins.module_utils._run.internal_files import INTERNAL_NAMES
from ansible_collections.muster.training.plugins.module_utils._s3_client.s3 import s3_errors
from tests.support.s3_server import S3Server

MIB = 2**20


def test_status_file_is_not_an_output_of_the_job() -> None:
    assert local.STATUS in INTERNAL_NAMES


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with S3Server(buckets=["saved"]) as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
        yield server
        client = server.client()
        for entry in client.list_objects_v2(Bucket="saved").get("Contents", ()):
            client.delete_object(Bucket="saved", Key=entry["Key"])
        for upload in client.list_multipart_uploads(Bucket="saved").get("Uploads", ()):
            client.abort_multipart_upload(Bucket="saved", Key=upload["Key"], UploadId=upload["UploadId"])
        client.delete_bucket(Bucket="saved")


def make_run(root: Path, node_rank: int = 0, run_id: str = "first", state: str = "succeeded") -> Path:
    directory = root / run_id / f"node{node_rank}"
    (directory / "checkpoints").mkdir(parents=True)
    plan = {"run_id": run_id, "node": {"name": f"n{node_rank}", "node_rank": node_rank}, "nodes": [{}, {}]}
    (directory / "plan.json").write_text(json.dumps(plan))
    (directory / "status.json").write_text(json.dumps({"state": state}))
    return directory


@pytest.fixture
def settings(s3: S3Server, tmp_path: Path) -> dict[str, Any]:
    return {
        "bucket": "saved", "prefix": "mine/", "directory": "checkpoints", "patterns": ["*"], "patterns_at_end": [],
        "exclude": [".*", "*.tmp"], "stable_for": 0, "marker": "", "interval": 0.1, "nodes": "first", "versions": 2,
        "keep_local": 0, "bandwidth": 0, "free_gib": 0, "runs_directory": str(tmp_path / "runs"), "region": s3.region,
        "endpoint_url": s3.url,
    }  # fmt: skip


def read_manifest(s3: S3Server, run_id: str = "first") -> dict[str, Any]:
    response = s3.client().get_object(Bucket="saved", Key=f"mine/{run_id}/node0/latest.json")
    manifest: dict[str, Any] = json.loads(response["Body"].read())
    return manifest


def copied_files(s3: S3Server, run_id: str = "first") -> dict[str, bytes]:
    """Return the content of all files that the manifest names, after verifying their checksums."""
    client = s3.client()
    bodies: dict[str, bytes] = {}
    for entry in read_manifest(s3, run_id)["checkpoints"]:
        for file in entry["files"]:
            body = client.get_object(Bucket="saved", Key=file["key"])["Body"].read()
            assert hashlib.sha256(body).hexdigest() == file["sha256"]
            assert len(body) == file["size"]
            bodies.setdefault(f"{entry['name']}/{file['path']}".rstrip("/"), body)
    return bodies


def copy_all(settings: dict[str, Any]) -> Any:
    service = service_module.CheckpointService(settings)
    runs = local.find_runs(settings)
    while any(service.copy_next(run) for run in runs):
        pass
    return service


def test_files_and_directories_are_copied(settings: dict[str, Any], s3: S3Server, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs") / "checkpoints"
    make_run(tmp_path / "runs", 1)
    (folder / "last.pt").write_bytes(b"last")
    (folder / "step" / "deep").mkdir(parents=True)
    (folder / "step" / "deep" / "shard").write_bytes(b"shard")
    (folder / "half.tmp").write_bytes(b"half")
    (folder / ".hidden").write_bytes(b"hidden")
    copy_all(settings)
    assert copied_files(s3) == {"last.pt": b"last", "step/deep/shard": b"shard"}
    assert not s3.client().list_objects_v2(Bucket="saved", Prefix="mine/first/node1").get("Contents")
    status = json.loads((folder.parent / "checkpoints.json").read_text())
    assert (status["alive"], status["pending"]) == (False, [])
    s3.requests.clear()
    copy_all(settings)
    assert not [path for method, path in s3.requests if method != "GET"], "a file was copied twice"


def test_interrupted_upload_resumes_with_missing_parts(
    settings: dict[str, Any], s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "runs") / "checkpoints"
    body = os.urandom(70 * MIB)
    (folder / "big.pt").write_bytes(body)
    judge, uploaded_parts = s3._judge, []

    def fail_after_two_parts(environ: dict[str, Any]) -> tuple[str, dict[str, str]]:
        if environ["REQUEST_METHOD"] == "PUT":
            uploaded_parts.append(environ["QUERY_STRING"])
        return ("AccessDenied", {}) if len(uploaded_parts) > 2 else judge(environ)

    monkeypatch.setattr(s3, "_judge", fail_after_two_parts)
    monkeypatch.setattr(copier, "THREADS", 1)
    with pytest.raises(Exception, match="AccessDenied"):
        copy_all(settings)
    monkeypatch.undo()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    s3.requests.clear()
    copy_all(settings)
    assert copied_files(s3) == {"big.pt": body}
    assert sum(method == "PUT" and "big.pt" in path for method, path in s3.requests) == 3, (
        "two of five parts were uploaded before"
    )


def test_checkpoint_changed_during_copy_is_not_recorded(
    settings: dict[str, Any], s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "runs") / "checkpoints"
    (folder / "last.pt").write_bytes(b"before")
    put = copier.CheckpointCopier.put

    def put_and_change(self: Any, key: str, body: bytes) -> str:
        (folder / "last.pt").write_bytes(b"after that")
        return str(put(self, key, body))

    monkeypatch.setattr(copier.CheckpointCopier, "put", put_and_change)
    service = service_module.CheckpointService(settings)
    assert service.copy_next(local.find_runs(settings)[0]) is False
    assert "Contents" not in s3.client().list_objects_v2(Bucket="saved"), "data or a manifest was kept"
    monkeypatch.setattr(copier.CheckpointCopier, "put", put)
    copy_all(settings)
    assert copied_files(s3) == {"last.pt": b"after that"}


def test_old_versions_and_local_files_are_removed_as_configured(
    settings: dict[str, Any], s3: S3Server, tmp_path: Path
) -> None:
    folder = make_run(tmp_path / "runs") / "checkpoints"
    for number in range(4):
        (folder / "last.pt").write_bytes(b"%d" % number)
        (folder / f"step-{number}").write_bytes(b"step")
        copy_all(settings)
    keys = s3.client().list_objects_v2(Bucket="saved", Prefix="mine/first/node0/data/last.pt@")["Contents"]
    assert len(keys) == 2
    assert len(list(folder.iterdir())) == 5, "a local file was removed"
    (folder / "step-4").write_bytes(b"step")
    copy_all({**settings, "keep_local": 2})
    assert len(list(folder.iterdir())) == 2
    assert len(copied_files(s3)) == 6, "a checkpoint is missing in S3"


@pytest.mark.parametrize(
    "refused", ["PUT .*partNumber=3", "PUT .*latest.json", "GET .*list-type=2"], ids=["data", "manifest", "sweep"]
)
def test_leftovers_of_interrupted_upload_are_removed_with_next_version(
    settings: dict[str, Any], s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    refused: str,
) -> None:  # fmt: skip
    folder = make_run(tmp_path / "runs") / "checkpoints"
    judge = s3._judge

    def refuse_matching(environ: dict[str, Any]) -> tuple[str, dict[str, str]]:
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        return ("AccessDenied", {}) if re.match(refused, request) else judge(environ)

    for number in range(5):
        (folder / "big.pt").write_bytes(b"%d" % number * (40 * MIB if "part" in refused else 1))
        monkeypatch.setattr(s3, "_judge", judge if number in (0, 4) else refuse_matching)
        try:
            copy_all(settings)
            assert number in (0, 4)
        except s3_errors() as error:
            assert "AccessDenied" in str(error)
    client = s3.client()
    objects = client.list_objects_v2(Bucket="saved", Prefix="mine/first/node0/data/")["Contents"]
    referenced_keys = [entry["files"][0]["key"] for entry in read_manifest(s3)["checkpoints"]]
    assert sorted(entry["Key"] for entry in objects) == sorted(referenced_keys)
    assert len(referenced_keys) == 2
    assert not client.list_multipart_uploads(Bucket="saved").get("Uploads")


def make_two_checkpoints(settings: dict[str, Any], tmp_path: Path) -> tuple[Any, Path]:
    """Return a service that keeps one local checkpoint and has copied `step`, and the directory with a newer one."""
    folder = make_run(tmp_path / "runs") / "checkpoints"
    (folder / "step" / "deep").mkdir(parents=True)
    (folder / "step" / "model.pt").write_bytes(b"model")
    (folder / "step" / "deep" / "shard").write_bytes(b"shard")
    settings["keep_local"] = 1
    service = copy_all(settings)
    (folder / "newer").write_bytes(b"newer")
    return service, folder


def test_change_with_an_older_mtime_is_copied_before_local_removal(
    settings: dict[str, Any], s3: S3Server, tmp_path: Path
) -> None:
    service, folder = make_two_checkpoints(settings, tmp_path)
    (folder / "step" / "late").write_bytes(b"late")
    (folder / "step" / "model.pt").write_bytes(b"MODEL")
    for name in ("late", "model.pt"):  # preserve modification times, like rsync -t, cp -p and tar
        os.utime(folder / "step" / name, (1e9, 1e9))
    before = {"step/model.pt": b"model", "step/deep/shard": b"shard"}
    assert copied_files(s3) == before
    run = local.find_runs(settings)[0]
    assert service.copy_next(run) is True
    assert copied_files(s3) == {**before, "newer": b"newer"}
    assert (folder / "step" / "late").exists(), "removed without a copy in S3"
    service.copy_next(run)
    after = {"newer": b"newer", "step/model.pt": b"MODEL", "step/deep/shard": b"shard", "step/late": b"late"}
    assert copied_files(s3) == after
    assert [path.name for path in folder.iterdir()] == ["newer"]


def test_version_copied_last_is_kept_even_if_its_files_are_older(
    settings: dict[str, Any], s3: S3Server, tmp_path: Path
) -> None:
    last = make_run(tmp_path / "runs") / "checkpoints" / "last.pt"
    settings["versions"] = 1
    for number, changed in enumerate((2e9, 1e9)):
        last.write_bytes(b"%d" % number)
        os.utime(last, (changed, changed))
        copy_all(settings)
        assert copied_files(s3) == {"last.pt": b"%d" % number}


@pytest.mark.parametrize(
    "lost", [pytest.param(None, id="gone", marks=pytest.mark.thorough), pytest.param(b"cut", id="shorter")]
)
def test_checkpoint_lost_in_s3_is_kept_locally_and_copied_again(
    settings: dict[str, Any], s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    lost: bytes | None,
) -> None:  # fmt: skip
    service, folder = make_two_checkpoints(settings, tmp_path)
    key = next(file["key"] for file in read_manifest(s3)["checkpoints"][0]["files"] if file["path"] == "deep/shard")
    if lost is None:
        s3.client().delete_object(Bucket="saved", Key=key)
    else:
        s3.client().put_object(Bucket="saved", Key=key, Body=lost)
    run = local.find_runs(settings)[0]
    service.copy_next(run)
    assert (folder / "step" / "deep" / "shard").read_bytes() == b"shard"
    assert f"step was copied, but {key} is now missing or incomplete in S3" in capsys.readouterr().out
    assert json.loads((folder.parent / local.STATUS).read_text())["pending"] == ["step"]
    service.copy_next(run)
    assert copied_files(s3) == {"newer": b"newer", "step/model.pt": b"model", "step/deep/shard": b"shard"}
    assert [path.name for path in folder.iterdir()] == ["newer"]


def test_file_added_during_local_removal_is_kept(
    settings: dict[str, Any], s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, folder = make_two_checkpoints(settings, tmp_path)
    fwalk = os.fwalk

    def add_and_walk(*arguments: Any, **options: Any) -> Any:
        (folder / "step" / "deep" / "late").write_bytes(b"late")
        return fwalk(*arguments, **options)

    monkeypatch.setattr(os, "fwalk", add_and_walk)
    service.copy_next(local.find_runs(settings)[0])
    assert (folder / "step" / "deep" / "late").read_bytes() == b"late"


@pytest.mark.parametrize("name", ["step", pytest.param("last.pt", marks=pytest.mark.thorough)])
def test_failed_local_removal_is_reported_once(  # noqa: PLR0913
    settings: dict[str, Any], s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], name: str,
) -> None:  # fmt: skip
    def raise_busy(*_arguments: Any, **_options: Any) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    folder = make_run(tmp_path / "runs") / "checkpoints"
    run = local.find_runs(settings)[0]
    (folder / "step").mkdir()
    (folder / "step" / "shard").write_bytes(b"1")
    (folder / "last.pt").write_bytes(b"1")
    service = copy_all(settings)
    service.settings["keep_local"] = 1
    checkpoints = local.find_checkpoints(str(folder), settings)
    capsys.readouterr()
    first, second = sorted(checkpoints, key=lambda checkpoint: checkpoint.name != name)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir" if name == "step" else "unlink", raise_busy)
        for _round in range(2):
            service.prune(run, [second, first])
    output = capsys.readouterr().out
    assert output.count(f"{first.path} is in S3, but cannot be removed from this disk (Device or resource busy)") == 1
    assert "was removed" not in output
    service.prune(run, [second, first])
    assert f"{name} is in S3 and was removed from this disk" in capsys.readouterr().out
    assert [path.name for path in folder.iterdir()] == [second.name]


def test_checkpoint_with_too_many_levels_is_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    for depth in (local.MAX_DEPTH, 1500):
        directory = tmp_path / str(depth)
        directory.mkdir()
        descriptor = os.open(directory, os.O_RDONLY)
        for _level in range(depth):
            os.mkdir("d", dir_fd=descriptor)
            child = os.open("d", os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = child
        os.close(os.open("shard", os.O_WRONLY | os.O_CREAT, dir_fd=descriptor))
        os.close(descriptor)
    checkpoint = local.read_checkpoint(str(tmp_path / str(local.MAX_DEPTH)), "step", "")
    assert checkpoint is not None and len(checkpoint.files) == 1
    local.remove_checkpoint(checkpoint, "")
    with pytest.raises(StepError, match="has more than 100 directory levels"):
        local.read_checkpoint(str(tmp_path / "1500"), "step", "")
    bounded.remove_tree(str(tmp_path / "1500"))  # pytest could not


def test_unreadable_checkpoint_is_not_copied_in_part(
    settings: dict[str, Any], s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "runs") / "checkpoints"
    (folder / "step" / "deep").mkdir(parents=True)
    (folder / "step" / "shard").write_bytes(b"1")
    (folder / "step" / "deep" / "shard").write_bytes(b"2")
    (folder / "lost+found").mkdir()
    unreadable = {"step/deep", "lost+found"}

    def guarded(read: Callable[[str], Any]) -> Callable[[str], Any]:
        def guarded_read(path: str) -> Any:
            if os.path.relpath(path, folder) in unreadable:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return read(path)

        return guarded_read

    monkeypatch.setattr(os, "scandir", guarded(os.scandir))
    monkeypatch.setattr(os, "listdir", guarded(os.listdir))
    with pytest.raises(StepError, match=r"checkpoints/step/deep cannot be read \(Permission denied\)"):
        copy_all(settings)
    unreadable.add(".")
    with pytest.raises(StepError, match=r"checkpoints cannot be read \(Permission denied\)"):
        copy_all(settings)
    assert "Contents" not in s3.client().list_objects_v2(Bucket="saved")
    with pytest.raises(StepError, match="some checkpoints of first have not been copied"):
        checkpoints.wait({**settings, "wait_timeout": 0}, "first")
    unreadable -= {".", "step/deep"}
    copy_all(settings)
    assert copied_files(s3) == {"step/shard": b"1", "step/deep/shard": b"2"}
    assert local.find_checkpoints(str(folder / "none"), settings) == []
    assert local.find_checkpoints(str(folder / "step" / "shard"), settings) == []


def test_checkpoint_is_complete_once_stable_or_marked(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "step").mkdir()
    (tmp_path / "step" / "shard").write_bytes(b"1")
    (tmp_path / "one.pt").write_bytes(b"1")

    def completeness(**overrides: Any) -> list[bool]:
        changed_settings = {**settings, **overrides}
        checkpoints = {
            checkpoint.name: checkpoint for checkpoint in local.find_checkpoints(str(tmp_path), changed_settings)
        }
        return [local.is_complete(checkpoints[name], changed_settings, time.time()) for name in ("step", "one.pt")]

    assert completeness(stable_for=30) == [False, False]
    assert completeness(stable_for=0) == [True, True]
    assert completeness(marker="done") == [False, False]
    (tmp_path / "step" / "done").touch()
    (tmp_path / "one.pt.done").touch()
    assert completeness(marker="done") == [True, True]


def test_absolute_directory_without_run_id_does_not_identify_its_run(settings: dict[str, Any]) -> None:
    assert local.has_directory_per_run(settings)
    assert local.has_directory_per_run({**settings, "directory": "/srv/{run_id}"})
    assert not local.has_directory_per_run({**settings, "directory": "/srv/out"})
    assert not local.has_directory_per_run({**settings, "directory": "~/out"})


def test_low_disk_space_is_reported_once(
    settings: dict[str, Any], s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(tmp_path / "runs", state="running") / "checkpoints"
    (folder / "last.pt").write_bytes(b"last")
    service = service_module.CheckpointService({**settings, "free_gib": 1e9})
    run = local.find_runs(settings)[0]
    service.copy_next(run)
    service.copy_next(run)
    assert capsys.readouterr().out.count("WARNING") == 1


def test_run_with_a_problem_is_reported_once_and_blocks_no_other(
    settings: dict[str, Any], s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run_id in ("first", "second"):
        step = make_run(tmp_path / "runs", run_id=run_id) / "checkpoints" / "step"
        step.mkdir()
        (step / "shard").write_bytes(b"1")
    (step / "optimizer").symlink_to(tmp_path / "gone")
    service = service_module.CheckpointService({**settings, "interval": 0})

    def attend() -> str:
        for run in local.find_runs(settings):
            service.copy_with_backoff(run)
        return capsys.readouterr().out

    status = tmp_path / "runs" / "second" / "node0" / local.STATUS
    message = (
        f"second node0: checkpoints are not being copied to S3: {step}/optimizer points to {tmp_path}/gone, which does"
    )
    assert message in attend() and "not copied" not in attend()
    assert copied_files(s3) == {"step/shard": b"1"}
    assert "points to" in json.loads(status.read_text())["problem"]
    (tmp_path / "gone").write_bytes(b"2")
    assert "second node0: checkpoints are being copied to S3 again" in attend()
    assert copied_files(s3, "second") == {"step/shard": b"1", "step/optimizer": b"2"}
    assert json.loads(status.read_text())["problem"] == ""
    assert attend() == ""


def test_retries_back_off_up_to_two_minutes(
    settings: dict[str, Any], s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "runs")
    service = service_module.CheckpointService({**settings, "interval": 10})
    run = local.find_runs(settings)[0]
    now, tries = 1000.0, list[float]()

    def refuse(_run: Any) -> bool:
        tries.append(now)
        raise StepError("no")

    monkeypatch.setattr(service, "copy_next", refuse)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    while len(tries) < 7:
        service.copy_with_backoff(run)
        now += 1
    assert [later - earlier for earlier, later in zip(tries, tries[1:], strict=False)] == [10, 20, 40, 80, 120, 120]


def test_wait_ends_when_everything_is_copied_or_at_the_timeout(
    settings: dict[str, Any], s3: S3Server, tmp_path: Path
) -> None:
    folder = make_run(tmp_path / "runs") / "checkpoints"
    (folder / "last.pt").write_bytes(b"last")
    with pytest.raises(Exception, match="after 0 s, some checkpoints of first have not been copied"):
        checkpoints.wait({**settings, "wait_timeout": 0}, "first")
    copy_all(settings)
    result = checkpoints.wait({**settings, "wait_timeout": 0}, "first")
    assert result["copied"]["node0"] == {"to": "s3://saved/mine/first/node0", "checkpoints": ["last.pt (4 B)"]}
