# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""S3 clients, and messages for S3 errors."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.module_utils._s3_client.s3 import error_code

CREDENTIALS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
# By S3's error code: what is wrong, and what to do.
MESSAGES = {
    "NoSuchBucket": "bucket {bucket} does not exist. Correct its name",
    "404": "bucket {bucket} does not exist. Correct its name",
    "AccessDenied": "access to bucket {bucket} is denied ({operation}). Grant this user access, or use other "
    "credentials",
    "403": "access to bucket {bucket} is denied ({operation}): it belongs to another account, or this user has no "
    "access. Use other credentials, or another bucket",
    "AllAccessDisabled": "access to bucket {bucket} is disabled by its provider",
    "BucketAlreadyExists": "another account already has a bucket {bucket}. Choose another name",
    "InvalidBucketName": (
        "{bucket} is not a valid bucket name: use 3 to 63 lowercase letters, digits, dots and hyphens"
    ),
    "InvalidAccessKeyId": "S3 does not recognize the access key. " + CREDENTIALS,
    "SignatureDoesNotMatch": "the secret access key does not match the access key. " + CREDENTIALS,
    "ExpiredToken": "the credentials have expired. Get new ones",
    "InvalidToken": "the session token is invalid. Get new credentials",
    "RequestTimeTooSkewed": "this machine's clock differs from that of S3. Set it (sudo timedatectl set-ntp true)",
    "PreconditionFailed": (
        "an object in {bucket} changed in the meantime. Stop the programs that are writing there, and run this again"
    ),
    "PermanentRedirect": "bucket {bucket} is in another region. Correct the region",
    "AuthorizationHeaderMalformed": "bucket {bucket} is in another region. Correct the region",
    "IllegalLocationConstraintException": "the region does not match the endpoint. Correct region or endpoint_url",
    "InvalidLocationConstraint": "the region does not exist. Correct the region",
    "SlowDown": "S3 is throttling requests. Use fewer workers",
}


def explain(error: Exception, bucket: str) -> str:
    """Return a one-line message for a boto3 error."""
    code = error_code(error)
    kind = type(error).__name__
    if code in MESSAGES:
        return MESSAGES[code].format(bucket=bucket, operation=getattr(error, "operation_name", ""))
    if kind in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"):
        return f"no credentials for S3 were found. {CREDENTIALS}, or pass access_key_id and secret_access_key"
    if kind == "ProfileNotFound":
        return f"{error}. Correct AWS_PROFILE"
    if kind == "ParamValidationError" and "bucket" in str(error).lower():
        return MESSAGES["InvalidBucketName"].format(bucket=bucket)
    if kind in ("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError"):
        return (
            f"{str(error).rstrip('.')}. Check that the endpoint is correct and reachable from this machine, and run "
            "this again"
        )
    return " ".join(str(error).split())


def make_client(  # noqa: PLR0913
    access_key_id: str, secret_access_key: str, session_token: str, region: str, endpoint_url: str, workers: int
) -> Any:
    """Return an S3 client.

    Without credentials, boto3 finds them in the environment, in ~/.aws, or from the instance.
    Raise ImportError if boto3 is missing, and botocore's exceptions.
    """
    import boto3
    from botocore.config import Config

    config = Config(
        max_pool_connections=2 * workers,
        connect_timeout=10,
        read_timeout=300,  # S3 replies to a 5 GB copy request only once the copy is finished
        retries={"mode": "standard", "max_attempts": 8},
    )
    session = boto3.session.Session(
        aws_access_key_id=access_key_id or None,
        aws_secret_access_key=secret_access_key or None,
        aws_session_token=session_token or None,
    )
    return session.client("s3", region_name=region or None, endpoint_url=endpoint_url or None, config=config)


def bucket_region(client: Any, bucket: str) -> str:
    """Return the region of a bucket, as S3 reports it. Raise ClientError."""
    from botocore.exceptions import ClientError

    try:
        headers = client.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
    except ClientError as error:
        headers = error.response["ResponseMetadata"]["HTTPHeaders"]
        if error_code(error) not in ("301", "400", "PermanentRedirect") or "x-amz-bucket-region" not in headers:
            raise
    region = headers.get("x-amz-bucket-region")
    return str(region or client.get_bucket_location(Bucket=bucket)["LocationConstraint"] or "us-east-1")
