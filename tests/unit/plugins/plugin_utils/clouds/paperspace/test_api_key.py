# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup order of the API key."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.api_key import find_api_key
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import ApiKeyError

KEY = "s3cret-0123456789abcdef"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".paperspace").mkdir()
    return tmp_path


def test_api_key_sources_are_tried_in_order(home: Path) -> None:
    directory = home / ".paperspace"
    (directory / "config.json").write_text('{"apiKey": "old-tool"}')
    assert find_api_key(None, {}, str(home)) == "old-tool"
    (directory / "credentials.toml").write_text('version = 1\n[keys]\nteam-a = "of-team-a"\n')
    assert find_api_key("", {"PAPERSPACE_API_KEY": ""}, str(home)) == "of-team-a"
    assert find_api_key(None, {"PAPERSPACE_API_KEY": "from-env\n"}, str(home)) == "from-env"
    assert find_api_key("given", {"PAPERSPACE_API_KEY": "from-env"}, str(home)) == "given"


def test_key_of_the_current_team_is_used(home: Path) -> None:
    (home / ".paperspace" / "credentials.toml").write_text('[keys]\na = "key-a"\nb = "key-b"\n')
    with pytest.raises(ApiKeyError, match=r"several teams \(a, b\).*pspace config set team NAME"):
        find_api_key(None, {}, str(home))
    (home / ".paperspace" / "config.toml").write_text('team = "b"\n')
    assert find_api_key(None, {}, str(home)) == "key-b"


def test_missing_key_error_lists_the_searched_locations(home: Path) -> None:
    with pytest.raises(ApiKeyError, match=r"no API key in .*credentials.toml.*Create a key at https://"):
        find_api_key(None, {}, str(home))


@pytest.mark.parametrize("name", ["credentials.toml", "config.json"])
def test_broken_key_file_is_named_but_not_quoted(home: Path, name: str) -> None:
    path = home / ".paperspace" / name
    path.write_text(f"{KEY} = = {KEY}")
    with pytest.raises(ApiKeyError, match=f"cannot read .*{name}: it is malformed") as caught:
        find_api_key(None, {}, str(home))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("key", [f"{KEY}\nX-Evil: 1", f"{KEY} x", f"{KEY}\u2026"])
def test_malformed_key_is_refused_without_being_quoted(key: str) -> None:
    with pytest.raises(ApiKeyError, match="check that it was copied correctly") as caught:
        find_api_key(key, {}, "/nonexistent")
    assert KEY not in str(caught.value)
