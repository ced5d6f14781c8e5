# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The standard output of the programs that prepare a node, which its supervisor reads."""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any


def write_message(message: dict[str, Any]) -> None:
    """Write a message for the supervisor as one line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
