# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copy an S3 bucket to another bucket on the server side.

Both listings are read in step, so that a bucket of any size takes little memory. An object that was uploaded in parts
is copied in the same parts: only then does the copy have the same ETag, by which objects are compared. Nothing is
deleted.
"""

from __future__ import annotations

import itertools
import math
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

ARCHIVE_CLASSES = ("GLACIER", "DEEP_ARCHIVE")  # storage classes that cannot be read until restored
CHECKSUMS = ("ChecksumSHA256", "ChecksumCRC64NVME", "ChecksumCRC32C", "ChecksumCRC32", "ChecksumSHA1")
# Properties that head_object returns and that create_multipart_upload accepts.
COPIED_PROPERTIES = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
    "Expires",
    "Metadata",
    "StorageClass",
    "WebsiteRedirectLocation",
)
PAGE_SIZE = 1000  # number of keys per page of a listing


class MoveError(Exception):
    """The reason why a bucket cannot be moved and what to do about it, on one line."""


@dataclass(frozen=True)
class StoredObject:
    """An object in a listing. `etag` does not include its quotes."""

    key: str
    size: int
    etag: str
    storage_class: str = "STANDARD"

    @property
    def parts(self) -> int:
        """The number of parts in which the object was uploaded; 0: in one request, so that the ETag is the MD5 of the
        content.
        """
        number = self.etag.rpartition("-")[2] if "-" in self.etag else "0"
        return int(number) if number.isdigit() else 0


@dataclass
class Survey:
    """The objects to copy. Sizes are in bytes."""

    objects: int = 0
    size: int = 0
    missing: int = 0
    missing_size: int = 0
    requests: int = 0
    extra: int = 0
    differing: list[str] = field(default_factory=list)
    archived: list[str] = field(default_factory=list)
    by_size: int = 0

    def price(self, per_gb: float, per_1000_requests: float) -> float:
        """Return the cost of the copy, in the currency of the prices. A GB is 10^9 bytes."""
        return self.missing_size / 1e9 * per_gb + self.requests / 1000 * per_1000_requests


@dataclass(frozen=True)
class Route:
    """Source and target, each with a boto3 client for its region."""

    source: str
    target: str
    reader: Any
    writer: Any


# --- Helpers ----------------------------------------------------------------------------------------------------------


def pair_objects(
    source: Iterable[StoredObject], target: Iterable[StoredObject]
) -> Iterator[tuple[StoredObject | None, StoredObject | None]]:
    """Yield each key once, with its object on each side. Both sides are sorted by key, as in S3 listings."""
    source_objects, target_objects = iter(source), iter(target)
    source_object, target_object = next(source_objects, None), next(target_objects, None)
    while source_object or target_object:
        if target_object is None or (source_object is not None and source_object.key < target_object.key):
            yield source_object, None
            source_object = next(source_objects, None)
        elif source_object is None or target_object.key < source_object.key:
            yield None, target_object
            target_object = next(target_objects, None)
        else:
            yield source_object, target_object
            source_object, target_object = next(source_objects, None), next(target_objects, None)


def part_ranges(size: int, length: int) -> list[tuple[int, int]]:
    """Return the first and last byte of each part; all parts except the last have the same length."""
    return [(start, min(start + length, size) - 1) for start in range(0, size, length)]


def count_requests(stored: StoredObject) -> int:
    """Return the number of requests needed to copy an object."""
    return stored.parts + 4 if stored.parts else 1


def same_checksum(first: dict[str, Any], second: dict[str, Any]) -> bool | None:
    """Return whether two head_object replies describe the same content; None if they have no checksum in common."""
    for name in CHECKSUMS:
        if first.get(name) and second.get(name):
            return bool(first[name] == second[name])
    return None


# --- Listings ---------------------------------------------------------------------------------------------------------


def list_objects(client: Any, bucket: str) -> Iterator[StoredObject]:
    """Yield all objects in a bucket, sorted by key."""
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for entry in page.get("Contents", ()):
            yield StoredObject(
                entry["Key"], entry["Size"], entry["ETag"].strip('"'), entry.get("StorageClass", "STANDARD")
            )


def same_content(route: Route, source_object: StoredObject, target_object: StoredObject) -> bool | None:
    """Return whether source and target have the same content; None if only their sizes can be compared.

    If S3 encrypts with KMS keys, the ETag does not depend on the content alone; an object may have another checksum.
    """
    if source_object.size != target_object.size:
        return False
    if source_object.etag == target_object.etag or source_object.size == 0:
        return True
    source_head = route.reader.head_object(Bucket=route.source, Key=source_object.key, ChecksumMode="ENABLED")
    target_head = route.writer.head_object(Bucket=route.target, Key=source_object.key, ChecksumMode="ENABLED")
    same = same_checksum(source_head, target_head)
    if same is None:
        secret = "aws:kms" in str(source_head.get("ServerSideEncryption")) + str(
            target_head.get("ServerSideEncryption")
        )
        return None if secret and target_head["LastModified"] >= source_head["LastModified"] else False
    return same


def compare_buckets(route: Route, target_exists: bool) -> Survey:
    """Compare the two buckets."""
    result = Survey()
    target_objects = list_objects(route.writer, route.target) if target_exists else iter(())
    for source_object, target_object in pair_objects(list_objects(route.reader, route.source), target_objects):
        if source_object is None:
            result.extra += 1
            continue
        result.objects += 1
        result.size += source_object.size
        same = same_content(route, source_object, target_object) if target_object else False
        result.by_size += same is None
        if same is not False:
            continue
        if target_object:
            result.differing.append(source_object.key)
        if source_object.storage_class in ARCHIVE_CLASSES:
            result.archived.append(source_object.key)
        result.missing += 1
        result.missing_size += source_object.size
        result.requests += count_requests(source_object)
    result.requests += 3 * math.ceil(result.objects / PAGE_SIZE)
    return result


# --- Copying ----------------------------------------------------------------------------------------------------------


@dataclass
class MoveProgress:
    """The progress so far; updated from several threads."""

    objects: int = 0
    size: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, objects: int, size: int) -> None:
        """Count copied objects and bytes."""
        with self.lock:
            self.objects += objects
            self.size += size


def original_ranges(route: Route, stored: StoredObject) -> list[tuple[int, int]]:
    """Return the first and last byte of each part in which an object was originally uploaded."""
    location = {"Bucket": route.source, "Key": stored.key}
    length = route.reader.head_object(PartNumber=1, **location)["ContentLength"]
    if stored.parts == 1 or (length and math.ceil(stored.size / length) == stored.parts):
        return part_ranges(stored.size, length)
    lengths = [length]
    for number in range(2, stored.parts + 1):
        lengths.append(route.reader.head_object(PartNumber=number, **location)["ContentLength"])
    ends = list(itertools.accumulate(lengths))
    return [(end - length, end - 1) for end, length in zip(ends, lengths, strict=True)]


def unfinished_uploads(route: Route) -> dict[str, str]:
    """Return the uploads to the target that were left behind by an interrupted move, by key."""
    uploads = {}
    for page in route.writer.get_paginator("list_multipart_uploads").paginate(Bucket=route.target):
        for upload in page.get("Uploads", ()):
            uploads[upload["Key"]] = upload["UploadId"]
    return uploads


def uploaded_parts(route: Route, key: str, upload_id: str, ranges: list[tuple[int, int]]) -> dict[int, str] | None:
    """Return the ETags of an upload's existing parts, or None if it has other parts, which means that it is not from a
    move.
    """
    etags = {}
    for page in route.writer.get_paginator("list_parts").paginate(Bucket=route.target, Key=key, UploadId=upload_id):
        for part in page.get("Parts", ()):
            number = part["PartNumber"]
            if number > len(ranges) or part["Size"] != ranges[number - 1][1] - ranges[number - 1][0] + 1:
                return None
            etags[number] = part["ETag"]
    return etags


def begin_upload(route: Route, stored: StoredObject) -> str:
    """Begin an upload with all properties of the object except its content; return the upload's ID."""
    head = route.reader.head_object(Bucket=route.source, Key=stored.key)
    tags = route.reader.get_object_tagging(Bucket=route.source, Key=stored.key)["TagSet"]
    properties = {name: head[name] for name in COPIED_PROPERTIES if head.get(name)}
    if tags:
        properties["Tagging"] = urllib.parse.urlencode([(tag["Key"], tag["Value"]) for tag in tags])
    response = route.writer.create_multipart_upload(Bucket=route.target, Key=stored.key, **properties)
    return str(response["UploadId"])


def copy_in_parts(
    route: Route, stored: StoredObject, unfinished_id: str | None, pool: ThreadPoolExecutor, progress: MoveProgress
) -> None:
    """Copy an object in its original parts; keep the parts from an interrupted move."""
    ranges = original_ranges(route, stored)
    etags = uploaded_parts(route, stored.key, unfinished_id, ranges) if unfinished_id else None
    upload_id = unfinished_id if unfinished_id and etags is not None else begin_upload(route, stored)
    etags = etags or {}
    progress.add(0, sum(ranges[number - 1][1] - ranges[number - 1][0] + 1 for number in etags))

    def copy_part(number: int) -> tuple[int, str]:
        first, last = ranges[number - 1]
        response = route.writer.upload_part_copy(
            Bucket=route.target,
            Key=stored.key,
            PartNumber=number,
            UploadId=upload_id,
            CopySource={"Bucket": route.source, "Key": stored.key},
            CopySourceIfMatch=stored.etag,
            CopySourceRange=f"bytes={first}-{last}",
        )
        progress.add(0, last - first + 1)
        return number, response["CopyPartResult"]["ETag"]

    missing = [number for number in range(1, len(ranges) + 1) if number not in etags]
    etags.update(pool.map(copy_part, missing))
    parts = [{"PartNumber": number, "ETag": etag} for number, etag in sorted(etags.items())]
    route.writer.complete_multipart_upload(
        Bucket=route.target, Key=stored.key, UploadId=upload_id, MultipartUpload={"Parts": parts}
    )
    progress.add(1, 0)


def copy_whole(route: Route, stored: StoredObject, progress: MoveProgress) -> None:
    """Copy an object with its metadata and tags in one request."""
    route.writer.copy_object(
        Bucket=route.target,
        Key=stored.key,
        CopySource={"Bucket": route.source, "Key": stored.key},
        CopySourceIfMatch=stored.etag,
        MetadataDirective="COPY",
        TaggingDirective="COPY",
        StorageClass=stored.storage_class,
    )
    progress.add(1, stored.size)


def copy_missing(route: Route, workers: int, progress: MoveProgress, tick: Callable[[], None]) -> None:
    """Copy the objects that are missing in the target; call `tick` about once a second. Raises boto3's errors."""
    with ThreadPoolExecutor(workers) as objects, ThreadPoolExecutor(workers) as parts:
        uploads = unfinished_uploads(route)

        def copy(stored: StoredObject) -> None:
            if stored.parts and stored.size:
                copy_in_parts(route, stored, uploads.get(stored.key), parts, progress)
            else:
                copy_whole(route, stored, progress)

        running: set[Future[None]] = set()
        try:
            for source_object, target_object in pair_objects(
                list_objects(route.reader, route.source), list_objects(route.writer, route.target)
            ):
                if source_object is None or (
                    target_object and same_content(route, source_object, target_object) is not False
                ):
                    continue
                running.add(objects.submit(copy, source_object))
                while len(running) >= 4 * workers:
                    running = wait_for_copies(running, tick)
            while running:
                running = wait_for_copies(running, tick)
        except BaseException:
            objects.shutdown(wait=False, cancel_futures=True)
            parts.shutdown(wait=False, cancel_futures=True)
            raise


def wait_for_copies(running: set[Future[None]], tick: Callable[[], None]) -> set[Future[None]]:
    """Wait up to a second for a copy to finish; return the unfinished ones. Raises the error of a failed copy."""
    finished, running = wait(running, timeout=1, return_when=FIRST_COMPLETED)
    for future in finished:
        future.result()
    tick()
    return running
