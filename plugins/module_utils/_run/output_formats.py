# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rewrite tracebacks from rich, loguru, torchelastic, exception groups and timestamped logs in Python's format.

Colors, with which Python 3.13 and later can print tracebacks, are removed.
"""

from __future__ import annotations

import json
import re

TRACEBACK = "Traceback (most recent call last):"
MAX_REWRITTEN = 2000000  # number of characters of a text to rewrite
MAX_DECODED = 20000  # number of characters of a JSON string
COLOR = re.compile(r"\x1b\[[0-9;:]{0,40}m")
RICH_START = re.compile(
    r"^(?P<before>[^\n\u256d]{0,200})\u256d[\u2500 ]{1,200}Traceback \(most recent call last\)[^\n]{0,300}$"
)
RICH_END = "\u2570"  # the box's lower left corner
RICH_FRAME = re.compile(r"^(?:in )?(?P<path>/?[^\s:]{1,400}\.py):(?P<line>\d{1,9}) in (?P<function>[\w.<>]{1,200})$")
RICH_WRAPPED = re.compile(r"^/[^\s:]{20,400}(?::\d{1,9}(?: in)?)?$")
RICH_SOURCE = re.compile(r"^\u2771 {0,6}\d{1,9} (?:[\u2502|] ?)?(?P<source>.{1,500})$")
# "  | " and "  +-+---- 1 ----" before an exception group's lines.
GROUP_MARGIN = re.compile(r"^ {1,80}\| ?|^ {1,80}\+-[+-][ \d+-]{0,120}(?:\.\.\.)?[ -]{0,40}$")
GROUP_START = "Exception Group Traceback (most recent call last):"
LOGURU_FRAME = re.compile(r"^> (?= ?File \")")
LOGURU_VALUES = re.compile(r"^[ \u2502|]{2,300}\u2514 |^ {4,300}\u2502(?: |$)")
# "2024-02-27 21:35:34.29", "[2024-02-27T21:35:34Z] fa88a9df || " before each line, as clusters log them.
TIME = (
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?:?"
    r"(?: \w{6,16} \|\|| - [\w.]{1,60} - [A-Z]{4,8} -)? ?"
)
TIMED_TRACEBACK = re.compile(
    rf"^{TIME}(?:\[[\w,]{{1,20}}\](?:<std(?:err|out)>)?:\s?)?Traceback \(most recent call last\):", re.MULTILINE
)
TIMESTAMP = re.compile(rf"^{TIME}", re.MULTILINE)
# A frame in a log that lost its indentation, perhaps after a rank's prefix.
RANKS = r"(?P<prefix>(?:\[(?:rank|default)\d{1,9}\]: ?){0,2})"
FLAT_FRAME = re.compile(RANKS + r'File "[^"\n]{1,500}", line \d{1,9}')
FLAT_TRACEBACK = re.compile("^" + FLAT_FRAME.pattern, re.MULTILINE)
RANK_LINE = re.compile(RANKS + r"(?P<text>[^\n]{0,100000})")
EXCEPTION = re.compile(r"^[A-Za-z_][\w.]{0,200}(?::|$)")
JSON_MESSAGE = re.compile(r"^\s{0,20}\"(?P<key>message|py_callstack)\": (?P<text>\".{1,20000}\"),?\s{0,4}$")

JSON_REST = re.compile(r"^\s{0,20}(?:[}\]]{1,4},?|\"\w{1,30}\": [^\n]{1,200})\s{0,4}$")


def strip_colors(text: str) -> str:
    """Return a text without the escape sequences that set colors and fonts."""
    return COLOR.sub("", text) if "\x1b[" in text else text


def plain_output(text: str) -> str:
    """Return a text with all tracebacks in Python's format and without colors; other lines are unchanged."""
    if len(text) > MAX_REWRITTEN:
        return text
    text = strip_colors(text)
    if TIMED_TRACEBACK.search(text):
        text = TIMESTAMP.sub("", text)
    flat = FLAT_TRACEBACK.search(text) is not None
    if not flat and not any(mark in text for mark in ("\u256d", GROUP_START, "> File", '": "')):
        return text
    lines = text.split("\n")
    if GROUP_START in text:
        lines = strip_group_margin(lines)
    if "\u256d" in text:
        lines = strip_boxes(lines)
    if "> File" in text:
        lines = strip_values(lines)
    if '": "' in text:
        lines = strip_json(lines)
    if flat:
        lines = restore_indentation(lines)
    return "\n".join(lines)


def restore_indentation(lines: list[str]) -> list[str]:
    """Return tracebacks that lost their indentation with their frames and code lines indented again."""
    result: list[str] = []
    after_frame = False
    for line in lines:
        parts = RANK_LINE.match(line)
        prefix, text = (parts["prefix"], parts["text"]) if parts else ("", line)
        frame = FLAT_FRAME.match(line) is not None
        source = after_frame and text[:1].strip() and not EXCEPTION.match(text)
        result.append(f"{prefix}  {text}" if frame else f"{prefix}    {text}" if source else line)
        after_frame = frame
    return result


def strip_group_margin(lines: list[str]) -> list[str]:
    """Return the lines of exception groups without their margins, so that each exception has its own traceback."""
    result: list[str] = []
    inside = False
    for line in lines:
        if line.strip(" +|-").startswith(GROUP_START):
            inside = True
            result.append(TRACEBACK)
            continue
        inside = inside and bool(GROUP_MARGIN.match(line))
        result.append(GROUP_MARGIN.sub("", line) if inside else line)
    return result


def strip_boxes(lines: list[str]) -> list[str]:
    """Return rich's tracebacks as Python's: the path, the function and the source line of each frame.

    What a launcher puts before each line of the box is removed from all lines.
    """
    result: list[str] = []
    inside, before = False, ""
    wrapped = ""  # the first line of a path that does not fit into the box
    for line in lines:
        start = RICH_START.match(line)
        if start:
            inside, before = True, start["before"]
            result.append(TRACEBACK)
            continue
        line = line[len(before) :] if line.startswith(before) else line
        if inside and line.lstrip().startswith(RICH_END):
            inside = False
        elif inside:
            content = wrapped + line.strip().strip("\u2502").strip()
            wrapped = content if RICH_WRAPPED.match(content) else ""
            result += parse_box_line(content)
        else:
            result.append(line)
    return result


def parse_box_line(content: str) -> list[str]:
    """Return a line of a box as a traceback line, or [] if it is neither a frame nor a frame's code line."""
    frame, source = RICH_FRAME.match(content), RICH_SOURCE.match(content)
    if frame:
        return [f'  File "{frame["path"]}", line {frame["line"]}, in {frame["function"]}']
    return ["    " + source["source"].strip()] if source else []


def strip_values(lines: list[str]) -> list[str]:
    """Return loguru's tracebacks as Python's, without the values of variables."""
    return [LOGURU_FRAME.sub("  ", line) for line in lines if not LOGURU_VALUES.match(line)]


def strip_json(lines: list[str]) -> list[str]:
    """Return the messages and call stacks of torchelastic's JSON error files as text, without the rest of the JSON."""
    result: list[str] = []
    inside = False
    for line in lines:
        decoded = decode_message(line)
        inside = decoded != [line] or (inside and bool(JSON_REST.match(line)))
        if decoded != [line] or not inside:
            result += decoded
    return result


def decode_message(line: str) -> list[str]:
    """Return the line unchanged or, if it is a line of torchelastic's JSON error file, the lines of the message or call
    stack it contains.
    """
    match = JSON_MESSAGE.match(line)
    if match is None:
        return [line]
    try:
        decoded = json.loads(match["text"])
    except ValueError:
        return [line]
    return str(decoded)[:MAX_DECODED].split("\n")
