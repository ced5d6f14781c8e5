# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the API key for Paperspace."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import ApiKeyError
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

try:
    import tomllib
except ImportError:  # Python < 3.11; only find_api_key() needs this module, and it reports that
    tomllib = None  # type: ignore[assignment]


def find_api_key(configured: str | None, environment: Mapping[str, str], home: str) -> str:
    """Return the API key: the configured one, else PAPERSPACE_API_KEY, else from `pspace login` or its predecessor.

    ~/.paperspace/credentials.toml holds one key per team; ~/.paperspace/config.toml says which team is current.
    Raise ApiKeyError, which names the searched locations.
    """
    key = (configured or "").strip() or environment.get("PAPERSPACE_API_KEY", "").strip()
    if not key:
        directory = os.path.join(home, ".paperspace")
        key = _read_team_key(directory) or _read_legacy_key(os.path.join(directory, "config.json"))
    if not key:
        raise ApiKeyError(
            "no API key in the option api_key, PAPERSPACE_API_KEY, ~/.paperspace/credentials.toml or "
            "~/.paperspace/config.json"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        # otherwise the HTTP library would reject the header with a message that quotes the key
        raise ApiKeyError("the API key contains a space or an invalid character; check that it was copied correctly")
    return key


def _read_team_key(directory: str) -> str:
    path = os.path.join(directory, "credentials.toml")
    credentials = _read_toml(path)
    keys = credentials.get("keys") if credentials else None
    if not isinstance(keys, dict) or not keys:
        return ""
    team = _read_toml(os.path.join(directory, "config.toml")).get("team")
    if team not in keys:
        if len(keys) > 1:
            teams = ", ".join(sorted(single_line(name, 60) for name in keys))
            raise ApiKeyError(
                f"{path} has keys for several teams ({teams}) and none is selected",
                hint="Select one with `pspace config set team NAME`, or set PAPERSPACE_API_KEY.",
            )
        team = next(iter(keys))
    return str(keys[team]).strip()


def _read_toml(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            if tomllib is None:
                raise ApiKeyError(f"reading {path} needs Python 3.11", hint="Set PAPERSPACE_API_KEY instead.")
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _read_error(path, error) from None


def _read_legacy_key(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = json.load(file)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise _read_error(path, error) from None
    return str(content.get("apiKey") or "").strip() if isinstance(content, dict) else ""


def _read_error(path: str, error: Exception) -> ApiKeyError:
    # the parser's message may quote the file, including the key
    reason = (error.strerror or "") if isinstance(error, OSError) else "it is malformed"
    return ApiKeyError(
        f"cannot read {path}: {reason}", hint="Repair or remove the file, or set PAPERSPACE_API_KEY instead."
    )
