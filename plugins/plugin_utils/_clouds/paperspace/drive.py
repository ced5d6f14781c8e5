# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster's network drive on Paperspace as variables of the role cifs_share.

The password is a lookup that requests it when needed, so that no inventory listing and no cache contains it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Drive
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import drive_name


def cluster_drive(cluster: str, networks: Collection[str], drives: Sequence[Drive]) -> Drive | None:
    """Return the cluster's drive, or None. networks: ids of the networks that its machines are in."""
    name = drive_name(cluster)
    return next((drive for drive in drives if drive["network"] in networks and drive["name"] == name), None)


def mount_variables(drive: Drive, path: str) -> Mapping[str, Any]:
    """Return the mount variables, without the password. path: the mount point on the nodes."""
    return {"cifs_share_mounts": [{"share": drive["share"], "path": path}], "cifs_share_username": drive["username"]}


def password_template(drive: Drive, api_url: str) -> str:
    """Return a template that requests the password when needed, or "" if the drive's id is not safe in a template.

    api_url: the user's setting.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", drive["id"], re.ASCII):
        return ""
    arguments = f"'muster.training.paperspace_drive_password', '{drive['id']}', api_url={json.dumps(api_url)}"
    return f"{{{{ lookup({arguments}) }}}}"
