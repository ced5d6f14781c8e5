"""Shared by a node's programs that use S3: a client, its errors in words, and S3's checksums of files.

Needs boto3, otherwise the standard library of Python >= 3.8. boto3 finds the credentials: AWS_SHARED_CREDENTIALS_FILE
names a file, or the instance has a role.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from transfer import CHUNK, MIB, read_pieces

PROBLEMS = (BotoCoreError, ClientError)
PART = 16 * MIB  # bytes of an upload's part; S3 allows at most 10000 parts, of at least 5 MiB
MOST_PARTS = 9999
# Part sizes that tools use for uploads, the usual one first: an ETag does not reveal it.
USUAL_PARTS = tuple(size * MIB for size in (8, 16, 5, 64, 32, 15, 10, 50, 100, 128, 256, 512))
ROTATE = "Correct s3_client_access_key_id and s3_client_secret_access_key and run the role again"
ANSWERS = {
    "NoSuchBucket": "there is no bucket {bucket}. Correct its name, or make it",
    "404": "there is no bucket {bucket}. Correct its name, or make it",
    "AccessDenied": "access to bucket {bucket} is denied ({operation}). Give these credentials the right to it",
    "403": "access to bucket {bucket} is denied ({operation}). Give these credentials the right to it",
    "InvalidAccessKeyId": "the access key is not known to S3. " + ROTATE,
    "SignatureDoesNotMatch": "the secret access key does not belong to the access key. " + ROTATE,
    "ExpiredToken": "the credentials have expired. " + ROTATE,
    "InvalidToken": "the session token is not valid. " + ROTATE,
    "RequestTimeTooSkewed": "this node's clock differs from that of S3. Set it: timedatectl set-ntp true",
    "PermanentRedirect": "bucket {bucket} is in another region. Correct s3_client_region",
    "AuthorizationHeaderMalformed": "bucket {bucket} is in another region. Correct s3_client_region",
    "400": "bucket {bucket} is perhaps in another region. Correct s3_client_region",
    "301": "bucket {bucket} is in another region. Correct s3_client_region",
    "EntityTooLarge": "a file is larger than this S3 takes",
    "QuotaExceeded": "bucket {bucket} is full. Make room there",
}


class Changed(Exception):
    """A file changed while it was read."""


def client(region: str, endpoint_url: str, connections: int = 16) -> Any:
    """A client of S3."""
    import boto3  # takes a second, which a waiting process can save
    from botocore.config import Config

    words: dict[str, Any] = {
        "connect_timeout": 10,
        "read_timeout": 60,
        "max_pool_connections": connections,
        "retries": {"mode": "standard", "max_attempts": 5},
    }
    try:
        # Servers other than Amazon's do not support the checksums that newer versions add; we send an MD5.
        config = Config(
            request_checksum_calculation="when_required", response_checksum_validation="when_required", **words
        )
    except TypeError:
        config = Config(**words)
    return boto3.session.Session().client(
        "s3", region_name=region or None, endpoint_url=endpoint_url or None, config=config
    )


def code_of(error: Exception) -> str:
    """The code in S3's answer, empty if there was no answer."""
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def explain(error: Exception, bucket: str) -> str:
    """An error in one line."""
    code, kind = code_of(error), type(error).__name__
    if code in ANSWERS:
        return ANSWERS[code].format(bucket=bucket, operation=getattr(error, "operation_name", ""))
    if kind in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"):
        return "there are no credentials of S3, and this machine has no role. " + ROTATE
    return re.sub(r"(https?://[^/\"]+)/[^\"]*", r"\1", " ".join(str(error).split())).rstrip(".")


def part_size(size: int) -> int:
    """The part size in bytes for uploading a file."""
    return max(PART, math.ceil(size / MOST_PARTS / MIB) * MIB)


def etag_of(digests: list[bytes], at_once: bool) -> str:
    """S3's ETag for an object, from the MD5 digests of its parts."""
    if at_once:
        return digests[0].hex()
    return f"{hashlib.md5(b''.join(digests)).hexdigest()}-{len(digests)}"


def etag_of_file(path: str, part: int) -> str:
    """The ETag of a file uploaded with this part size; 0: in one request."""
    if not part:
        digest = hashlib.md5()
        for piece in read_pieces(path, CHUNK):
            digest.update(piece)
        return digest.hexdigest()
    return etag_of([hashlib.md5(piece).digest() for piece in read_pieces(path, part)], False)


def usual_part(size: int, etag: str) -> int:
    """The most likely part size of an object's upload; 0: in one request, -1: unknown."""
    if "-" not in etag:
        return 0
    number = int(etag.rpartition("-")[2])
    for part in (*USUAL_PARTS, part_size(size)):
        if math.ceil(size / part) == number:
            return part
    return -1


def matches(s3: Any, bucket: str, key: str, path: str, size: int, etag: str) -> bool | None:
    """Whether a file has an object's content; None if S3 gives no checksum that can be computed."""
    if os.path.getsize(path) != size:
        return False
    part = usual_part(size, etag)
    if part >= 0 and etag_of_file(path, part) == etag:
        return True
    head = s3.head_object(Bucket=bucket, Key=key)
    if "aws:kms" in head.get("ServerSideEncryption", "") or head.get("SSECustomerAlgorithm"):
        return None
    if "-" not in etag:
        return False
    part = s3.head_object(Bucket=bucket, Key=key, PartNumber=1)["ContentLength"]
    return etag_of_file(path, part) == etag
