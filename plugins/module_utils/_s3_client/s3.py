# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Common functions of the node programs that use S3: client, error messages, and S3's checksums of files.

Needs boto3, which finds the credentials: AWS_SHARED_CREDENTIALS_FILE names a file, or the instance has a role.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._files.content import CHUNK, MIB, read_pieces

PART_SIZE = 16 * MIB  # bytes per part of an upload; S3 allows at most 10000 parts, of at least 5 MiB
MAX_PARTS = 9999
# Part sizes that upload tools use, the most common first: an ETag does not reveal which one was used.
COMMON_PART_SIZES = tuple(size * MIB for size in (8, 16, 5, 64, 32, 15, 10, 50, 100, 128, 256, 512))
FIX_CREDENTIALS = (
    "Set the right s3_client_access_key_id and s3_client_secret_access_key (with temporary credentials, also "
    "s3_client_session_token), then run the same command again"
)
ERROR_MESSAGES = {
    "NoSuchBucket": "bucket {bucket} does not exist. Correct its name, or create it",
    "404": "bucket {bucket} does not exist. Correct its name, or create it",
    "AccessDenied": (
        "access to bucket {bucket} is denied ({operation}). Grant these credentials permission for that operation"
    ),
    "403": ("access to bucket {bucket} is denied ({operation}). Grant these credentials permission for that operation"),
    "InvalidAccessKeyId": "S3 does not recognize the access key. " + FIX_CREDENTIALS,
    "SignatureDoesNotMatch": "the secret access key does not match the access key. " + FIX_CREDENTIALS,
    "ExpiredToken": "the credentials have expired. " + FIX_CREDENTIALS,
    "InvalidToken": "the session token is invalid. " + FIX_CREDENTIALS,
    "RequestTimeTooSkewed": "this node's clock differs from S3's. Correct it: sudo timedatectl set-ntp true",
    "PermanentRedirect": "bucket {bucket} is in another region. Correct s3_client_region",
    "AuthorizationHeaderMalformed": "bucket {bucket} is in another region. Correct s3_client_region",
    "400": "bucket {bucket} may be in another region. Correct s3_client_region",
    "301": "bucket {bucket} is in another region. Correct s3_client_region",
    "EntityTooLarge": "a file exceeds the size limit of this S3 service",
    "QuotaExceeded": "bucket {bucket} is full. Free some space in it",
}


class FileChangedError(Exception):
    """A file changed while it was being read."""


def s3_errors() -> tuple[type[Exception], ...]:
    """Return boto3's error classes, for `except`."""
    from botocore.exceptions import BotoCoreError, ClientError

    return BotoCoreError, ClientError


def create_client(region: str, endpoint_url: str, connections: int = 16) -> Any:
    """Return an S3 client."""
    import boto3  # takes a second, which waiting processes need not spend
    from botocore.config import Config

    options: dict[str, Any] = {
        "connect_timeout": 10,
        "read_timeout": 60,
        "max_pool_connections": connections,
        "retries": {"mode": "standard", "max_attempts": 5},
    }
    try:
        # Servers other than Amazon's do not support the checksums that newer boto3 versions add; uploads send an MD5
        # digest.
        config = Config(
            request_checksum_calculation="when_required", response_checksum_validation="when_required", **options
        )
    except TypeError:
        config = Config(**options)
    return boto3.session.Session().client(
        "s3", region_name=region or None, endpoint_url=endpoint_url or None, config=config
    )


def error_code(error: Exception) -> str:
    """Return the error code in S3's response, or an empty string without a response."""
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def explain(error: Exception, bucket: str) -> str:
    """Return an error message on one line."""
    code, kind = error_code(error), type(error).__name__
    if code in ERROR_MESSAGES:
        return ERROR_MESSAGES[code].format(bucket=bucket, operation=getattr(error, "operation_name", ""))
    if kind in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"):
        return "no S3 credentials are configured, and this machine has no instance role. " + FIX_CREDENTIALS
    return re.sub(r"(https?://[^/\"]+)/[^\"]*", r"\1", " ".join(str(error).split())).rstrip(".")


def choose_part_size(file_size: int) -> int:
    """Return the part size in bytes for uploading a file."""
    return max(PART_SIZE, math.ceil(file_size / MAX_PARTS / MIB) * MIB)


def compute_etag(digests: list[bytes], single_request: bool) -> str:
    """Return S3's ETag of an object, from the MD5 digests of its parts."""
    if single_request:
        return digests[0].hex()
    return f"{hashlib.md5(b''.join(digests)).hexdigest()}-{len(digests)}"


def compute_file_etag(path: str, part_size: int) -> str:
    """Return the ETag of a file uploaded with this part size in bytes; 0 means uploaded in a single request."""
    if not part_size:
        digest = hashlib.md5()
        for piece in read_pieces(path, CHUNK):
            digest.update(piece)
        return digest.hexdigest()
    return compute_etag([hashlib.md5(piece).digest() for piece in read_pieces(path, part_size)], False)


def guess_part_size(object_size: int, etag: str) -> int:
    """Return the most likely part size of an object's upload; 0 means a single request, -1 unknown."""
    if "-" not in etag:
        return 0
    part_count = int(etag.rpartition("-")[2])
    for part_size_guess in (*COMMON_PART_SIZES, choose_part_size(object_size)):
        if math.ceil(object_size / part_size_guess) == part_count:
            return part_size_guess
    return -1


def matches_object(s3: Any, bucket: str, key: str, path: str, size: int, etag: str) -> bool | None:  # noqa: PLR0913
    """Return whether a file has an object's content, or None if S3 has no checksum that can be computed."""
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
