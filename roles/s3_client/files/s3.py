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

S3_ERRORS = (BotoCoreError, ClientError)
PART_SIZE = 16 * MIB  # bytes of an upload's part; S3 allows at most 10000 parts, of at least 5 MiB
MAX_PARTS = 9999
# Part sizes that tools use for uploads, the usual one first: an ETag does not reveal it.
COMMON_PART_SIZES = tuple(size * MIB for size in (8, 16, 5, 64, 32, 15, 10, 50, 100, 128, 256, 512))
FIX_CREDENTIALS = "Correct s3_client_access_key_id and s3_client_secret_access_key and run the role again"
ERROR_MESSAGES = {
    "NoSuchBucket": "there is no bucket {bucket}. Correct its name, or make it",
    "404": "there is no bucket {bucket}. Correct its name, or make it",
    "AccessDenied": "access to bucket {bucket} is denied ({operation}). Give these credentials the right to it",
    "403": "access to bucket {bucket} is denied ({operation}). Give these credentials the right to it",
    "InvalidAccessKeyId": "the access key is not known to S3. " + FIX_CREDENTIALS,
    "SignatureDoesNotMatch": "the secret access key does not belong to the access key. " + FIX_CREDENTIALS,
    "ExpiredToken": "the credentials have expired. " + FIX_CREDENTIALS,
    "InvalidToken": "the session token is not valid. " + FIX_CREDENTIALS,
    "RequestTimeTooSkewed": "this node's clock differs from that of S3. Set it: timedatectl set-ntp true",
    "PermanentRedirect": "bucket {bucket} is in another region. Correct s3_client_region",
    "AuthorizationHeaderMalformed": "bucket {bucket} is in another region. Correct s3_client_region",
    "400": "bucket {bucket} is perhaps in another region. Correct s3_client_region",
    "301": "bucket {bucket} is in another region. Correct s3_client_region",
    "EntityTooLarge": "a file is larger than this S3 takes",
    "QuotaExceeded": "bucket {bucket} is full. Make room there",
}


class FileChangedError(Exception):
    """A file changed while it was read."""


def create_client(region: str, endpoint_url: str, connections: int = 16) -> Any:
    """A client of S3."""
    import boto3  # takes a second, which a waiting process can save
    from botocore.config import Config

    options: dict[str, Any] = {
        "connect_timeout": 10,
        "read_timeout": 60,
        "max_pool_connections": connections,
        "retries": {"mode": "standard", "max_attempts": 5},
    }
    try:
        # Servers other than Amazon's do not support the checksums that newer versions add; we send an MD5.
        config = Config(
            request_checksum_calculation="when_required", response_checksum_validation="when_required", **options
        )
    except TypeError:
        config = Config(**options)
    return boto3.session.Session().client(
        "s3", region_name=region or None, endpoint_url=endpoint_url or None, config=config
    )


def error_code(error: Exception) -> str:
    """The code in S3's answer, empty if there was no answer."""
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def explain(error: Exception, bucket: str) -> str:
    """An error in one line."""
    code, kind = error_code(error), type(error).__name__
    if code in ERROR_MESSAGES:
        return ERROR_MESSAGES[code].format(bucket=bucket, operation=getattr(error, "operation_name", ""))
    if kind in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"):
        return "there are no credentials of S3, and this machine has no role. " + FIX_CREDENTIALS
    return re.sub(r"(https?://[^/\"]+)/[^\"]*", r"\1", " ".join(str(error).split())).rstrip(".")


def choose_part_size(file_size: int) -> int:
    """The part size in bytes for uploading a file."""
    return max(PART_SIZE, math.ceil(file_size / MAX_PARTS / MIB) * MIB)


def compute_etag(digests: list[bytes], single_request: bool) -> str:
    """S3's ETag for an object, from the MD5 digests of its parts."""
    if single_request:
        return digests[0].hex()
    return f"{hashlib.md5(b''.join(digests)).hexdigest()}-{len(digests)}"


def compute_file_etag(path: str, part_size: int) -> str:
    """The ETag of a file uploaded with this part size; 0: in one request."""
    if not part_size:
        digest = hashlib.md5()
        for piece in read_pieces(path, CHUNK):
            digest.update(piece)
        return digest.hexdigest()
    return compute_etag([hashlib.md5(piece).digest() for piece in read_pieces(path, part_size)], False)


def guess_part_size(object_size: int, etag: str) -> int:
    """The most likely part size of an object's upload; 0: in one request, -1: unknown."""
    if "-" not in etag:
        return 0
    part_count = int(etag.rpartition("-")[2])
    for part_size_guess in (*COMMON_PART_SIZES, choose_part_size(object_size)):
        if math.ceil(object_size / part_size_guess) == part_count:
            return part_size_guess
    return -1


def matches_object(s3: Any, bucket: str, key: str, path: str, size: int, etag: str) -> bool | None:
    """Whether a file has an object's content; None if S3 gives no checksum that can be computed."""
    if os.path.getsize(path) != size:
        return False
    part_length = guess_part_size(size, etag)
    if part_length >= 0 and compute_file_etag(path, part_length) == etag:
        return True
    head = s3.head_object(Bucket=bucket, Key=key)
    if "aws:kms" in head.get("ServerSideEncryption", "") or head.get("SSECustomerAlgorithm"):
        return None
    if "-" not in etag:
        return False
    part_length = s3.head_object(Bucket=bucket, Key=key, PartNumber=1)["ContentLength"]
    return compute_file_etag(path, part_length) == etag
