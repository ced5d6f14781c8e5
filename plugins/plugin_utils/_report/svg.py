# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Draw Vega-Lite specifications as SVG and PNG. This is the only file that needs the vl-convert-python package."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

INSTALL = "pip install 'vl-convert-python>=1.9,<2'"
SCALE = 2  # pixels in the PNG per pixel in the specification
BACKGROUND = "white"  # background color of standalone pictures


class DrawingError(Exception):
    """The drawing library is missing or failed. The message explains what to do."""


class Picture(NamedTuple):
    """svg: text of a standalone file; inline: the same for a page, without background, labeled for screen readers."""

    svg: str
    inline: str
    png: bytes


def draw(spec: dict[str, Any]) -> Picture:
    """Return the pictures of a specification. Raise DrawingError."""
    try:
        import vl_convert  # a large dependency that is not installed on every machine
    except ImportError as error:
        raise DrawingError(f"plots need the Python package vl-convert-python on this machine: {INSTALL}") from error
    standalone = {**spec, "background": BACKGROUND, "padding": 10}
    try:
        # no base URLs, since the library would otherwise fetch data named in a specification
        svg = str(vl_convert.vegalite_to_svg(standalone, allowed_base_urls=[]))
        png = bytes(vl_convert.svg_to_png(svg, scale=SCALE))
    except Exception as error:  # ValueError, and whatever its engine raises
        raise DrawingError(f"the plot could not be drawn: {str(error)[:300]}; {INSTALL}") from error
    labeled = add_label(svg, str(spec.get("description", "")))
    return Picture(labeled, inline_svg(labeled), png)


def add_label(svg: str, name: str) -> str:
    """Return an SVG with a label for screen readers."""
    return svg.replace("<svg ", f'<svg role="img" aria-label={quoteattr(name)} ', 1)


def inline_svg(svg: str) -> str:
    """Return an SVG for inlining in a page: without a fixed size, background or namespaces."""
    head, end, body = svg.partition(">")
    head = re.sub(r' (?:xmlns(?::xlink)?|version|width|height)="[^"]*"', "", head)
    body = re.sub(rf'<rect width="[0-9.]+" height="[0-9.]+" fill="{BACKGROUND}"/>', "", body, count=1)
    return head + end + body
