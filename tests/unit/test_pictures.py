# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pictures show the current output, and load nothing."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.make_pictures import PICTURES, PLAYS, RECORDINGS, drawn, played, project


def recording(name: str) -> str:
    return (RECORDINGS / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PLAYS)
def test_picture_matches_its_recording(name: str) -> None:
    assert (PICTURES / f"{name}.svg").read_text(encoding="utf-8") == drawn(name, recording(name)), "make pictures"


def test_every_picture_belongs_to_a_play() -> None:
    assert sorted(path.stem for path in PICTURES.glob("*.svg")) == sorted(PLAYS)


@pytest.mark.parametrize("name", PLAYS)
def test_picture_loads_nothing_and_keeps_text_as_text(name: str) -> None:
    svg = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    assert re.findall(r"@import|@font-face|<(?:image|script|a|foreignObject)\b|url\((?!#)", svg) == []
    assert set(re.findall(r"https?://[^\"'\s]+", svg)) == {"http://www.w3.org/2000/svg"}
    text = "".join("".join(node.itertext()) for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text"))
    for word in PLAYS[name].typed.split():
        assert word in text


def test_recordings_match_current_output(tmp_path: Path) -> None:
    """The recording of site.yml, which needs root and a minute, is excluded. Nodes respond in any order."""
    location = project(tmp_path)
    for name in PLAYS:
        if name != "site":
            printed = played(PLAYS[name], tmp_path, location)
            assert sorted(printed.splitlines()) == sorted(recording(name).splitlines()), "make pictures"
