"""A source of the role stage_data: objects in an S3 bucket, below a prefix or of a checkpoint.

Needs boto3, otherwise the standard library of Python >= 3.8.
"""

from __future__ import annotations

import fnmatch
import json
import time
from typing import Any

from s3 import PROBLEMS, client, code_of, explain, matches
from transfer import MIB, Fault, Pace
from wanted import Entry, inside

PATIENCE = 300.0  # seconds for which S3 may fail before we give up
LASTING = ("AccessDenied", "403", "NoSuchKey", "NoSuchBucket", "404", "InvalidAccessKeyId", "SignatureDoesNotMatch",
           "412", "PreconditionFailed", "ExpiredToken", "InvalidToken", "RequestTimeTooSkewed",
           "AuthorizationHeaderMalformed", "PermanentRedirect", "InvalidObjectState")  # fmt: skip


def list_prefix(s3: Any, request: dict[str, Any]) -> list[Entry]:
    """The objects below a prefix."""
    prefix, entries = request["prefix"], []
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=request["bucket"], Prefix=prefix):
        for one in page.get("Contents", ()):
            path = one["Key"][len(prefix) :].lstrip("/")
            if one["Key"].endswith("/") or not any(fnmatch.fnmatch(path, each) for each in request["include"]):
                continue
            if not inside(path):
                raise Fault(f"object {one['Key']!r} has a name that is no path of a file. Rename it, or exclude it")
            entries.append(Entry(path, one["Key"], one["Size"], one["ETag"].strip('"'), ""))
    if not entries:
        raise Fault(f"s3://{request['bucket']}/{prefix} holds no object that is wanted. Correct bucket or prefix")
    return entries


def read_manifests(s3: Any, request: dict[str, Any]) -> list[Entry]:
    """The files of a checkpoint, the named one or else the newest, from all nodes that saved it."""
    base, bucket = request["manifests"], request["bucket"]
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=base + "/", Delimiter="/")
    nodes = sorted(one["Prefix"] for page in pages for one in page.get("CommonPrefixes", ()))
    found = []
    for node in nodes:
        try:
            found.append(json.loads(s3.get_object(Bucket=bucket, Key=f"{node}latest.json")["Body"].read()))
        except PROBLEMS as error:
            if code_of(error) != "NoSuchKey":
                raise
    found.sort(key=lambda one: int(one["node_rank"]))
    if not found or not found[0]["checkpoints"]:
        raise Fault(f"s3://{bucket}/{base} holds no checkpoint. Correct run_id or checkpoints_prefix")
    there = [one["name"] for one in found[0]["checkpoints"]]
    name = request["name"] or there[0]
    entries: dict[str, Entry] = {}
    for manifest in found:
        one = next((one for one in manifest["checkpoints"] if one["name"] == name), None)
        if one is None:
            raise Fault(
                f"node {manifest['node']} has not copied a checkpoint {name} to s3://{bucket}/{base}. "
                f"There are: {', '.join(there)}"
            )
        for file in one["files"]:
            path = f"{name}/{file['path']}" if file["path"] else name
            if not inside(path):
                raise Fault(f"latest.json names {path!r}, which is no path of a file: it is not ours")
            entries.setdefault(path, Entry(path, file["key"], file["size"], "", file["sha256"]))
    if found[0]["nodes"] == "all" and len(found) < found[0]["nnodes"]:
        raise Fault(
            f"{len(found)} of {found[0]['nnodes']} nodes have copied checkpoint {name}: its shards are not whole"
        )
    return list(entries.values())


class Bucket:
    """A bucket, from which each node gets its own share."""

    name = "S3"

    def __init__(self, request: dict[str, Any], connections: int) -> None:
        self.request = request
        self.bucket = request["bucket"]
        self.pace = Pace(request["bandwidth"] * 1e6)
        self.s3 = client(request["region"], request["endpoint_url"], connections)

    def is_here(self, _me: int) -> bool:
        """Whether the source is on this node: never."""
        return False

    def find(self, _stage: Any) -> list[Entry]:
        """The wanted files. Raises Fault."""
        find = read_manifests if self.request["manifests"] else list_prefix
        try:
            return sorted(find(self.s3, self.request))
        except PROBLEMS as error:
            raise Fault(explain(error, self.bucket)) from None

    def is_right(self, one: Entry, path: str) -> bool | None:
        """Whether a file has an object's content; None if that cannot be determined. Raises Fault."""
        try:
            return matches(self.s3, self.bucket, one.key, path, one.size, one.etag)
        except PROBLEMS as error:
            raise Fault(explain(error, self.bucket)) from None

    def corrupt(self, one: Entry) -> str:
        """The message for a file that is wrong at its source."""
        known = "latest.json" if one.sha256 else "its ETag"
        return (
            f"object {one.key} of bucket {self.bucket} is corrupt: its content has not the checksum that {known} "
            "names. It was not put in place. Take another checkpoint or version, or upload it again"
        )

    def get(self, stage: Any, one: Entry, start: int, length: int) -> bytes:
        """Get a piece, with retries while they may help; raises Fault."""
        words = {"Bucket": self.bucket, "Key": one.key, "Range": f"bytes={start}-{start + length - 1}"}
        if one.etag:
            words["IfMatch"] = f'"{one.etag}"'
        deadline, pause = time.monotonic() + PATIENCE, 0.5
        while True:
            try:
                stream, pieces, got = self.s3.get_object(**words)["Body"], [], 0
                while got < length:
                    self.pace.take(min(MIB, length - got))
                    piece = stream.read(min(MIB, length - got))
                    if not piece:
                        break
                    pieces.append(piece)
                    got += len(piece)
                if got == length:
                    return b"".join(pieces)
                problem = f"{one.key} has {start + got} bytes, and was listed with {one.size}"
            except PROBLEMS as error:
                problem = explain(error, self.bucket)
                if code_of(error) in ("412", "PreconditionFailed"):
                    problem = "it was changed meanwhile. Run this again"
                if code_of(error) in LASTING:
                    raise Fault(f"object {one.key} cannot be read: {problem}") from None
            if stage.failed or time.monotonic() > deadline:
                raise Fault(f"S3 does not give {one.key}: {problem}. Run this again: it resumes where it stopped")
            time.sleep(pause)
            pause = min(10.0, 2 * pause)
