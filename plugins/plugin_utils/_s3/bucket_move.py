# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copy an S3 bucket into another one, on the server itself. Private to this collection, controller only.

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

FROZEN = ("GLACIER", "DEEP_ARCHIVE")  # storage classes that cannot be read until restored
CHECKSUMS = ("ChecksumSHA256", "ChecksumCRC64NVME", "ChecksumCRC32C", "ChecksumCRC32", "ChecksumSHA1")
# Properties that head_object returns and create_multipart_upload accepts.
KEPT = (
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
SHOWN = 3  # names of objects in a message
LISTED = 1000  # keys per listing answer


class MoveError(Exception):
    """What was found, what is needed and what to do, in one line."""


@dataclass(frozen=True)
class Stored:
    """An object in a listing. `etag` is without its quotes."""

    key: str
    size: int
    etag: str
    storage_class: str = "STANDARD"

    @property
    def parts(self) -> int:
        """The number of parts in which it was uploaded; 0: in one request, so the ETag is the content's MD5."""
        number = self.etag.rpartition("-")[2] if "-" in self.etag else "0"
        return int(number) if number.isdigit() else 0


@dataclass
class Survey:
    """What must be copied. Sizes in bytes."""

    objects: int = 0
    size: int = 0
    missing: int = 0
    missing_size: int = 0
    requests: int = 0
    extra: int = 0
    differing: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    by_size: int = 0

    def price(self, per_gb: float, per_1000_requests: float) -> float:
        """The cost of the copy, in the prices' currency. A GB is 10^9 bytes."""
        return self.missing_size / 1e9 * per_gb + self.requests / 1000 * per_1000_requests


@dataclass(frozen=True)
class Route:
    """Source and target. The clients are boto3's, each for its bucket's region."""

    source: str
    target: str
    reader: Any
    writer: Any


# --- Pure -------------------------------------------------------------------------------------------------------------


def paired(source: Iterable[Stored], target: Iterable[Stored]) -> Iterator[tuple[Stored | None, Stored | None]]:
    """Each key once, with its object on either side. Both sides are sorted by key, as S3 lists them."""
    left, right = iter(source), iter(target)
    one, other = next(left, None), next(right, None)
    while one or other:
        if other is None or (one is not None and one.key < other.key):
            yield one, None
            one = next(left, None)
        elif one is None or other.key < one.key:
            yield None, other
            other = next(right, None)
        else:
            yield one, other
            one, other = next(left, None), next(right, None)


def pieces(size: int, length: int) -> list[tuple[int, int]]:
    """First and last byte of each part, for parts of equal length except for the last one."""
    return [(start, min(start + length, size) - 1) for start in range(0, size, length)]


def requests_for(thing: Stored) -> int:
    """The number of requests needed to copy an object."""
    return thing.parts + 4 if thing.parts else 1


def same_checksum(one: dict[str, Any], other: dict[str, Any]) -> bool | None:
    """Whether two answers of head_object describe the same content; None if they have no common checksum."""
    for name in CHECKSUMS:
        if one.get(name) and other.get(name):
            return bool(one[name] == other[name])
    return None


def in_words(number: float) -> str:
    """A number of bytes for a person."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.2f} TB"


def some(keys: list[str]) -> str:
    """The first of some keys."""
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return ", ".join(keys[:SHOWN]) + more


# --- Asking S3 --------------------------------------------------------------------------------------------------------


def listed(client: Any, bucket: str) -> Iterator[Stored]:
    """All objects in a bucket, sorted by key."""
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for entry in page.get("Contents", ()):
            yield Stored(entry["Key"], entry["Size"], entry["ETag"].strip('"'), entry.get("StorageClass", "STANDARD"))


def compared(route: Route, one: Stored, other: Stored) -> bool | None:
    """Whether source and target are equal; None if only their sizes can be compared.

    If S3 encrypts with KMS keys, the ETag does not depend on the content alone; an object may have another checksum.
    """
    if one.size != other.size:
        return False
    if one.etag == other.etag or one.size == 0:
        return True
    here = route.reader.head_object(Bucket=route.source, Key=one.key, ChecksumMode="ENABLED")
    there = route.writer.head_object(Bucket=route.target, Key=one.key, ChecksumMode="ENABLED")
    told = same_checksum(here, there)
    if told is None:
        secret = "aws:kms" in str(here.get("ServerSideEncryption")) + str(there.get("ServerSideEncryption"))
        return None if secret and there["LastModified"] >= here["LastModified"] else False
    return told


def survey(route: Route, target_is_there: bool) -> Survey:
    """Compare the two buckets."""
    found = Survey()
    there = listed(route.writer, route.target) if target_is_there else iter(())
    for one, other in paired(listed(route.reader, route.source), there):
        if one is None:
            found.extra += 1
            continue
        found.objects += 1
        found.size += one.size
        same = compared(route, one, other) if other else False
        found.by_size += same is None
        if same is not False:
            continue
        if other:
            found.differing.append(one.key)
        if one.storage_class in FROZEN:
            found.frozen.append(one.key)
        found.missing += 1
        found.missing_size += one.size
        found.requests += requests_for(one)
    found.requests += 3 * math.ceil(found.objects / LISTED)
    return found


# --- Copying ----------------------------------------------------------------------------------------------------------


@dataclass
class Progress:
    """The progress so far; updated from several threads."""

    objects: int = 0
    size: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, objects: int, size: int) -> None:
        """Count."""
        with self.lock:
            self.objects += objects
            self.size += size


def boundaries(route: Route, thing: Stored) -> list[tuple[int, int]]:
    """First and last byte of each part in which an object was uploaded."""
    words = {"Bucket": route.source, "Key": thing.key}
    length = route.reader.head_object(PartNumber=1, **words)["ContentLength"]
    if thing.parts == 1 or (length and math.ceil(thing.size / length) == thing.parts):
        return pieces(thing.size, length)
    lengths = [length]
    for number in range(2, thing.parts + 1):
        lengths.append(route.reader.head_object(PartNumber=number, **words)["ContentLength"])
    ends = list(itertools.accumulate(lengths))
    return [(end - length, end - 1) for end, length in zip(ends, lengths, strict=True)]


def begun(route: Route) -> dict[str, str]:
    """Uploads to the target left by an interrupted move, by key."""
    found = {}
    for page in route.writer.get_paginator("list_multipart_uploads").paginate(Bucket=route.target):
        for upload in page.get("Uploads", ()):
            found[upload["Key"]] = upload["UploadId"]
    return found


def parts_there(route: Route, key: str, upload: str, wanted: list[tuple[int, int]]) -> dict[int, str] | None:
    """ETags of an upload's existing parts; None if it has other parts, so it is not ours."""
    there = {}
    for page in route.writer.get_paginator("list_parts").paginate(Bucket=route.target, Key=key, UploadId=upload):
        for part in page.get("Parts", ()):
            number = part["PartNumber"]
            if number > len(wanted) or part["Size"] != wanted[number - 1][1] - wanted[number - 1][0] + 1:
                return None
            there[number] = part["ETag"]
    return there


def new_upload(route: Route, thing: Stored) -> str:
    """Begin an upload with all of the object's properties except for its content."""
    head = route.reader.head_object(Bucket=route.source, Key=thing.key)
    tags = route.reader.get_object_tagging(Bucket=route.source, Key=thing.key)["TagSet"]
    kept = {name: head[name] for name in KEPT if head.get(name)}
    if tags:
        kept["Tagging"] = urllib.parse.urlencode([(tag["Key"], tag["Value"]) for tag in tags])
    answer = route.writer.create_multipart_upload(Bucket=route.target, Key=thing.key, **kept)
    return str(answer["UploadId"])


def copy_in_parts(route: Route, thing: Stored, old: str | None, pool: ThreadPoolExecutor, done: Progress) -> None:
    """Copy an object in its original parts; keeps parts from an interrupted move."""
    wanted = boundaries(route, thing)
    have = parts_there(route, thing.key, old, wanted) if old else None
    upload = old if old and have is not None else new_upload(route, thing)
    have = have or {}
    done.add(0, sum(wanted[number - 1][1] - wanted[number - 1][0] + 1 for number in have))

    def copy_part(number: int) -> tuple[int, str]:
        first, last = wanted[number - 1]
        answer = route.writer.upload_part_copy(
            Bucket=route.target,
            Key=thing.key,
            PartNumber=number,
            UploadId=upload,
            CopySource={"Bucket": route.source, "Key": thing.key},
            CopySourceIfMatch=thing.etag,
            CopySourceRange=f"bytes={first}-{last}",
        )
        done.add(0, last - first + 1)
        return number, answer["CopyPartResult"]["ETag"]

    missing = [number for number in range(1, len(wanted) + 1) if number not in have]
    have.update(pool.map(copy_part, missing))
    parts = [{"PartNumber": number, "ETag": etag} for number, etag in sorted(have.items())]
    route.writer.complete_multipart_upload(
        Bucket=route.target, Key=thing.key, UploadId=upload, MultipartUpload={"Parts": parts}
    )
    done.add(1, 0)


def copy_at_once(route: Route, thing: Stored, done: Progress) -> None:
    """Copy an object with its metadata and tags."""
    route.writer.copy_object(
        Bucket=route.target,
        Key=thing.key,
        CopySource={"Bucket": route.source, "Key": thing.key},
        CopySourceIfMatch=thing.etag,
        MetadataDirective="COPY",
        TaggingDirective="COPY",
        StorageClass=thing.storage_class,
    )
    done.add(1, thing.size)


def copy_missing(route: Route, workers: int, done: Progress, tick: Callable[[], None]) -> None:
    """Copy what the target lacks; calls `tick` about once a second. Raises boto3's errors."""
    with ThreadPoolExecutor(workers) as objects, ThreadPoolExecutor(workers) as parts:
        uploads = begun(route)

        def copy(thing: Stored) -> None:
            if thing.parts and thing.size:
                copy_in_parts(route, thing, uploads.get(thing.key), parts, done)
            else:
                copy_at_once(route, thing, done)

        running: set[Future[None]] = set()
        try:
            for one, other in paired(listed(route.reader, route.source), listed(route.writer, route.target)):
                if one is None or (other and compared(route, one, other) is not False):
                    continue
                running.add(objects.submit(copy, one))
                while len(running) >= 4 * workers:
                    running = settle(running, tick)
            while running:
                running = settle(running, tick)
        except BaseException:
            objects.shutdown(wait=False, cancel_futures=True)
            parts.shutdown(wait=False, cancel_futures=True)
            raise


def settle(running: set[Future[None]], tick: Callable[[], None]) -> set[Future[None]]:
    """Wait for one of the copies, at most a second; return the unfinished ones. Raises a copy's error."""
    ended, running = wait(running, timeout=1, return_when=FIRST_COMPLETED)
    for one in ended:
        one.result()
    tick()
    return running
