"""The role checkpoints' work on a node: copies what runs save to S3, during and after the run.

    checkpoints.py serve SETTINGS           for ever, as a service
    checkpoints.py wait SETTINGS RUN_ID     until all of a run is copied

Each run below the runs' directory has a directory of checkpoints. Each entry in it, a file or a directory, is a
checkpoint. It is copied when it has not changed for some seconds, or when its marker exists. The data is uploaded
first, each version under its own key; then latest.json names it, with sizes and SHA-256, so whatever it names is
complete. An interrupted upload resumes with the parts that S3 has. All state is in S3, none is kept here.
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

from s3 import PROBLEMS, Changed, client, code_of, etag_of, explain, part_size
from transfer import Fault, Pace, in_words, read_pieces

MARK = "MUSTER-RESULT "
THREADS = 4
ACTIVE = ("starting", "running", "stopping")
MOST_PATIENCE = 120.0  # most seconds between attempts while S3 refuses
STATUS = "checkpoints.json"


class File(NamedTuple):
    """A file of a checkpoint. Its path is relative to the checkpoint, empty if the file is the checkpoint."""

    path: str
    size: int
    changed: int  # ns
    inode: int


class Checkpoint(NamedTuple):
    """One checkpoint of a run."""

    name: str
    path: str
    files: tuple[File, ...]
    touched: float  # time of the last change in it, including names

    @property
    def stamp(self) -> str:
        """The version: the UTC time of its newest file, and a digest of paths, sizes and times of all files."""
        newest = max(one.changed for one in self.files)
        when = datetime.datetime.fromtimestamp(newest // 10**9, datetime.timezone.utc)
        files = sorted((one.path, one.size, one.changed) for one in self.files)
        digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
        return f"{when:%Y%m%dT%H%M%S}.{newest % 10**9:09}-{digest[:16]}"

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(one.size for one in self.files)


class Trouble(NamedTuple):
    """Why a run's checkpoints cannot be copied."""

    text: str
    patience: float  # seconds between attempts
    due: float  # time of the next attempt, by the monotonic clock


class Run(NamedTuple):
    """A run's directory on this node."""

    directory: str
    run_id: str
    node: str
    node_rank: int
    nnodes: int


# --- What is there ----------------------------------------------------------------------------------------------------


def read_json(path: str) -> Any:
    """The content of a file, None if it is missing or incomplete."""
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


def runs_of(settings: dict[str, Any]) -> list[Run]:
    """The runs on this node whose checkpoints must be copied, newest first."""
    found = []
    pattern = os.path.join(glob.escape(os.path.expanduser(settings["runs_directory"])), "*", "node*", "plan.json")
    for path in glob.glob(pattern):
        plan = read_json(path)
        if plan and (settings["nodes"] == "all" or plan["node"]["node_rank"] == 0):
            node = plan["node"]
            run = Run(os.path.dirname(path), plan["run_id"], node["name"], node["node_rank"], len(plan["nodes"]))
            found.append((os.stat(path).st_mtime, run))
    return [run for _time, run in sorted(found, reverse=True)]


def is_alive(run: Run) -> bool:
    """Whether the run may still write: its supervisor is alive."""
    noted = read_json(os.path.join(run.directory, "supervisor.json")) or {}
    try:
        with open(f"/proc/{noted.get('pid', 0)}/cmdline", "rb") as stream:
            if os.fsencode(run.directory) in stream.read().split(b"\0"):
                return True
    except OSError:
        pass
    status = read_json(os.path.join(run.directory, "status.json"))
    # just started, with nothing written yet
    return status is None and time.time() - os.stat(run.directory).st_mtime < 60


def directory_of(run: Run, settings: dict[str, Any]) -> str:
    """The directory in which a run saves its checkpoints."""
    path = settings["directory"].replace("{run_id}", run.run_id).replace("{node_rank}", str(run.node_rank))
    return os.path.join(run.directory, os.path.expanduser(path))


def names_its_run(settings: dict[str, Any]) -> bool:
    """Whether each run has its own directory."""
    path = os.path.expanduser(settings["directory"])
    return "{run_id}" in path or not os.path.isabs(path)


def unreadable(error: OSError) -> Fault:
    """The fault of an existing but unreadable path: what the run has saved is unknown."""
    return Fault(
        f"{error.filename} cannot be read ({error.strerror}). Needed: everything a run saves, so that no partial "
        "copy passes for complete. Let the service's user read it, or name it in checkpoints_exclude"
    )


def leads_nowhere(link: str) -> Fault:
    """The fault of a broken link in a checkpoint, whose content would be missing in S3."""
    return Fault(
        f"{link} points to {os.readlink(link)}, which does not exist. Needed: everything a run saves, so that no "
        "partial copy passes for complete. Put it there, or remove the link"
    )


def refuse_part(error: OSError) -> None:
    """Raise an error of os.walk, which would otherwise skip what it cannot read."""
    raise error


def look_at(path: str, name: str, marker: str) -> Checkpoint | None:
    """A checkpoint with its files; None if it does not exist or vanishes meanwhile. Raises Fault."""
    files, touched = [], 0.0
    try:
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode):
            return Checkpoint(name, path, (File("", found.st_size, found.st_mtime_ns, found.st_ino),), found.st_ctime)
        if not stat.S_ISDIR(found.st_mode):
            return None
        for current, names, leaves in os.walk(path, onerror=refuse_part):
            touched = max(touched, os.stat(current).st_ctime)
            names.sort()
            for leaf in sorted(leaves):
                full = os.path.join(current, leaf)
                try:
                    found = os.stat(full)  # follows links to files
                except FileNotFoundError:
                    if os.path.islink(full):
                        raise leads_nowhere(full) from None
                    raise
                relative = os.path.relpath(full, path)
                if relative != marker:
                    files.append(File(relative, found.st_size, found.st_mtime_ns, found.st_ino))
                touched = max(touched, found.st_ctime)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(error) from None
    return Checkpoint(name, path, tuple(files), touched) if files else None


def checkpoints_in(directory: str, settings: dict[str, Any]) -> list[Checkpoint]:
    """All checkpoints in a directory, complete or not, newest first. Raises Fault."""
    marker, found = settings["marker"], []
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(error) from None
    for name in names:
        if name == "lost+found":  # belongs to the file system, readable only by root
            continue
        if any(fnmatch.fnmatch(name, pattern) for pattern in settings["exclude"]):
            continue
        if marker and name.endswith(marker) and name != marker:
            continue
        one = look_at(os.path.join(directory, name), name, marker)
        if one:
            found.append(one)
    return sorted(found, key=lambda one: one.stamp, reverse=True)


def is_whole(one: Checkpoint, settings: dict[str, Any], now: float) -> bool:
    """Whether a checkpoint is no longer being written, as far as can be known."""
    marker = settings["marker"]
    if marker:
        beside = one.path + ("" if marker.startswith(".") else ".") + marker
        return os.path.exists(os.path.join(one.path, marker) if os.path.isdir(one.path) else beside)
    return now - one.touched >= settings["stable_for"]


def wanted_of(found: list[Checkpoint], patterns: list[str]) -> list[Checkpoint]:
    """The checkpoints whose names match the patterns to copy."""
    return [one for one in found if any(fnmatch.fnmatch(one.name, pattern) for pattern in patterns)]


# --- The manifest -----------------------------------------------------------------------------------------------------


def with_entry(manifest: dict[str, Any], entry: dict[str, Any], versions: int) -> dict[str, Any]:
    """The manifest with one more checkpoint, and without versions of it that are too old.

    The newest checkpoint comes first. Of several with the same name, the last one copied counts as the newest.
    """
    others = without(manifest, entry)["checkpoints"]
    later = itertools.takewhile(lambda one: one["name"] != entry["name"] and one["stamp"] > entry["stamp"], others)
    place = len(list(later))
    kept: list[dict[str, Any]] = []
    for one in [*others[:place], entry, *others[place:]]:
        if sum(other["name"] == one["name"] for other in kept) < versions:
            kept.append(one)
    return {**manifest, "checkpoints": kept}


def without(manifest: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """The manifest without a version of a checkpoint."""
    version = (entry["name"], entry["stamp"])
    kept = [one for one in manifest["checkpoints"] if (one["name"], one["stamp"]) != version]
    return {**manifest, "checkpoints": kept}


def entry_of(manifest: dict[str, Any], one: Checkpoint) -> dict[str, Any] | None:
    """The manifest's entry for a checkpoint, if this version is copied with all its files."""
    version, sizes = (one.name, one.stamp), {file.path: file.size for file in one.files}
    for entry in manifest["checkpoints"]:
        copied = {file["path"]: file["size"] for file in entry["files"]}
        if (entry["name"], entry["stamp"]) == version and copied == sizes:
            found: dict[str, Any] = entry
            return found
    return None


def has(manifest: dict[str, Any], one: Checkpoint) -> bool:
    """Whether this version of a checkpoint is copied."""
    return entry_of(manifest, one) is not None


# --- Copying ----------------------------------------------------------------------------------------------------------


class Copier:
    """Copies the checkpoints of one run."""

    def __init__(self, settings: dict[str, Any], run: Run, s3: Any) -> None:
        self.settings = settings
        self.run = run
        self.s3 = s3
        self.bucket = settings["bucket"]
        self.base = f"{settings['prefix']}{run.run_id}/node{run.node_rank}"
        self.pace = Pace(settings["bandwidth"] * 1e6)

    def manifest(self) -> dict[str, Any]:
        """The manifest of this run and node in S3."""
        try:
            answer = self.s3.get_object(Bucket=self.bucket, Key=f"{self.base}/latest.json")
        except PROBLEMS as error:
            if code_of(error) != "NoSuchKey":
                raise
            run = self.run
            return {"run_id": run.run_id, "node": run.node, "node_rank": run.node_rank, "nnodes": run.nnodes,
                    "nodes": self.settings["nodes"], "checkpoints": []}  # fmt: skip
        found: dict[str, Any] = json.loads(answer["Body"].read())
        return found

    def put(self, key: str, body: bytes) -> str:
        """Put an object in one request; S3 verifies the MD5."""
        digest = base64.b64encode(hashlib.md5(body).digest()).decode()
        self.pace.take(len(body))
        return self.told(self.s3.put_object(Bucket=self.bucket, Key=key, Body=body, ContentMD5=digest))

    @staticmethod
    def told(answer: dict[str, Any]) -> str:
        """The ETag in an answer; empty if it does not depend on the content."""
        return "" if "aws:kms" in answer.get("ServerSideEncryption", "") else str(answer["ETag"]).strip('"')

    def parts_of(self, key: str) -> tuple[str, dict[int, str]]:
        """An interrupted upload, and the MD5 of the parts that S3 has."""
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

    def there(self, key: str) -> tuple[int, str]:
        """Size and ETag of an object, size -1 if it does not exist."""
        try:
            head = self.s3.head_object(Bucket=self.bucket, Key=key)
        except PROBLEMS as error:
            if code_of(error) == "403":  # this answer has no message; that of a listing has
                self.s3.list_objects_v2(Bucket=self.bucket, Prefix=key, MaxKeys=1)
            if code_of(error) not in ("404", "NoSuchKey"):
                raise
            return -1, ""
        return head["ContentLength"], self.told(head)

    def copy_file(self, path: str, file: File, key: str) -> str:
        """Copy a file, or its missing parts; return its SHA-256. Raises Changed and Fault."""
        length = part_size(file.size)
        at_once = file.size <= length
        size, etag = self.there(key)
        if size == file.size and etag:
            digest, digests = hashlib.sha256(), []
            for piece in read_pieces(path, length):
                digest.update(piece)
                digests.append(hashlib.md5(piece).digest())
            if etag_of(digests, at_once) == etag:
                return unchanged(path, file, digest.hexdigest())
        if at_once:
            body = b"".join(read_pieces(path, length))
            sha256 = unchanged(path, file, hashlib.sha256(body).hexdigest())
            digests = [hashlib.md5(body).digest()]
            etag = self.put(key, body)
        else:
            sha256, digests, etag = self.copy_parts(path, file, key, length)
        if etag and etag != etag_of(digests, at_once):
            raise Fault(f"{key} has the checksum {etag} in S3 but {etag_of(digests, at_once)} here. Copying it again")
        return sha256

    def copy_parts(self, path: str, file: File, key: str, length: int) -> tuple[str, list[bytes], str]:
        """Copy the parts of a file that S3 lacks; return its SHA-256, the parts' MD5, and S3's ETag."""
        words = {"Bucket": self.bucket, "Key": key}
        upload, have = self.parts_of(key)
        words["UploadId"] = upload or self.s3.create_multipart_upload(**words)["UploadId"]
        digest, digests = hashlib.sha256(), []

        def send(number: int, body: bytes, md5: bytes) -> None:
            self.pace.take(len(body))
            self.s3.upload_part(PartNumber=number, Body=body, ContentMD5=base64.b64encode(md5).decode(), **words)
            self.tell()

        running: collections.deque[concurrent.futures.Future[None]] = collections.deque()
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            try:
                for number, piece in enumerate(read_pieces(path, length), 1):
                    digest.update(piece)
                    digests.append(hashlib.md5(piece).digest())
                    if have.get(number) != digests[-1].hex():
                        running.append(pool.submit(send, number, piece, digests[-1]))
                    if len(running) > THREADS:  # limits the parts held in memory
                        running.popleft().result()
                while running:
                    running.popleft().result()
            finally:
                for one in running:
                    one.cancel()
        sha256 = unchanged(path, file, digest.hexdigest())
        parts = [{"PartNumber": number, "ETag": f'"{one.hex()}"'} for number, one in enumerate(digests, 1)]
        answer = self.s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **words)
        return sha256, digests, self.told(answer)

    def tell(self) -> None:
        """Show progress to the waiting process."""
        with contextlib.suppress(OSError):
            os.utime(os.path.join(self.run.directory, STATUS))

    def copy(self, one: Checkpoint, manifest: dict[str, Any]) -> dict[str, Any]:
        """Copy a checkpoint; return the manifest that names it. Raises Changed, Fault and what boto3 raises."""
        base = f"{self.base}/data/{one.name}@{one.stamp}"
        files = []
        try:
            for file in one.files:
                key = f"{base}/{file.path}" if file.path else base
                sha256 = self.copy_file(os.path.join(one.path, file.path) if file.path else one.path, file, key)
                files.append({"path": file.path, "key": key, "size": file.size, "sha256": sha256})
            again = look_at(one.path, one.name, self.settings["marker"])
            if again is None or again.files != one.files:
                raise Changed(one.path)
        except (Changed, FileNotFoundError):
            self.sweep(one.name, manifest)
            raise Changed(one.path) from None
        entry = {"name": one.name, "stamp": one.stamp, "size": one.size, "files": files}
        manifest = with_entry(manifest, entry, self.settings["versions"])
        manifest["written"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.put(f"{self.base}/latest.json", json.dumps(manifest, indent=1).encode())
        self.sweep(one.name, manifest)
        return manifest

    def missing(self, entry: dict[str, Any]) -> str:
        """The first object of a checkpoint that is missing or incomplete in S3; empty if none is."""
        for file in entry["files"]:
            if self.there(file["key"])[0] != file["size"]:
                return str(file["key"])
        return ""

    def sweep(self, name: str, manifest: dict[str, Any]) -> None:
        """Remove a checkpoint's objects that the manifest does not name: old versions, and partial uploads."""
        named = {file["key"] for entry in manifest["checkpoints"] for file in entry["files"]}
        words = {"Bucket": self.bucket, "Prefix": f"{self.base}/data/{name}@"}
        for page in self.s3.get_paginator("list_multipart_uploads").paginate(**words):
            for upload in page.get("Uploads", ()):
                self.s3.abort_multipart_upload(Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        for page in self.s3.get_paginator("list_objects_v2").paginate(**words):
            for found in page.get("Contents", ()):
                if found["Key"] not in named:
                    self.s3.delete_object(Bucket=self.bucket, Key=found["Key"])


def unchanged(path: str, file: File, sha256: str) -> str:
    """The SHA-256 that was computed, if the file has not changed since. Raises Changed."""
    now = os.stat(path)
    if (now.st_size, now.st_mtime_ns, now.st_ino) != (file.size, file.changed, file.inode):
        raise Changed(path)
    return sha256


def remove(one: Checkpoint, marker: str) -> None:
    """Remove a checkpoint: its files, its marker, and directories that become empty."""
    if not os.path.isdir(one.path):
        os.unlink(one.path)
        return
    known = {file.path for file in one.files} | {marker}
    for current, names, leaves, directory in os.fwalk(one.path, topdown=False):
        for leaf in leaves:
            if os.path.relpath(os.path.join(current, leaf), one.path) in known:
                os.unlink(leaf, dir_fd=directory)
        for name in names:
            is_link = stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
            (os.unlink if is_link else os.rmdir)(name, dir_fd=directory)
    os.rmdir(one.path)


# --- The service ------------------------------------------------------------------------------------------------------


class Service:
    """Copies the checkpoints of all runs, and writes the progress into each run's directory."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.manifests: dict[str, dict[str, Any]] = {}
        self.troubles: dict[str, Trouble] = {}  # by run directory
        self.warned: set[str] = set()

    def say(self, run: Run, text: str) -> None:
        """Write to the journal, and to the events that users watch."""
        print(f"{run.run_id} node{run.node_rank}: {text}", flush=True)
        path = os.path.join(run.directory, "events.jsonl")
        if is_alive(run) and os.path.exists(path):
            record = {"time": time.time(), "event": "checkpoints", "text": f"{run.node}: {text}"}
            with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as stream:  # the disk may be full
                stream.write(json.dumps(record) + "\n")

    def status(self, run: Run, alive: bool, wanted: list[Checkpoint], pending: list[Checkpoint]) -> None:
        """Write the progress to a file."""
        trouble = self.troubles.get(run.directory)
        write_json(
            os.path.join(run.directory, STATUS),
            {
                "alive": alive,
                "copied": [f"{one.name} ({in_words(one.size)})" for one in wanted if one not in pending],
                "pending": [one.name for one in pending],
                "seen": seen(wanted),
                "problem": trouble.text if trouble else "",
                "to": f"s3://{self.settings['bucket']}/{self.settings['prefix']}{run.run_id}/node{run.node_rank}",
            },
        )

    def look_at_space(self, run: Run, directory: str) -> None:
        """Warn once if the disk is filling up."""
        free = shutil.disk_usage(directory).free
        if free >= self.settings["free_gib"] * 2**30:
            self.warned.discard(run.directory)
        elif run.directory not in self.warned:
            self.warned.add(run.directory)
            told = "" if self.settings["keep_local"] else ", or have copied ones removed (checkpoints_keep_local)"
            self.say(
                run,
                f"WARNING: {directory} has {in_words(free)} free, less than {self.settings['free_gib']:g} GiB. "
                f"A run that cannot save its checkpoint fails. Make room{told}",
            )

    def prune(self, run: Run, found: list[Checkpoint]) -> None:
        """If wanted, remove from this disk all but the newest checkpoints, once S3 has all their files.

        A checkpoint that S3 has lost is copied again.
        """
        keep, manifest = self.settings["keep_local"], self.manifests[run.directory]
        copied = [(one, entry) for one in found for entry in [entry_of(manifest, one)] if entry]
        for one, entry in copied[keep:] if keep else []:
            missing = self.copier(run).missing(entry)
            if missing:
                self.manifests[run.directory] = without(self.manifests[run.directory], entry)
                self.say(
                    run,
                    f"WARNING: {one.name} was copied, but S3 no longer has all of {missing}. {one.path} was not "
                    "removed, and is copied again. Check who else deletes in the bucket, and its lifecycle rules",
                )
                continue
            now = look_at(one.path, one.name, self.settings["marker"])
            if now is not None and now.files != one.files:
                continue  # it has changed, and is copied again
            try:
                with contextlib.suppress(FileNotFoundError):  # the run may remove it, too
                    remove(one, self.settings["marker"])
            except OSError as error:
                if one.path not in self.warned:
                    self.warned.add(one.path)
                    self.say(
                        run,
                        f"WARNING: {one.path} is in S3, but cannot be removed from this disk ({error.strerror}). "
                        "Needed: its space on the disk. Let the service's user remove it, or remove it yourself",
                    )
                continue
            self.say(run, f"{one.name} is in S3 and was removed from this disk")

    def round(self, run: Run) -> bool:
        """Copy one checkpoint of a run; return whether there is another one that could be copied now."""
        settings, alive = self.settings, is_alive(run)
        directory = directory_of(run, settings)
        found = checkpoints_in(directory, settings)
        wanted = wanted_of(found, settings["patterns"] + ([] if alive else settings["patterns_at_end"]))
        last = read_json(os.path.join(run.directory, STATUS)) or {}
        if not alive and last.get("alive") is False and not last["pending"] and last["seen"] == seen(wanted):
            return False
        if os.path.isdir(directory):
            self.look_at_space(run, directory)
        if wanted and run.directory not in self.manifests:
            self.manifests[run.directory] = self.copier(run).manifest()
        manifest = self.manifests.get(run.directory, {"checkpoints": []})
        pending = [one for one in wanted if not has(manifest, one)]
        self.status(run, alive, wanted, pending)
        ready = [one for one in pending if is_whole(one, settings, time.time())]
        if not ready:
            return False
        started, one = time.monotonic(), ready[0]
        try:
            manifest = self.manifests[run.directory] = self.copier(run).copy(one, manifest)
        except Changed:
            return False  # retried in a later round
        took = time.monotonic() - started
        self.say(run, f"checkpoint {one.name} ({in_words(one.size)}) was copied to S3 in {took:.1f} s")
        self.prune(run, found)
        pending = [each for each in wanted if not has(self.manifests[run.directory], each)]
        self.status(run, alive, wanted, pending)
        return len(ready) > 1

    def copier(self, run: Run) -> Copier:
        """A copier with fresh credentials."""
        return Copier(self.settings, run, client(self.settings["region"], self.settings["endpoint_url"]))

    def attend(self, run: Run) -> bool:
        """Copy one checkpoint of a run, if it is not in trouble; return whether another one could be copied now."""
        trouble = self.troubles.get(run.directory)
        if trouble and time.monotonic() < trouble.due:
            return False
        try:
            again = self.round(run)
        except (*PROBLEMS, Fault, OSError) as error:
            text = str(error) if isinstance(error, Fault) else explain(error, self.settings["bucket"])
            if not trouble or text != trouble.text:
                self.say(run, f"checkpoints are not copied to S3: {text}. Retrying until it works")
            patience = min(MOST_PATIENCE, trouble.patience * 2) if trouble else self.settings["interval"]
            self.troubles[run.directory] = Trouble(text, patience, time.monotonic() + patience)
            self.note(run, text)
            return False
        if self.troubles.pop(run.directory, None):
            self.say(run, "checkpoints are copied to S3 again")
            self.note(run, "")
        return again

    def serve(self) -> None:
        """Copy forever. A run in trouble does not delay others."""
        while True:
            runs, again = runs_of(self.settings), False
            for run in runs if names_its_run(self.settings) else runs[:1]:
                again = self.attend(run) or again
            if not again:
                time.sleep(self.settings["interval"])

    @staticmethod
    def note(run: Run, text: str) -> None:
        """Record a problem, or its end, for the waiting process."""
        with contextlib.suppress(OSError):
            path = os.path.join(run.directory, STATUS)
            nothing = {"alive": True, "copied": [], "pending": [], "seen": [], "to": ""}
            write_json(path, {**(read_json(path) or nothing), "problem": text})


def seen(wanted: list[Checkpoint]) -> list[str]:
    """A value that changes when there is something new."""
    return [f"{one.name}@{one.stamp}" for one in wanted]


def wait(settings: dict[str, Any], run_id: str) -> dict[str, Any]:
    """Wait until the checkpoints of a run are copied."""
    deadline = time.monotonic() + settings["wait_timeout"]
    runs = [run for run in runs_of(settings) if run.run_id == run_id]
    answer: dict[str, Any] = {"changed": False, "copied": {}}
    for run in runs:
        shown = ""
        while True:
            status = read_json(os.path.join(run.directory, STATUS)) or {"alive": True, "pending": [], "problem": ""}
            if not status["alive"] and not status["pending"] and not is_alive(run):
                break
            text = "the run is still going" if is_alive(run) else f"to be copied: {', '.join(status['pending']) or '?'}"
            text += f"; {status['problem']}" if status["problem"] else ""
            if text != shown:
                shown = text
                print(text, flush=True)
            if time.monotonic() > deadline:
                raise Fault(
                    f"after {settings['wait_timeout']} s not all checkpoints of {run_id} are copied ({text}). "
                    "See `journalctl -u muster_checkpoints` on this node, or wait longer with checkpoints_wait_timeout"
                )
            time.sleep(1)
        answer["copied"][f"node{run.node_rank}"] = {"to": status["to"], "checkpoints": status["copied"]}
    return answer


def main() -> None:
    """Serve or wait."""
    settings = read_json(sys.argv[2])
    if settings is None:
        sys.exit(f"{sys.argv[2]} is missing or broken. Run the role checkpoints again")
    if sys.argv[1] == "serve":
        Service(settings).serve()
    try:
        print(MARK + json.dumps(wait({**settings, "wait_timeout": int(sys.argv[4])}, sys.argv[3])), flush=True)
    except Fault as fault:
        print(MARK + json.dumps({"fault": str(fault)}), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
