"""The node program of the role checkpoints: copy the checkpoints of runs to S3, during and after the run.

    checkpoints.py serve SETTINGS           run forever, as a service
    checkpoints.py wait SETTINGS RUN_ID     wait until all of a run's checkpoints are copied

Each run below the runs' directory has a directory of checkpoints. Each entry in it, a file or a directory, is a
checkpoint. It is copied when it has not changed for some seconds, or when its marker exists. The data is uploaded
first, each version under its own key; then latest.json names it, with sizes and SHA-256, so whatever it names is
complete. An interrupted upload resumes with the parts that S3 has. All state is in S3, none on the node.
"""

from __future__ import annotations

import base64
import collections
import concurrent.futures
import contextlib
import datetime
import fnmatch
import glob
import hashlib
import itertools
import json
import os
import shutil
import stat
import sys
import time
from typing import Any, NamedTuple

from s3 import S3_ERRORS, FileChangedError, choose_part_size, compute_etag, create_client, error_code, explain
from transfer import RateLimiter, TransferError, format_size, read_pieces

MARK = "MUSTER-RESULT "
THREADS = 4
ACTIVE = ("starting", "running", "stopping")
MAX_RETRY_DELAY = 120.0  # seconds between attempts while S3 fails
STATUS = "checkpoints.json"


class CheckpointFile(NamedTuple):
    """A file of a checkpoint. Its path is relative to the checkpoint, empty if the file is the checkpoint."""

    path: str
    size: int
    modified_ns: int
    inode: int


class Checkpoint(NamedTuple):
    """One checkpoint of a run."""

    name: str
    path: str
    files: tuple[CheckpointFile, ...]
    changed_at: float  # time of the last change to its files or their names

    @property
    def stamp(self) -> str:
        """The version: UTC time of the newest file, and a digest of the paths, sizes and times of all files."""
        newest = max(file.modified_ns for file in self.files)
        when = datetime.datetime.fromtimestamp(newest // 10**9, datetime.timezone.utc)
        files = sorted((file.path, file.size, file.modified_ns) for file in self.files)
        digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
        return f"{when:%Y%m%dT%H%M%S}.{newest % 10**9:09}-{digest[:16]}"

    @property
    def size(self) -> int:
        """Total bytes of the files."""
        return sum(file.size for file in self.files)


class CopyFailure(NamedTuple):
    """Why a run's checkpoints cannot be copied, and when to retry."""

    text: str
    delay: float  # seconds between attempts
    due: float  # time of the next attempt, by the monotonic clock


class LocalRun(NamedTuple):
    """A run with a directory on this node."""

    directory: str
    run_id: str
    node: str
    node_rank: int
    nnodes: int


# --- Local runs and checkpoints ---------------------------------------------------------------------------------------


def read_json(path: str) -> Any:
    """Return the content of a file, or None if it is missing or incomplete."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def write_json(path: str, value: Any) -> None:
    """Write a file atomically."""
    with open(path + ".new", "w", encoding="utf-8") as stream:
        json.dump(value, stream, indent=1)
    os.replace(path + ".new", path)


def find_runs(settings: dict[str, Any]) -> list[LocalRun]:
    """Return the runs on this node whose checkpoints must be copied, newest first."""
    runs = []
    pattern = os.path.join(glob.escape(os.path.expanduser(settings["runs_directory"])), "*", "node*", "plan.json")
    for path in glob.glob(pattern):
        plan = read_json(path)
        if plan and (settings["nodes"] == "all" or plan["node"]["node_rank"] == 0):
            node = plan["node"]
            run = LocalRun(os.path.dirname(path), plan["run_id"], node["name"], node["node_rank"], len(plan["nodes"]))
            runs.append((os.stat(path).st_mtime, run))
    return [run for _time, run in sorted(runs, reverse=True)]


def is_alive(run: LocalRun) -> bool:
    """Return whether the run may still write: its supervisor is alive, or it has only just started."""
    supervisor = read_json(os.path.join(run.directory, "supervisor.json")) or {}
    try:
        with open(f"/proc/{supervisor.get('pid', 0)}/cmdline", "rb") as stream:
            if os.fsencode(run.directory) in stream.read().split(b"\0"):
                return True
    except OSError:
        pass
    status = read_json(os.path.join(run.directory, "status.json"))
    # just started, without any output yet
    return status is None and time.time() - os.stat(run.directory).st_mtime < 60


def checkpoint_directory(run: LocalRun, settings: dict[str, Any]) -> str:
    """Return the directory in which a run saves its checkpoints."""
    path = settings["directory"].replace("{run_id}", run.run_id).replace("{node_rank}", str(run.node_rank))
    return os.path.join(run.directory, os.path.expanduser(path))


def has_directory_per_run(settings: dict[str, Any]) -> bool:
    """Return whether each run has its own directory."""
    path = os.path.expanduser(settings["directory"])
    return "{run_id}" in path or not os.path.isabs(path)


def unreadable_error(error: OSError) -> TransferError:
    """Return the error for an existing but unreadable path."""
    return TransferError(
        f"{error.filename} cannot be read ({error.strerror}). The checkpoint is not copied, since the copy would be "
        "incomplete. Let the service's user read it, or exclude it with checkpoints_exclude"
    )


def broken_link_error(link: str) -> TransferError:
    """Return the error for a broken link in a checkpoint, whose content would be missing in S3."""
    return TransferError(
        f"{link} points to {os.readlink(link)}, which does not exist. The checkpoint is not copied, since "
        "the copy would be incomplete. Create the target, or remove the link"
    )


def raise_error(error: OSError) -> None:
    """Raise an error of os.walk, which otherwise skips unreadable directories."""
    raise error


def read_checkpoint(path: str, name: str, marker: str) -> Checkpoint | None:
    """Return a checkpoint with its files, or None if it does not exist or vanishes meanwhile. Raise TransferError."""
    files, changed_at = [], 0.0
    try:
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode):
            return Checkpoint(
                name, path, (CheckpointFile("", status.st_size, status.st_mtime_ns, status.st_ino),), status.st_ctime
            )
        if not stat.S_ISDIR(status.st_mode):
            return None
        for directory, directory_names, file_names in os.walk(path, onerror=raise_error):
            changed_at = max(changed_at, os.stat(directory).st_ctime)
            directory_names.sort()
            for file_name in sorted(file_names):
                file_path = os.path.join(directory, file_name)
                try:
                    status = os.stat(file_path)  # follows links to files
                except FileNotFoundError:
                    if os.path.islink(file_path):
                        raise broken_link_error(file_path) from None
                    raise
                relative_path = os.path.relpath(file_path, path)
                if relative_path != marker:
                    files.append(CheckpointFile(relative_path, status.st_size, status.st_mtime_ns, status.st_ino))
                changed_at = max(changed_at, status.st_ctime)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable_error(error) from None
    return Checkpoint(name, path, tuple(files), changed_at) if files else None


def find_checkpoints(directory: str, settings: dict[str, Any]) -> list[Checkpoint]:
    """Return all checkpoints in a directory, complete or not, newest first. Raise TransferError."""
    marker, checkpoints = settings["marker"], []
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable_error(error) from None
    for name in names:
        if name == "lost+found":  # belongs to the file system, readable only by root
            continue
        if any(fnmatch.fnmatch(name, pattern) for pattern in settings["exclude"]):
            continue
        if marker and name.endswith(marker) and name != marker:
            continue
        checkpoint = read_checkpoint(os.path.join(directory, name), name, marker)
        if checkpoint:
            checkpoints.append(checkpoint)
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.stamp, reverse=True)


def is_complete(checkpoint: Checkpoint, settings: dict[str, Any], now: float) -> bool:
    """Return whether a checkpoint seems to be completely written."""
    marker = settings["marker"]
    if marker:
        marker_path = checkpoint.path + ("" if marker.startswith(".") else ".") + marker
        return os.path.exists(os.path.join(checkpoint.path, marker) if os.path.isdir(checkpoint.path) else marker_path)
    return now - checkpoint.changed_at >= settings["stable_for"]


def select_checkpoints(checkpoints: list[Checkpoint], patterns: list[str]) -> list[Checkpoint]:
    """Return the checkpoints whose names match the patterns."""
    return [
        checkpoint
        for checkpoint in checkpoints
        if any(fnmatch.fnmatch(checkpoint.name, pattern) for pattern in patterns)
    ]


# --- The manifest -----------------------------------------------------------------------------------------------------


def add_entry(manifest: dict[str, Any], entry: dict[str, Any], versions: int) -> dict[str, Any]:
    """Return the manifest with one more checkpoint, and without versions of it that are too old.

    The newest checkpoint comes first. Of several with the same name, the last one copied counts as the newest.
    """
    other_entries = remove_entry(manifest, entry)["checkpoints"]
    newer = itertools.takewhile(
        lambda other: other["name"] != entry["name"] and other["stamp"] > entry["stamp"], other_entries
    )
    position = len(list(newer))
    entries: list[dict[str, Any]] = []
    for candidate in [*other_entries[:position], entry, *other_entries[position:]]:
        if sum(kept["name"] == candidate["name"] for kept in entries) < versions:
            entries.append(candidate)
    return {**manifest, "checkpoints": entries}


def remove_entry(manifest: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest without a version of a checkpoint."""
    version = (entry["name"], entry["stamp"])
    entries = [other for other in manifest["checkpoints"] if (other["name"], other["stamp"]) != version]
    return {**manifest, "checkpoints": entries}


def find_entry(manifest: dict[str, Any], checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Return the manifest's entry of a checkpoint if this version is copied with all its files, else None."""
    version, sizes = (checkpoint.name, checkpoint.stamp), {file.path: file.size for file in checkpoint.files}
    for entry in manifest["checkpoints"]:
        copied = {file["path"]: file["size"] for file in entry["files"]}
        if (entry["name"], entry["stamp"]) == version and copied == sizes:
            match: dict[str, Any] = entry
            return match
    return None


def is_copied(manifest: dict[str, Any], checkpoint: Checkpoint) -> bool:
    """Return whether this version of a checkpoint is copied."""
    return find_entry(manifest, checkpoint) is not None


# --- Copying ----------------------------------------------------------------------------------------------------------


class CheckpointCopier:
    """Copies the checkpoints of one run."""

    def __init__(self, settings: dict[str, Any], run: LocalRun, s3: Any) -> None:
        self.settings = settings
        self.run = run
        self.s3 = s3
        self.bucket = settings["bucket"]
        self.base = f"{settings['prefix']}{run.run_id}/node{run.node_rank}"
        self.rate_limiter = RateLimiter(settings["bandwidth"] * 1e6)

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of this run and node in S3, or an empty one."""
        try:
            response = self.s3.get_object(Bucket=self.bucket, Key=f"{self.base}/latest.json")
        except S3_ERRORS as error:
            if error_code(error) != "NoSuchKey":
                raise
            run = self.run
            return {"run_id": run.run_id, "node": run.node, "node_rank": run.node_rank, "nnodes": run.nnodes,
                    "nodes": self.settings["nodes"], "checkpoints": []}  # fmt: skip
        manifest: dict[str, Any] = json.loads(response["Body"].read())
        return manifest

    def put(self, key: str, body: bytes) -> str:
        """Upload an object in one request, with an MD5 that S3 verifies; return its ETag."""
        digest = base64.b64encode(hashlib.md5(body).digest()).decode()
        self.rate_limiter.acquire(len(body))
        return self.content_etag(self.s3.put_object(Bucket=self.bucket, Key=key, Body=body, ContentMD5=digest))

    @staticmethod
    def content_etag(response: dict[str, Any]) -> str:
        """Return the ETag in a response, or "" if it does not depend on the content."""
        return "" if "aws:kms" in response.get("ServerSideEncryption", "") else str(response["ETag"]).strip('"')

    def find_upload(self, key: str) -> tuple[str, dict[int, str]]:
        """Return the id of an interrupted upload and the MD5 of the parts that S3 has, or ("", {})."""
        uploads = self.s3.list_multipart_uploads(Bucket=self.bucket, Prefix=key).get("Uploads", [])
        for upload in uploads:
            if upload["Key"] == key:
                pages = self.s3.get_paginator("list_parts").paginate(
                    Bucket=self.bucket, Key=key, UploadId=upload["UploadId"]
                )
                parts = {
                    part["PartNumber"]: part["ETag"].strip('"') for page in pages for part in page.get("Parts", ())
                }
                return upload["UploadId"], parts
        return "", {}

    def stat_object(self, key: str) -> tuple[int, str]:
        """Return size and ETag of an object; size -1 if it does not exist."""
        try:
            head = self.s3.head_object(Bucket=self.bucket, Key=key)
        except S3_ERRORS as error:
            if error_code(error) == "403":  # a HEAD response has no error message, but that of a listing has
                self.s3.list_objects_v2(Bucket=self.bucket, Prefix=key, MaxKeys=1)
            if error_code(error) not in ("404", "NoSuchKey"):
                raise
            return -1, ""
        return head["ContentLength"], self.content_etag(head)

    def copy_file(self, path: str, file: CheckpointFile, key: str) -> str:
        """Copy a file, or its missing parts; return its SHA-256. Raise FileChangedError and TransferError."""
        length = choose_part_size(file.size)
        single_request = file.size <= length
        size, etag = self.stat_object(key)
        if size == file.size and etag:
            digest, digests = hashlib.sha256(), []
            for piece in read_pieces(path, length):
                digest.update(piece)
                digests.append(hashlib.md5(piece).digest())
            if compute_etag(digests, single_request) == etag:
                return verify_unchanged(path, file, digest.hexdigest())
        if single_request:
            body = b"".join(read_pieces(path, length))
            sha256 = verify_unchanged(path, file, hashlib.sha256(body).hexdigest())
            digests = [hashlib.md5(body).digest()]
            etag = self.put(key, body)
        else:
            sha256, digests, etag = self.copy_parts(path, file, key, length)
        if etag and etag != compute_etag(digests, single_request):
            raise TransferError(
                f"{key} has the checksum {etag} in S3 instead of {compute_etag(digests, single_request)}. Retrying"
            )
        return sha256

    def copy_parts(self, path: str, file: CheckpointFile, key: str, length: int) -> tuple[str, list[bytes], str]:
        """Copy the parts of a file that S3 lacks; return its SHA-256, the parts' MD5, and S3's ETag."""
        options = {"Bucket": self.bucket, "Key": key}
        upload, existing_parts = self.find_upload(key)
        options["UploadId"] = upload or self.s3.create_multipart_upload(**options)["UploadId"]
        digest, digests = hashlib.sha256(), []

        def send(number: int, body: bytes, md5: bytes) -> None:
            self.rate_limiter.acquire(len(body))
            self.s3.upload_part(PartNumber=number, Body=body, ContentMD5=base64.b64encode(md5).decode(), **options)
            self.report_progress()

        running: collections.deque[concurrent.futures.Future[None]] = collections.deque()
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            try:
                for number, piece in enumerate(read_pieces(path, length), 1):
                    digest.update(piece)
                    digests.append(hashlib.md5(piece).digest())
                    if existing_parts.get(number) != digests[-1].hex():
                        running.append(pool.submit(send, number, piece, digests[-1]))
                    if len(running) > THREADS:  # limits the parts held in memory
                        running.popleft().result()
                while running:
                    running.popleft().result()
            finally:
                for future in running:
                    future.cancel()
        sha256 = verify_unchanged(path, file, digest.hexdigest())
        parts = [{"PartNumber": number, "ETag": f'"{md5.hex()}"'} for number, md5 in enumerate(digests, 1)]
        response = self.s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **options)
        return sha256, digests, self.content_etag(response)

    def report_progress(self) -> None:
        """Show the waiting process that the copy makes progress."""
        with contextlib.suppress(OSError):
            os.utime(os.path.join(self.run.directory, STATUS))

    def copy(self, checkpoint: Checkpoint, manifest: dict[str, Any]) -> dict[str, Any]:
        """Copy a checkpoint; return the manifest with it.

        Raise FileChangedError, TransferError, and boto3's errors.
        """
        base = f"{self.base}/data/{checkpoint.name}@{checkpoint.stamp}"
        files = []
        try:
            for file in checkpoint.files:
                key = f"{base}/{file.path}" if file.path else base
                sha256 = self.copy_file(
                    os.path.join(checkpoint.path, file.path) if file.path else checkpoint.path, file, key
                )
                files.append({"path": file.path, "key": key, "size": file.size, "sha256": sha256})
            current = read_checkpoint(checkpoint.path, checkpoint.name, self.settings["marker"])
            if current is None or current.files != checkpoint.files:
                raise FileChangedError(checkpoint.path)
        except (FileChangedError, FileNotFoundError):
            self.remove_unreferenced(checkpoint.name, manifest)
            raise FileChangedError(checkpoint.path) from None
        entry = {"name": checkpoint.name, "stamp": checkpoint.stamp, "size": checkpoint.size, "files": files}
        manifest = add_entry(manifest, entry, self.settings["versions"])
        manifest["written"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.put(f"{self.base}/latest.json", json.dumps(manifest, indent=1).encode())
        self.remove_unreferenced(checkpoint.name, manifest)
        return manifest

    def find_missing_object(self, entry: dict[str, Any]) -> str:
        """Return the key of a checkpoint's first missing or incomplete object in S3, or ""."""
        for file in entry["files"]:
            if self.stat_object(file["key"])[0] != file["size"]:
                return str(file["key"])
        return ""

    def remove_unreferenced(self, name: str, manifest: dict[str, Any]) -> None:
        """Remove a checkpoint's objects that the manifest does not name: old versions and partial uploads."""
        referenced_keys = {file["key"] for entry in manifest["checkpoints"] for file in entry["files"]}
        options = {"Bucket": self.bucket, "Prefix": f"{self.base}/data/{name}@"}
        for page in self.s3.get_paginator("list_multipart_uploads").paginate(**options):
            for upload in page.get("Uploads", ()):
                self.s3.abort_multipart_upload(Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        for page in self.s3.get_paginator("list_objects_v2").paginate(**options):
            for item in page.get("Contents", ()):
                if item["Key"] not in referenced_keys:
                    self.s3.delete_object(Bucket=self.bucket, Key=item["Key"])


def verify_unchanged(path: str, file: CheckpointFile, sha256: str) -> str:
    """Return the SHA-256 if the file has not changed since it was computed. Raise FileChangedError."""
    now = os.stat(path)
    if (now.st_size, now.st_mtime_ns, now.st_ino) != (file.size, file.modified_ns, file.inode):
        raise FileChangedError(path)
    return sha256


def remove_checkpoint(checkpoint: Checkpoint, marker: str) -> None:
    """Remove a checkpoint: its files, its marker, and directories that become empty."""
    if not os.path.isdir(checkpoint.path):
        os.unlink(checkpoint.path)
        return
    known_paths = {file.path for file in checkpoint.files} | {marker}
    for directory, directory_names, file_names, descriptor in os.fwalk(checkpoint.path, topdown=False):
        for file_name in file_names:
            if os.path.relpath(os.path.join(directory, file_name), checkpoint.path) in known_paths:
                os.unlink(file_name, dir_fd=descriptor)
        for directory_name in directory_names:
            is_link = stat.S_ISLNK(os.stat(directory_name, dir_fd=descriptor, follow_symlinks=False).st_mode)
            (os.unlink if is_link else os.rmdir)(directory_name, dir_fd=descriptor)
    os.rmdir(checkpoint.path)


# --- The service ------------------------------------------------------------------------------------------------------


class CheckpointService:
    """Copies the checkpoints of all runs, and writes the progress into each run's directory."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.manifests: dict[str, dict[str, Any]] = {}
        self.failures: dict[str, CopyFailure] = {}  # by run directory
        self.warned: set[str] = set()

    def log(self, run: LocalRun, text: str) -> None:
        """Write to the journal, and to the run's events, which users watch."""
        print(f"{run.run_id} node{run.node_rank}: {text}", flush=True)
        path = os.path.join(run.directory, "events.jsonl")
        if is_alive(run) and os.path.exists(path):
            record = {"time": time.time(), "event": "checkpoints", "text": f"{run.node}: {text}"}
            with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as stream:  # the disk may be full
                stream.write(json.dumps(record) + "\n")

    def write_status(self, run: LocalRun, alive: bool, selected: list[Checkpoint], pending: list[Checkpoint]) -> None:
        """Write the progress to a file."""
        failure = self.failures.get(run.directory)
        write_json(
            os.path.join(run.directory, STATUS),
            {
                "alive": alive,
                "copied": [
                    f"{checkpoint.name} ({format_size(checkpoint.size)})"
                    for checkpoint in selected
                    if checkpoint not in pending
                ],
                "pending": [checkpoint.name for checkpoint in pending],
                "seen": describe_versions(selected),
                "problem": failure.text if failure else "",
                "to": f"s3://{self.settings['bucket']}/{self.settings['prefix']}{run.run_id}/node{run.node_rank}",
            },
        )

    def check_disk_space(self, run: LocalRun, directory: str) -> None:
        """Warn once if the disk is filling up."""
        free = shutil.disk_usage(directory).free
        if free >= self.settings["free_gib"] * 2**30:
            self.warned.discard(run.directory)
        elif run.directory not in self.warned:
            self.warned.add(run.directory)
            hint = "" if self.settings["keep_local"] else ", or set checkpoints_keep_local to remove copied checkpoints"
            self.log(
                run,
                f"WARNING: {directory} has {format_size(free)} free, less than {self.settings['free_gib']:g} GiB. "
                f"Runs fail when they cannot save a checkpoint. Free some space{hint}",
            )

    def prune(self, run: LocalRun, checkpoints: list[Checkpoint]) -> None:
        """If configured, remove all but the newest checkpoints from this disk, once S3 has all their files.

        A checkpoint that was lost in S3 is copied again.
        """
        keep, manifest = self.settings["keep_local"], self.manifests[run.directory]
        copied = [
            (checkpoint, entry) for checkpoint in checkpoints for entry in [find_entry(manifest, checkpoint)] if entry
        ]
        for checkpoint, entry in copied[keep:] if keep else []:
            missing = self.create_copier(run).find_missing_object(entry)
            if missing:
                self.manifests[run.directory] = remove_entry(self.manifests[run.directory], entry)
                self.log(
                    run,
                    f"WARNING: {checkpoint.name} was copied, but {missing} is now missing or incomplete in S3. "
                    f"{checkpoint.path} was kept and will be copied again. Check the bucket's lifecycle rules, and who "
                    "else deletes objects in it",
                )
                continue
            current = read_checkpoint(checkpoint.path, checkpoint.name, self.settings["marker"])
            if current is not None and current.files != checkpoint.files:
                continue  # it has changed, and will be copied again
            try:
                with contextlib.suppress(FileNotFoundError):  # the run itself may remove it
                    remove_checkpoint(checkpoint, self.settings["marker"])
            except OSError as error:
                if checkpoint.path not in self.warned:
                    self.warned.add(checkpoint.path)
                    self.log(
                        run,
                        f"WARNING: {checkpoint.path} is in S3, but cannot be removed from this disk "
                        f"({error.strerror}). Give the service's user write access, or remove it yourself",
                    )
                continue
            self.log(run, f"{checkpoint.name} is in S3 and was removed from this disk")

    def copy_next(self, run: LocalRun) -> bool:
        """Copy one checkpoint of a run; return whether another one could be copied now."""
        settings, alive = self.settings, is_alive(run)
        directory = checkpoint_directory(run, settings)
        checkpoints = find_checkpoints(directory, settings)
        selected = select_checkpoints(
            checkpoints, settings["patterns"] + ([] if alive else settings["patterns_at_end"])
        )
        last_status = read_json(os.path.join(run.directory, STATUS)) or {}
        if (
            not alive
            and last_status.get("alive") is False
            and not last_status["pending"]
            and last_status["seen"] == describe_versions(selected)
        ):
            return False
        if os.path.isdir(directory):
            self.check_disk_space(run, directory)
        if selected and run.directory not in self.manifests:
            self.manifests[run.directory] = self.create_copier(run).manifest()
        manifest = self.manifests.get(run.directory, {"checkpoints": []})
        pending = [checkpoint for checkpoint in selected if not is_copied(manifest, checkpoint)]
        self.write_status(run, alive, selected, pending)
        ready = [checkpoint for checkpoint in pending if is_complete(checkpoint, settings, time.time())]
        if not ready:
            return False
        started, current = time.monotonic(), ready[0]
        try:
            manifest = self.manifests[run.directory] = self.create_copier(run).copy(current, manifest)
        except FileChangedError:
            return False  # retried later
        duration = time.monotonic() - started
        self.log(run, f"checkpoint {current.name} ({format_size(current.size)}) was copied to S3 in {duration:.1f} s")
        self.prune(run, checkpoints)
        pending = [checkpoint for checkpoint in selected if not is_copied(self.manifests[run.directory], checkpoint)]
        self.write_status(run, alive, selected, pending)
        return len(ready) > 1

    def create_copier(self, run: LocalRun) -> CheckpointCopier:
        """Return a copier with fresh credentials."""
        return CheckpointCopier(
            self.settings, run, create_client(self.settings["region"], self.settings["endpoint_url"])
        )

    def copy_with_backoff(self, run: LocalRun) -> bool:
        """Copy one checkpoint of a run unless its retry delay runs; return whether another one could be copied now."""
        failure = self.failures.get(run.directory)
        if failure and time.monotonic() < failure.due:
            return False
        try:
            again = self.copy_next(run)
        except (*S3_ERRORS, TransferError, OSError) as error:
            text = str(error) if isinstance(error, TransferError) else explain(error, self.settings["bucket"])
            if not failure or text != failure.text:
                self.log(run, f"checkpoints are not copied to S3: {text}. Retrying")
            delay = min(MAX_RETRY_DELAY, failure.delay * 2) if failure else self.settings["interval"]
            self.failures[run.directory] = CopyFailure(text, delay, time.monotonic() + delay)
            self.write_problem(run, text)
            return False
        if self.failures.pop(run.directory, None):
            self.log(run, "checkpoints are copied to S3 again")
            self.write_problem(run, "")
        return again

    def serve(self) -> None:
        """Copy forever. A failing run does not delay others."""
        while True:
            runs, again = find_runs(self.settings), False
            for run in runs if has_directory_per_run(self.settings) else runs[:1]:
                again = self.copy_with_backoff(run) or again
            if not again:
                time.sleep(self.settings["interval"])

    @staticmethod
    def write_problem(run: LocalRun, text: str) -> None:
        """Record a problem, or its end, for the waiting process."""
        with contextlib.suppress(OSError):
            path = os.path.join(run.directory, STATUS)
            default = {"alive": True, "copied": [], "pending": [], "seen": [], "to": ""}
            write_json(path, {**(read_json(path) or default), "problem": text})


def describe_versions(checkpoints: list[Checkpoint]) -> list[str]:
    """Return the names and versions of checkpoints, to detect changes."""
    return [f"{checkpoint.name}@{checkpoint.stamp}" for checkpoint in checkpoints]


def wait(settings: dict[str, Any], run_id: str) -> dict[str, Any]:
    """Wait until the checkpoints of a run are copied. Raise TransferError on a timeout."""
    deadline = time.monotonic() + settings["wait_timeout"]
    runs = [run for run in find_runs(settings) if run.run_id == run_id]
    result: dict[str, Any] = {"changed": False, "copied": {}}
    for run in runs:
        last_text = ""
        while True:
            status = read_json(os.path.join(run.directory, STATUS)) or {"alive": True, "pending": [], "problem": ""}
            if not status["alive"] and not status["pending"] and not is_alive(run):
                break
            pending = ", ".join(status["pending"]) or "?"
            text = "the run is still active" if is_alive(run) else f"not copied yet: {pending}"
            text += f"; {status['problem']}" if status["problem"] else ""
            if text != last_text:
                last_text = text
                print(text, flush=True)
            if time.monotonic() > deadline:
                raise TransferError(
                    f"after {settings['wait_timeout']} s not all checkpoints of {run_id} are copied ({text}). "
                    "See `journalctl -u muster_checkpoints` on this node, or wait longer with checkpoints_wait_timeout"
                )
            time.sleep(1)
        result["copied"][f"node{run.node_rank}"] = {"to": status["to"], "checkpoints": status["copied"]}
    return result


def main() -> None:
    """Serve or wait."""
    settings = read_json(sys.argv[2])
    if settings is None:
        sys.exit(f"{sys.argv[2]} is missing or broken. Write it again: ansible-playbook checkpoints.yml")
    if sys.argv[1] == "serve":
        CheckpointService(settings).serve()
    try:
        print(MARK + json.dumps(wait({**settings, "wait_timeout": int(sys.argv[4])}, sys.argv[3])), flush=True)
    except TransferError as error:
        print(MARK + json.dumps({"fault": str(error)}), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
