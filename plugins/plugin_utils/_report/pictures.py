# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pictures from Vega-Lite specifications: SVG and PNG. The only file that needs the package vl-convert-python.

Private to this collection, controller only.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

INSTALL = "pip install 'vl-convert-python>=1.9,<2'"
SCALE = 2  # pixels of a PNG for each of the specification
PAPER = "white"  # background of pictures that stand alone


class NoPictures(Exception):
    """There is no library that draws, or it cannot draw this. The text says what to do."""


class Picture(NamedTuple):
    """svg: a file of its own; inline: the same for a page, without a background, named for who hears it; png: bytes."""

    svg: str
    inline: str
    png: bytes


def draw(spec: dict[str, Any]) -> Picture:
    """The pictures of a specification. Raises NoPictures."""
    try:
        import vl_convert  # large, and not on every machine
    except ImportError as problem:
        raise NoPictures(f"plots need the Python package vl-convert-python on this machine: {INSTALL}") from problem
    alone = {**spec, "background": PAPER, "padding": 10}
    try:
        # no address: data that a specification names would be fetched
        svg = str(vl_convert.vegalite_to_svg(alone, allowed_base_urls=[]))
        png = bytes(vl_convert.svg_to_png(svg, scale=SCALE))
    except Exception as problem:  # the library raises ValueError, and what its engine raises
        raise NoPictures(f"the plot could not be drawn: {str(problem)[:300]}; {INSTALL}") from problem
    named = with_name(svg, str(spec.get("description", "")))
    return Picture(named, for_page(named), png)


def with_name(svg: str, name: str) -> str:
    """An SVG that says what it shows to who cannot see it."""
    return svg.replace("<svg ", f'<svg role="img" aria-label={quoteattr(name)} ', 1)


def for_page(svg: str) -> str:
    """An SVG for use in a page: as wide as there is room, on the page's own background, without namespaces."""
    head, end, body = svg.partition(">")
    head = re.sub(r' (?:xmlns(?::xlink)?|version|width|height)="[^"]*"', "", head)
    body = re.sub(rf'<rect width="[0-9.]+" height="[0-9.]+" fill="{PAPER}"/>', "", body, count=1)
    return head + end + body
