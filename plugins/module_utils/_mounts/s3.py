# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Credentials, sources and known failures for the two drivers that mount buckets."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.module_utils._mounts.driver import KnownFailure
from ansible_collections.muster.training.plugins.module_utils._mounts.unit import environment_text

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Mapping

# docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html; older buckets may have capitals and underscores
BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


def bucket_and_prefix(source: str) -> tuple[str, str]:
    """Split BUCKET or BUCKET:/PREFIX into bucket and prefix, without slashes around the prefix."""
    bucket, _colon, prefix = source.partition(":")
    return bucket, prefix.strip("/")


def source_problems(source: str) -> list[str]:
    """Return the problems with a source."""
    bucket, colon, prefix = source.partition(":")
    if not BUCKET.fullmatch(bucket) or prefix.startswith("//"):
        return [f"the source is {source!r}: write BUCKET or BUCKET:/PREFIX, without s3://"]
    if colon and not prefix.startswith("/"):
        return [f"the source is {source!r}: write a prefix that begins with a slash, such as {bucket}:/{prefix}"]
    if re.search(r"[\x00-\x1f\x7f\\]", prefix) or prefix != prefix.strip() or "//" in prefix.strip("/"):
        return [f"the source is {source!r}: its prefix must not contain control characters, backslashes or empty parts"]
    return []


def credential_problems(credentials: Mapping[str, str]) -> list[str]:
    """Return the problems with credentials, without showing their values."""
    problems = []
    names = set(credentials)
    if names and not names >= {"access_key", "secret_key"}:
        missing = " and ".join(sorted({"access_key", "secret_key"} - names))
        problems.append(
            f"the credentials lack {missing}: set both access_key and secret_key, or neither to use the instance role"
        )
    unknown_keys = sorted(names - {"access_key", "secret_key", "session_token"})
    if unknown_keys:
        problems.append(
            f"the credentials contain {', '.join(unknown_keys)}, but only access_key, secret_key and "
            "session_token are allowed"
        )
    problems += [
        (
            f"{name} contains a control character, or has a space before or after it: copy the key as Amazon shows "
            "it, on one line"
        )
        for name, value in credentials.items()
        if re.search(r"[\x00-\x1f\x7f]", value) or value != value.strip()
    ]
    return problems


def credential_text(credentials: Mapping[str, str]) -> str:
    """Return an environment file for the AWS tools with both spellings, since s3fs before 1.87 supports only the older
    one.
    """
    if not credentials:
        return ""
    names = {
        "access_key": ("AWS_ACCESS_KEY_ID", "AWSACCESSKEYID"),
        "secret_key": ("AWS_SECRET_ACCESS_KEY", "AWSSECRETACCESSKEY"),
        "session_token": ("AWS_SESSION_TOKEN", "AWSSESSIONTOKEN"),
    }
    return environment_text({name: credentials[key] for key in names if key in credentials for name in names[key]})


# Checked in this order: after each refusal, s3fs tries an older signature version, whose AccessDenied means nothing.
CAUSES = (
    KnownFailure(
        "RequestTimeTooSkewed|difference between the request time and the current time",
        "this node's clock is more than 15 minutes off, so S3 rejects its requests (RequestTimeTooSkewed)",
        "set the clock with sudo timedatectl set-ntp true, then check it with `timedatectl`",
    ),
    KnownFailure(
        "SignatureDoesNotMatch|signature we calculated does not match",
        "the secret key does not belong to the access key (SignatureDoesNotMatch)",
        "correct the secret key in the variables, the vault or AWS_SECRET_ACCESS_KEY",
    ),
    KnownFailure(
        "InvalidAccessKeyId|Access Key Id you provided does not exist",
        "S3 does not recognize the access key (InvalidAccessKeyId)",
        (
            "correct the access key in the variables, the vault or AWS_ACCESS_KEY_ID; a new one may take a few "
            "seconds to become valid"
        ),
    ),
    KnownFailure(
        "ExpiredToken|InvalidToken|token (has expired|is expired|included in the request is invalid)",
        "the session token has expired or does not belong to these keys ({0})",
        "get new temporary credentials, or use a user's keys or the instance's role",
    ),
    KnownFailure(
        r"region '[^']*' is wrong; expecting '([^']+)'",
        "the bucket is in region {1}, but the mount is set to another region",
        "set the region of the mount to {1}",
    ),
    KnownFailure(
        r"AuthorizationHeaderMalformed|PermanentRedirect|must be addressed using the specified endpoint",
        "the bucket is in a different region from the one set for the mount",
        (
            "set the region of the mount to the bucket's (aws s3api get-bucket-location --bucket BUCKET), and "
            "correct the endpoint's URL if it names a region"
        ),
    ),
    KnownFailure(
        "NoSuchBucket|bucket does not exist|bucket or key not found|bucket or directory not found",
        "this bucket or prefix does not exist at this endpoint",
        "correct the name of the bucket (no s3:// and no ARN) or the prefix, and check the endpoint and the account",
    ),
    KnownFailure(
        "AccessDenied|Access Denied|Forbidden|invalid credentials",
        "S3 denies access to the bucket with these credentials (AccessDenied)",
        "allow s3:ListBucket on the bucket and s3:GetObject on its objects; to write, also s3:PutObject and "
        "s3:DeleteObject",
    ),
    KnownFailure(
        "SlowDown|ServiceUnavailable|response code 50[0-9]",
        "S3 is overloaded or temporarily unavailable ({0})",
        "try again in a minute; see https://health.aws.amazon.com",
    ),
    KnownFailure(
        "COULDNT_RESOLVE_HOST|could ?n[o']t resolve host|failed to resolve|DNS",
        "the name of the endpoint cannot be resolved",
        "correct the endpoint's URL, or the name server of this node (resolvectl status)",
    ),
    KnownFailure(
        "COULDNT_CONNECT|Connection refused|connect error|unable to connect|SOCKET_(CONNECT|TIMEOUT|NO_ROUTE)[A-Z_]*",
        "the endpoint is not responding, or it cannot be reached",
        "check the endpoint's URL, its server, and any firewalls in between (curl -v URL on this node)",
    ),
    KnownFailure(
        "OPERATION_TIMEDOUT|ABORTED_BY_CALLBACK|timed out|timeout",
        "the endpoint accepted the request but did not respond in time",
        "check whether its server or the network is overloaded (curl -v URL on this node)",
    ),
    KnownFailure(
        "SSL_CONNECT_ERROR|PEER_FAILED_VERIFICATION|SSL_CACERT|certificate",
        "this node does not trust the endpoint's certificate",
        "correct the endpoint's URL, or install its CA certificate (sudo update-ca-certificates)",
    ),
)
# Errors from FUSE itself.
FUSE_CAUSES = (
    KnownFailure(
        "fuse: device not found|/dev/fuse.*(No such|not found)|modprobe fuse",
        "FUSE is not available on this node (/dev/fuse is missing)",
        "run sudo modprobe fuse; if this node is a container, start it with --device /dev/fuse --cap-add SYS_ADMIN",
    ),
    KnownFailure(
        "/dev/fuse.*(denied|not permitted)|fusermount.*not permitted",
        "this node is not allowed to use /dev/fuse",
        "if this node is a container, start it with --device /dev/fuse --cap-add SYS_ADMIN",
    ),
)
