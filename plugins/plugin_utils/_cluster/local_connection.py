# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recognize nodes that are this machine, because Ansible uses no connection for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOCAL_CONNECTIONS = ("local", "ansible.builtin.local")


def is_local(variables: Mapping[str, Any]) -> bool:
    """Return whether a node with these variables, of which ansible_connection is rendered, is this machine."""
    return variables.get("ansible_connection") in LOCAL_CONNECTIONS
