# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pictures of pages in docs/ match the current pages."""

from __future__ import annotations

import struct

import pytest

from tests.make_page_pictures import SHOTS, WIDTH
from tests.make_pictures import PICTURES, RECORDINGS
from tests.support import browser

MAX_BYTES = 300_000  # size in bytes of a picture, which is part of every clone


@pytest.mark.parametrize("name", SHOTS)
@pytest.mark.skipif(browser.program() is None, reason="there is no Chromium on this machine")
def test_picture_shows_the_current_page(name: str) -> None:
    recorded = (RECORDINGS / f"{name}.txt").read_text(encoding="utf-8")
    assert SHOTS[name]().text == recorded, "make pictures"


def test_every_picture_of_a_page_is_a_small_png() -> None:
    assert sorted(path.stem for path in PICTURES.glob("*.png")) == sorted(SHOTS)
    for name in SHOTS:
        data = (PICTURES / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG\r\n") and len(data) <= MAX_BYTES
        assert struct.unpack(">I", data[16:20]) == (WIDTH,)
