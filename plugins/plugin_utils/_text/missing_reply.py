# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Describe why a node is missing from a result to which other nodes have contributed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line


def describe_missing_reply(name: str, reply: Any) -> str:
    """Return the node's name and the error in its task result, which may itself begin with the name."""
    message = single_line(reply.get("msg", "") if isinstance(reply, Mapping) else "")
    return f"{name}: {message.removeprefix(f'{name}: ') or 'no reply'}"
