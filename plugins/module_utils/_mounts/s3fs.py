# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Buckets mounted by s3fs; the known failures were observed with s3fs 1.90."""

from __future__ import annotations

from typing import Mapping

from ansible_collections.muster.training.plugins.module_utils._mounts import s3
from ansible_collections.muster.training.plugins.module_utils._mounts.driver import (
    DesiredMount,
    KnownFailure,
    MountDriver,
    UnitContent,
    common_options,
    merge_options,
)
from ansible_collections.muster.training.plugins.module_utils._mounts.unit import format_options


class S3fs(MountDriver):
    """A FUSE file system that can mount a single directory of a bucket."""

    name = "s3fs"
    program = "s3fs"
    role = "s3fs"
    filesystem = "fuse"
    device = "/dev/fuse"
    causes = (
        *s3.FUSE_CAUSES,
        KnownFailure(
            r"fuse: unknown option [`'](?:([^'=]+))",
            "s3fs on this node does not recognize the option {1}",
            "remove {1} from the options; `man s3fs` on this node lists the valid ones",
        ),
        KnownFailure(
            "no enough disk space|not enough disk space|No space left on device",
            "the disk of the cache directory is full, or has less free space than ensure_diskfree requires",
            "free up space on it, or choose another cache directory or a smaller ensure_diskfree",
        ),
        KnownFailure(
            "Failed to get IAM role name|iam_role|could not load IAM|cannot get IAM",
            "this node has no role that provides credentials",
            "set credentials (access_key, secret_key) for the mount, or a role for the instance; "
            "for a public bucket, set the option public_bucket: 1",
        ),
        KnownFailure(
            "could not determine how to establish security credentials",
            "no credentials are set",
            "set credentials (access_key, secret_key) for the mount, or the option iam_role: auto, or public_bucket: 1",
        ),
        *s3.CAUSES,
    )

    def problems(self, mount: DesiredMount) -> list[str]:
        """Return the reasons to refuse a mount."""
        return [
            *super().problems(mount),
            *s3.source_problems(mount.source),
            *s3.credential_problems(mount.credentials),
        ]

    def credential_text(self, credentials: Mapping[str, str]) -> str:
        """Return an environment file, because a passwd_file could not contain spaces, colons or a session token."""
        return s3.credential_text(credentials)

    def parts(self, mount: DesiredMount, credentials_file: str) -> UnitContent:
        """Return the unit's content.

        Timeouts are short: by default s3fs waits 300 s to connect and 120 s for a response, five times. It looks up
        each name in four forms, with a pause of 4 s after each failure (curl.cpp, s3fs.cpp of 1.90). With one try each,
        a reader gets an error after 16 s if S3 is unreachable, and after 60 s if it is silent (both observed). Errors
        are logged to explain a failure.
        """
        bucket, prefix = s3.bucket_and_prefix(mount.source)
        defaults = {
            **common_options(mount),
            "umask": "0022",
            "connect_timeout": 5,
            "readwrite_timeout": 10,
            "retries": 1,
            "dbglevel": "err",
        }
        if "session_token" in mount.credentials:
            defaults["use_session_token"] = True
        if not mount.credentials and "public_bucket" not in mount.options:
            defaults["iam_role"] = "auto"
        return UnitContent(
            what=f"{bucket}:/{prefix}" if prefix else bucket,
            fs_type="fuse.s3fs",
            options=tuple(format_options(merge_options(defaults, mount.options))),
            environment_file=credentials_file,
        )

    def directories(self, mount: DesiredMount) -> list[str]:
        """Return the cache directory."""
        return [str(mount.options["use_cache"])] if mount.options.get("use_cache") else []
