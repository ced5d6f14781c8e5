# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster's network drive at Paperspace as variables of the role cifs_share. Private to this collection, pure.

The password is not among them: in its place is a lookup that asks for it, so that no listing of an inventory and
no cache has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Drive
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import drive_name


def own_drive(cluster: str, networks: Collection[str], drives: Sequence[Drive]) -> Drive | None:
    """The cluster's drive, None without one. networks: ids of those in which its machines are."""
    return next((one for one in drives if one["network"] in networks and one["name"] == drive_name(cluster)), None)


def mount_variables(drive: Drive, path: str) -> Mapping[str, Any]:
    """Variables that are plain data. path: of the mount point on the nodes."""
    return {"cifs_share_mounts": [{"share": drive["share"], "path": path}], "cifs_share_username": drive["username"]}


def password_template(drive: Drive, api_url: str) -> str:
    """A template that asks for the password when it is needed, "" if the drive's id may not stand in one.

    api_url: of the API, as the user has given it.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", drive["id"], re.ASCII):
        return ""
    words = f"'muster.training.paperspace_drive_password', '{drive['id']}', api_url={json.dumps(api_url)}"
    return f"{{{{ lookup({words}) }}}}"
