# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Buckets mounted by Mountpoint for Amazon S3 (mount-s3).

Options are command line options without dashes, as doc/CONFIGURATION.md of mountpoint-s3 >= 1.18 describes for
/etc/fstab; a mount unit also calls mount(8).
"""

from __future__ import annotations

import re
from typing import Mapping

from ansible_collections.muster.training.plugins.module_utils._mounts import s3
from ansible_collections.muster.training.plugins.module_utils._mounts.driver import (
    DesiredMount,
    KnownFailure,
    MountDriver,
    UnitContent,
    merge_options,
)
from ansible_collections.muster.training.plugins.module_utils._mounts.unit import format_options

# from cli.rs of mountpoint-s3, without the options that the unit sets itself or that are useless in it
OPTIONS = frozenset(
    [
        "region",
        "endpoint-url",
        "force-path-style",
        "transfer-acceleration",
        "dual-stack",
        "requester-pays",
        "no-sign-request",
        "profile",
        "allow-delete",
        "allow-overwrite",
        "incremental-upload",
        "allow-other",
        "allow-root",
        "uid",
        "gid",
        "dir-mode",
        "file-mode",
        "cache",
        "cache-xz",
        "metadata-ttl",
        "negative-metadata-ttl",
        "max-cache-size",
        "max-threads",
        "maximum-throughput-gbps",
        "part-size",
        "read-part-size",
        "write-part-size",
        "memory-target",
        "expected-bucket-owner",
        "sse",
        "sse-kms-key-id",
        "storage-class",
        "upload-checksums",
        "bind",
        "user-agent-prefix",
        "log-directory",
        "log-metrics",
        "debug",
        "debug-crt",
        "no-log",
        "auto-unmount",
        "ca-bundle",
    ]
)


class MountS3(MountDriver):
    """Amazon's client: fast reads, writes only new objects, cannot rename or append."""

    name = "mount-s3"
    program = "mount.mount-s3"  # the name that mount(8) calls, available since 1.18
    role = "mount_s3"
    filesystem = "fuse"
    device = "/dev/fuse"
    causes = (
        *s3.FUSE_CAUSES,
        KnownFailure(
            r"unexpected argument '?(?:--)?([^' \n]+)|2/INVALIDARGUMENT",
            "mount-s3 on this node does not recognize an option ({0})",
            "remove it from the options; `mount-s3 --help` on this node lists the valid ones",
        ),
        KnownFailure(
            "No space left on device|not enough (disk )?space",
            "the disk of the cache directory is full",
            "free up space on it, or choose another cache directory or a smaller max-cache-size",
        ),
        KnownFailure(
            "No signing credentials|no credentials|Unable to load credentials|Failed to load credentials",
            "no credentials are set, and this node has no role that provides them",
            "set credentials (access_key, secret_key) for the mount, or a role for the instance; "
            "for a public bucket, set the option no-sign-request: true",
        ),
        *s3.CAUSES,
    )

    def problems(self, mount: DesiredMount) -> list[str]:
        """Return the reasons for refusing a mount, including options that mount-s3 does not support."""
        unknown = sorted(name for name in mount.options if name not in OPTIONS)
        both = [name for name in ("allow-other", "allow-root") if mount.options.get(name)]
        problems = [
            # these options may contain escaped commas
            *super().problems(
                DesiredMount(mount.path, "", {name: strip_commas(value) for name, value in mount.options.items()})
            ),
            *s3.source_problems(mount.source),
            *s3.credential_problems(mount.credentials),
        ]
        if unknown:
            problems.append(
                f"mount-s3 does not recognize the option {', '.join(unknown)}: use its command-line options "
                "without the leading dashes, such as force-path-style; read_only is a setting of the mount itself"
            )
        if len(both) == 2:
            problems.append("allow-other and allow-root are mutually exclusive: set only one of them")
        return problems

    def credential_text(self, credentials: Mapping[str, str]) -> str:
        """Return the content of an environment file."""
        return s3.credential_text(credentials)

    def parts(self, mount: DesiredMount, credentials_file: str) -> UnitContent:
        """Return the unit's content: mount-s3 itself requires _netdev, nosuid and nodev."""
        bucket, prefix = s3.bucket_and_prefix(mount.source)
        defaults = {
            "_netdev": True,
            "nosuid": True,
            "nodev": True,
            "nofail": True,
            "ro" if mount.read_only else "rw": True,
            "uid": mount.uid,
            "gid": mount.gid,
        }
        options = {
            name: value if isinstance(value, bool) or value is None else str(value).replace(",", "\\,")
            for name, value in merge_options(defaults, mount.options).items()
        }
        return UnitContent(
            what=f"s3://{bucket}/{prefix}/" if prefix else f"s3://{bucket}/",
            fs_type="mount-s3",
            options=tuple(format_options(options)),
            environment_file=credentials_file,
        )

    def directories(self, mount: DesiredMount) -> list[str]:
        """Return the cache and log directories."""
        return [str(mount.options[name]) for name in ("cache", "log-directory") if mount.options.get(name)]

    def may_probe(self, mount: DesiredMount) -> bool:
        """Return whether written objects can be removed again."""
        return not mount.read_only and mount.options.get("allow-delete") is True


def strip_commas(value: object) -> object:
    """Return a value without commas, which mount-s3 options may contain in escaped form."""
    return value if isinstance(value, bool) or value is None else re.sub(",", "", str(value))
