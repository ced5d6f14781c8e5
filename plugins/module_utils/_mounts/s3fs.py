# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Buckets mounted by s3fs. Pure. Private to this collection.

Runs on the node, standard library only, Python >= 3.8. Seen with s3fs 1.90.
"""

from __future__ import annotations

from typing import Mapping

from ansible_collections.muster.training.plugins.module_utils._mounts import s3
from ansible_collections.muster.training.plugins.module_utils._mounts.kind import (
    Cause,
    Kind,
    Parts,
    Wanted,
    merged,
    of_every_mount,
)
from ansible_collections.muster.training.plugins.module_utils._mounts.unit import option_words


class S3fs(Kind):
    """A file system in user space; a directory of a bucket may be mounted alone."""

    name = "s3fs"
    program = "s3fs"
    role = "s3fs"
    filesystem = "fuse"
    device = "/dev/fuse"
    causes = (
        *s3.FUSE_CAUSES,
        Cause(
            r"fuse: unknown option [`'](?:([^'=]+))",
            "s3fs of this node does not know the option {1}",
            "remove {1} from the options; `man s3fs` on this node lists those that it knows",
        ),
        Cause(
            "no enough disk space|not enough disk space|No space left on device",
            "the disk of the cache directory is full, or has less free than ensure_diskfree asks for",
            "make room there, choose another cache directory, or a smaller ensure_diskfree",
        ),
        Cause(
            "Failed to get IAM role name|iam_role|could not load IAM|cannot get IAM",
            "this node has no role from which credentials could be taken",
            "give the mount credentials (access_key, secret_key), or the instance a role; "
            "for an open bucket set the option public_bucket: 1",
        ),
        Cause(
            "could not determine how to establish security credentials",
            "no credentials are given",
            "give the mount credentials (access_key, secret_key), or the option iam_role: auto, or public_bucket: 1",
        ),
        *s3.CAUSES,
    )

    def problems(self, wanted: Wanted) -> list[str]:
        """Return what is refused."""
        return [
            *super().problems(wanted),
            *s3.source_problems(wanted.source),
            *s3.credential_problems(wanted.credentials),
        ]

    def credential_text(self, credentials: Mapping[str, str]) -> str:
        """Return a file of variables: a passwd_file could not hold spaces, colons or a session token."""
        return s3.credential_text(credentials)

    def parts(self, wanted: Wanted, credentials_file: str) -> Parts:
        """Return what stands in the unit.

        Short timeouts: by default s3fs waits for 300 s to connect and 120 s for an answer, five times. A name is
        asked for in four forms, each with a pause of 4 s where it fails (curl.cpp, s3fs.cpp of 1.90): with one try of
        each a reader hears after 16 s that S3 is gone, and after 60 s that it is silent (both seen). Errors are logged,
        by which a failure is explained.
        """
        bucket, prefix = s3.bucket_and_prefix(wanted.source)
        own = {
            **of_every_mount(wanted),
            "umask": "0022",
            "connect_timeout": 5,
            "readwrite_timeout": 10,
            "retries": 1,
            "dbglevel": "err",
        }
        if "session_token" in wanted.credentials:
            own["use_session_token"] = True
        if not wanted.credentials and "public_bucket" not in wanted.options:
            own["iam_role"] = "auto"
        return Parts(
            what=f"{bucket}:/{prefix}" if prefix else bucket,
            fs_type="fuse.s3fs",
            options=tuple(option_words(merged(own, wanted.options))),
            environment_file=credentials_file,
        )

    def directories(self, wanted: Wanted) -> list[str]:
        """Return the cache."""
        return [str(wanted.options["use_cache"])] if wanted.options.get("use_cache") else []
