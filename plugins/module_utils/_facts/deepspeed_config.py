# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find and read a job's DeepSpeed configuration."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json, read_bytes

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Sequence

    Config = Dict[str, Any]

OPTIONS = ("--deepspeed", "--deepspeed_config", "--deepspeed-config", "--ds_config")
LIMIT = 2**20  # bytes of a configuration to read; real ones have a few thousand


def config_path(arguments: Sequence[str]) -> str:
    """Return the path of the DeepSpeed configuration file in a job's arguments, or "".

    A bare --deepspeed enables DeepSpeed in scripts that take the file with --deepspeed_config.
    """
    path = ""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in OPTIONS:
            value = value if equals else next(iter(arguments[index + 1 : index + 2]), "")
            if value and not value.startswith("-"):
                path = value
    return path


def read_config(path: str) -> dict[str, Any]:
    """Return path, config (None if it cannot be read) and error for a configuration file on this machine."""
    try:
        config = parse_json(read_bytes(path, LIMIT, follow_links=True).decode("utf-8"))
    except OSError as error:
        return {"path": path, "config": None, "error": f"{error.strerror}"}
    except ValueError as error:  # includes JSON and UTF-8 errors
        return {"path": path, "config": None, "error": f"invalid JSON: {error}"[:300]}
    if not isinstance(config, dict):
        return {"path": path, "config": None, "error": "not a JSON object"}
    return {"path": path, "config": config, "error": ""}
