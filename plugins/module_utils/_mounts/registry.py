# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All mount drivers, by name."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._mounts.cifs import Cifs
from ansible_collections.muster.training.plugins.module_utils._mounts.mount_s3 import MountS3
from ansible_collections.muster.training.plugins.module_utils._mounts.s3fs import S3fs

KINDS = {kind.name: kind for kind in (Cifs(), S3fs(), MountS3())}
