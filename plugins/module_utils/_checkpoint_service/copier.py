# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copy a run's checkpoints to S3, each version under its own key."""

from __future__ import annotations

import base64
import collections
import concurrent.futures
import contextlib
import datetime
import hashlib
import json
import os
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._checkpoint_service.local import (
    STATUS,
    CheckpointFile,
    LocalCheckpoint,
    LocalRun,
    read_checkpoint,
)
from ansible_collections.muster.training.plugins.module_utils._checkpoint_service.manifest import add_entry
from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._files.content import read_pieces
from ansible_collections.muster.training.plugins.module_utils._s3_client.rate_limit import RateLimiter
from ansible_collections.muster.training.plugins.module_utils._s3_client.s3 import (
    FileChangedError,
    choose_part_size,
    compute_etag,
    error_code,
    s3_errors,
)

THREADS = 4


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
        """Return the manifest of this run and node from S3, or an empty one."""
        try:
            response = self.s3.get_object(Bucket=self.bucket, Key=f"{self.base}/latest.json")
        except s3_errors() as error:
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
        """Return the id of an interrupted upload and the MD5 of each part that S3 has, or ("", {})."""
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
        """Return an object's size and ETag; the size is -1 if the object does not exist."""
        try:
            head = self.s3.head_object(Bucket=self.bucket, Key=key)
        except s3_errors() as error:
            if error_code(error) == "403":  # a HEAD response has no error message, but a listing does
                self.s3.list_objects_v2(Bucket=self.bucket, Prefix=key, MaxKeys=1)
            if error_code(error) not in ("404", "NoSuchKey"):
                raise
            return -1, ""
        return head["ContentLength"], self.content_etag(head)

    def copy_file(self, path: str, file: CheckpointFile, key: str) -> str:
        """Copy a file, or its missing parts; return its SHA-256.

        Raise FileChangedError if the file changes meanwhile, and StepError if S3's copy differs.
        """
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
            raise StepError(
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
                    if len(running) > THREADS:  # limits the number of parts held in memory
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
        """Signal the copy's progress to the waiting process."""
        with contextlib.suppress(OSError):
            os.utime(os.path.join(self.run.directory, STATUS))

    def copy(self, checkpoint: LocalCheckpoint, manifest: dict[str, Any]) -> dict[str, Any]:
        """Copy a checkpoint; return the manifest with the checkpoint added.

        Raise FileChangedError, StepError, and boto3's errors.
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
        """Remove a checkpoint's objects that are not in the manifest: old versions and partial uploads."""
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
