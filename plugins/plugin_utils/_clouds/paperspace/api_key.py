# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the key of the Paperspace API. Private to this collection."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import KeyMissingError
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

try:
    import tomllib
except ImportError:  # Python < 3.11; only find_api_key() needs it, and reports that
    tomllib = None  # type: ignore[assignment]


def find_api_key(given: str | None, environment: Mapping[str, str], home: str) -> str:
    """The API key: the given one, else PAPERSPACE_API_KEY, else `pspace login`'s, else the old command line tool's.

    ~/.paperspace/credentials.toml holds one key per team; ~/.paperspace/config.toml says which team is current.
    Raises KeyMissingError, which names the places searched.
    """
    key = (given or "").strip() or environment.get("PAPERSPACE_API_KEY", "").strip()
    if not key:
        directory = os.path.join(home, ".paperspace")
        key = _key_of_team(directory) or _key_of_old_tool(os.path.join(directory, "config.json"))
    if not key:
        raise KeyMissingError(
            "no API key: the option api_key, PAPERSPACE_API_KEY, ~/.paperspace/credentials.toml and "
            "~/.paperspace/config.json give none"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        # Otherwise the HTTP library would refuse the header with a message that quotes the key.
        raise KeyMissingError("the API key contains a space or a character that no key has; check how it was copied")
    return key


def _key_of_team(directory: str) -> str:
    path = os.path.join(directory, "credentials.toml")
    credentials = _read_toml(path)
    keys = credentials.get("keys") if credentials else None
    if not isinstance(keys, dict) or not keys:
        return ""
    team = _read_toml(os.path.join(directory, "config.toml")).get("team")
    if team not in keys:
        if len(keys) > 1:
            teams = ", ".join(sorted(one_line(name, 60) for name in keys))
            raise KeyMissingError(
                f"{path} holds keys of several teams ({teams}) and none is chosen",
                hint="Choose one with `pspace config set team NAME`, or set PAPERSPACE_API_KEY.",
            )
        team = next(iter(keys))
    return str(keys[team]).strip()


def _read_toml(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            if tomllib is None:
                raise KeyMissingError(f"reading {path} needs Python 3.11", hint="Set PAPERSPACE_API_KEY instead.")
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _key_of_old_tool(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = json.load(file)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return str(content.get("apiKey") or "").strip() if isinstance(content, dict) else ""


def _unreadable(path: str, error: Exception) -> KeyMissingError:
    # The parser's message may quote the file, including the key.
    why = (error.strerror or "") if isinstance(error, OSError) else "it is malformed"
    return KeyMissingError(
        f"{path} cannot be read: {why}", hint="Repair or remove the file, or set PAPERSPACE_API_KEY instead."
    )
