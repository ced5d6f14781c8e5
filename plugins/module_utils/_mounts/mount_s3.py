# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Buckets mounted by Mountpoint for Amazon S3 (mount-s3). Pure. Private to this collection.

Runs on the node, standard library only, Python >= 3.8. Options are command line options without dashes, as
doc/CONFIGURATION.md of mountpoint-s3 >= 1.18 describes for /etc/fstab; a mount unit also calls mount(8).
"""

from __future__ import annotations

import re
from typing import Mapping

from ansible_collections.muster.training.plugins.module_utils._mounts import s3
from ansible_collections.muster.training.plugins.module_utils._mounts.driver import Cause, Kind, Parts, Wanted, merged
from ansible_collections.muster.training.plugins.module_utils._mounts.unit import option_words

# cli.rs of mountpoint-s3, without options that our unit sets itself or that make no sense in it
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


class MountS3(Kind):
    """Amazon's own program: fast reads, writes only new objects, no rename, no append."""

    name = "mount-s3"
    program = "mount.mount-s3"  # the name that mount(8) calls, since 1.18
    role = "mount_s3"
    filesystem = "fuse"
    device = "/dev/fuse"
    causes = (
        *s3.FUSE_CAUSES,
        Cause(
            r"unexpected argument '?(?:--)?([^' \n]+)|2/INVALIDARGUMENT",
            "mount-s3 of this node does not know an option ({0})",
            "remove it from the options; `mount-s3 --help` on this node lists those that it knows",
        ),
        Cause(
            "No space left on device|not enough (disk )?space",
            "the disk of the cache directory is full",
            "make room there, choose another cache directory, or a smaller max-cache-size",
        ),
        Cause(
            "No signing credentials|no credentials|Unable to load credentials|Failed to load credentials",
            "no credentials are given, and this node has no role from which they could be taken",
            "give the mount credentials (access_key, secret_key), or the instance a role; "
            "for an open bucket set the option no-sign-request: true",
        ),
        *s3.CAUSES,
    )

    def problems(self, wanted: Wanted) -> list[str]:
        """Return the reasons to refuse a mount. Checks options, since clap's errors go to a journal that few read."""
        unknown = sorted(name for name in wanted.options if name not in OPTIONS)
        both = [name for name in ("allow-other", "allow-root") if wanted.options.get(name)]
        problems = [
            # these options may hold escaped commas
            *super().problems(
                Wanted(wanted.path, "", {name: no_commas(value) for name, value in wanted.options.items()})
            ),
            *s3.source_problems(wanted.source),
            *s3.credential_problems(wanted.credentials),
        ]
        if unknown:
            problems.append(
                f"mount-s3 knows no option {', '.join(unknown)}. Needed: names of its command line without dashes in "
                "front, as force-path-style; read_only is a setting of the mount itself"
            )
        if len(both) == 2:
            problems.append("allow-other and allow-root exclude each other. Needed: one of them")
        return problems

    def credential_text(self, credentials: Mapping[str, str]) -> str:
        """Return the content of an environment file."""
        return s3.credential_text(credentials)

    def parts(self, wanted: Wanted, credentials_file: str) -> Parts:
        """Return the unit's content: mount-s3 itself requires _netdev, nosuid and nodev."""
        bucket, prefix = s3.bucket_and_prefix(wanted.source)
        own = {
            "_netdev": True,
            "nosuid": True,
            "nodev": True,
            "nofail": True,
            "ro" if wanted.read_only else "rw": True,
            "uid": wanted.uid,
            "gid": wanted.gid,
        }
        options = {
            name: value if isinstance(value, bool) or value is None else str(value).replace(",", "\\,")
            for name, value in merged(own, wanted.options).items()
        }
        return Parts(
            what=f"s3://{bucket}/{prefix}/" if prefix else f"s3://{bucket}/",
            fs_type="mount-s3",
            options=tuple(option_words(options)),
            environment_file=credentials_file,
        )

    def directories(self, wanted: Wanted) -> list[str]:
        """Return the directories of cache and logs."""
        return [str(wanted.options[name]) for name in ("cache", "log-directory") if wanted.options.get(name)]

    def may_probe(self, wanted: Wanted) -> bool:
        """Whether written objects can be removed again."""
        return not wanted.read_only and wanted.options.get("allow-delete") is True


def no_commas(value: object) -> object:
    """Return a value without commas, which are allowed here."""
    return value if isinstance(value, bool) or value is None else re.sub(",", "", str(value))
