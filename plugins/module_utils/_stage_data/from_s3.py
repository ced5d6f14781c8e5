# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""File source of the role stage_data: objects in an S3 bucket, below a prefix or belonging to a checkpoint.

Needs boto3.
"""

from __future__ import annotations

import fnmatch
import json
import time
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._files.content import MIB
from ansible_collections.muster.training.plugins.module_utils._s3_client.rate_limit import RateLimiter
from ansible_collections.muster.training.plugins.module_utils._s3_client.s3 import (
    create_client,
    error_code,
    explain,
    matches_object,
    s3_errors,
)
from ansible_collections.muster.training.plugins.module_utils._stage_data.pieces import FileEntry, is_inside

RETRY_TIMEOUT = 300.0  # seconds for which S3 may keep failing before the transfer fails
PERMANENT_ERRORS = ("AccessDenied", "403", "NoSuchKey", "NoSuchBucket", "404", "InvalidAccessKeyId", "InvalidToken",
                    "SignatureDoesNotMatch", "412", "PreconditionFailed", "ExpiredToken", "RequestTimeTooSkewed",
                    "AuthorizationHeaderMalformed", "PermanentRedirect", "InvalidObjectState")  # fmt: skip


def list_objects(s3: Any, request: dict[str, Any]) -> list[FileEntry]:
    """Return the objects below a prefix that match the patterns. Raise StepError if there are none."""
    prefix, entries = request["prefix"], []
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=request["bucket"], Prefix=prefix):
        for item in page.get("Contents", ()):
            path = item["Key"][len(prefix) :].lstrip("/")
            if item["Key"].endswith("/") or not any(fnmatch.fnmatch(path, pattern) for pattern in request["include"]):
                continue
            if not is_inside(path):
                raise StepError(f"object {item['Key']!r} is not a valid file path. Rename it, or exclude it")
            entries.append(FileEntry(path, item["Key"], item["Size"], item["ETag"].strip('"'), ""))
    if not entries:
        raise StepError(
            f"s3://{request['bucket']}/{prefix} contains no matching object. Correct the bucket or the prefix"
        )
    return entries


def list_checkpoint(s3: Any, request: dict[str, Any]) -> list[FileEntry]:
    """Return the files of a checkpoint, by default the newest, from all nodes that saved it."""
    base, bucket = request["manifests"], request["bucket"]
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=base + "/", Delimiter="/")
    prefixes = sorted(item["Prefix"] for page in pages for item in page.get("CommonPrefixes", ()))
    manifests = []
    for prefix in prefixes:
        try:
            manifests.append(json.loads(s3.get_object(Bucket=bucket, Key=f"{prefix}latest.json")["Body"].read()))
        except s3_errors() as error:
            if error_code(error) != "NoSuchKey":
                raise
    manifests.sort(key=lambda manifest: int(manifest["node_rank"]))
    if not manifests or not manifests[0]["checkpoints"]:
        raise StepError(f"s3://{bucket}/{base} contains no checkpoint. Correct run_id or checkpoints_prefix")
    names = [checkpoint["name"] for checkpoint in manifests[0]["checkpoints"]]
    selected = request["name"] or names[0]
    entries: dict[str, FileEntry] = {}
    for manifest in manifests:
        checkpoint = next(
            (checkpoint for checkpoint in manifest["checkpoints"] if checkpoint["name"] == selected), None
        )
        if checkpoint is None:
            raise StepError(
                f"node {manifest['node']} has not copied checkpoint {selected} to s3://{bucket}/{base}. "
                f"Available: {', '.join(names)}"
            )
        for file in checkpoint["files"]:
            path = f"{selected}/{file['path']}" if file["path"] else selected
            if not is_inside(path):
                raise StepError(f"latest.json names {path!r}, which is not a valid path: another program wrote it")
            entries.setdefault(path, FileEntry(path, file["key"], file["size"], "", file["sha256"]))
    if manifests[0]["nodes"] == "all" and len(manifests) < manifests[0]["nnodes"]:
        raise StepError(
            f"{len(manifests)} of {manifests[0]['nnodes']} nodes have copied checkpoint {selected}: shards are missing"
        )
    return list(entries.values())


class BucketSource:
    """A bucket, from which each node reads its own share."""

    name = "S3"

    def __init__(self, request: dict[str, Any], connections: int) -> None:
        self.request = request
        self.bucket = request["bucket"]
        self.rate_limiter = RateLimiter(request["bandwidth"] * 1e6)
        self.s3 = create_client(request["region"], request["endpoint_url"], connections)

    def is_local(self, _rank: int) -> bool:
        """Return whether the source is on this node, which is never the case."""
        return False

    def list_entries(self, _transfer: Any) -> list[FileEntry]:
        """Return the selected files. Raise StepError if S3 fails."""
        list_function = list_checkpoint if self.request["manifests"] else list_objects
        try:
            return sorted(list_function(self.s3, self.request))
        except s3_errors() as error:
            raise StepError(explain(error, self.bucket)) from None

    def matches_content(self, entry: FileEntry, path: str) -> bool | None:
        """Return whether a file has an object's content, or None if that cannot be determined. Raise StepError."""
        try:
            return matches_object(self.s3, self.bucket, entry.key, path, entry.size, entry.etag)
        except s3_errors() as error:
            raise StepError(explain(error, self.bucket)) from None

    def corrupt_message(self, entry: FileEntry) -> str:
        """Return the error message for a file whose content is wrong at the source."""
        source = "latest.json" if entry.sha256 else "its ETag"
        return (
            f"object {entry.key} in bucket {self.bucket} is corrupt: its content does not match the checksum in "
            f"{source}. It was discarded. Use another checkpoint or version, or upload it again"
        )

    def read(self, transfer: Any, entry: FileEntry, start: int, length: int) -> bytes:
        """Return a piece, with retries while they may help. Raise StepError."""
        options = {"Bucket": self.bucket, "Key": entry.key, "Range": f"bytes={start}-{start + length - 1}"}
        if entry.etag:
            options["IfMatch"] = f'"{entry.etag}"'
        deadline, pause = time.monotonic() + RETRY_TIMEOUT, 0.5
        while True:
            try:
                stream, pieces, received = self.s3.get_object(**options)["Body"], [], 0
                while received < length:
                    self.rate_limiter.acquire(min(MIB, length - received))
                    piece = stream.read(min(MIB, length - received))
                    if not piece:
                        break
                    pieces.append(piece)
                    received += len(piece)
                if received == length:
                    return b"".join(pieces)
                reason = f"it has {start + received} bytes, but was listed with a size of {entry.size}"
            except s3_errors() as error:
                reason = explain(error, self.bucket)
                if error_code(error) in ("412", "PreconditionFailed"):
                    reason = "it has changed since it was listed. Run this again"
                if error_code(error) in PERMANENT_ERRORS:
                    raise StepError(f"object {entry.key} cannot be read: {reason}") from None
            if transfer.failure or time.monotonic() > deadline:
                raise StepError(
                    f"object {entry.key} cannot be read from S3: {reason}. Run this again: the transfer resumes"
                )
            time.sleep(pause)
            pause = min(10.0, 2 * pause)
