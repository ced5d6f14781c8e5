# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Extract the error that ended a program from its output, along with the last lines to search for the cause."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.module_utils._run.output_formats import (
    TRACEBACK,
    plain_output,
    strip_colors,
)

MAX_ERROR = 2000  # number of characters of an error ...
MAX_ERROR_LINES = 12  # ... and of lines: some messages name each parameter that does not match
MAX_BANNER_LINES = 40  # number of lines between two lines of dashes; Open MPI's longest help text has 30
MAX_TAIL_LINES = 120  # number of lines searched for a cause ...
MAX_TAIL = 12288  # ... and of characters: an NCCL watchdog writes 300 per line
MIN_PROGRESS = 3  # number of progress lines after an error that show that the program survived it

# torch's prefix of each line of a traceback
RANK_PREFIX = re.compile(r"^\[(?:rank|default)\d+\]:\s?", re.MULTILINE)
# What launchers put at the start of each line: "[1,3]<stderr>:", "node2: [rank3]: ", "(worker6, rank=6) ", srun's "3:
# ".
LINE_PREFIX = (
    r"(?:\[(?!(?:DEBUG|INFO|WARN|ERROR|CRITICAL))[\w.,:| -]{1,60}\](?:<std(?:err|out)>)?: ?|"
    r"\((?=[^)\n]{0,100}\b(?:pid|rank)=)[^)\n]{1,120}\) |(?=[\w.-]{0,63}\d)[\w.-]{1,64}: ){0,3}"
)
PREFIXED_TRACEBACK = re.compile(rf"^(?P<prefix>{LINE_PREFIX})Traceback \(most recent call last\):\s*$", re.MULTILINE)
# The start of a line that does not belong to the exception message above it.
NEXT_MESSAGE = re.compile(
    r"Traceback \(most recent|During handling of the above|The above exception was|Exception ignored |"
    r"Exception in thread |Task exception was never retrieved|Error in atexit\.|"
    r"Exception raised from |frame #|\[?[DEFIW]\d{3,4} |\[?\d{4}-\d\d-\d\d[ T]|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|"
    r"\[W |\[E |wandb: |srun: |slurmstepd|terminate called|Fatal Python error|\S{0,200}: UserWarning|-{10}|={10}|"
    r"\*{10}|Set the environment variable HYDRA_FULL_ERROR=1"
)
IGNORED = "Exception ignored "  # precedes the traceback of an exception in a destructor
# Up to two lines above the traceback of an exception that does not end the process.
BACKGROUND = ("Exception in thread ", "Task exception was never retrieved", "Error in atexit.")
# Two lines above a traceback that continues the one above it.
CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
ORIGINAL = "Original Traceback (most recent call last):"  # from a DataLoader worker, inside the message
FRAME = re.compile(r"(?:\[(?:rank|default)\d{1,9}\]:\s?)?frame #\d{1,9}: ")
# Lines of a program that is still running: "step 20 loss 0.3", "Epoch 2/10", "45%|####", "3.2it/s".
PROGRESS = re.compile(
    r"\b(?:steps?|iter|iteration|epoch|batch)\b[ =:\[#(]{0,8}\d|\bloss\b'?[ =:]{1,3}-?\d|\d%\||\d(?:it/s|s/it)\b",
    re.IGNORECASE,
)
TERMINATE = re.compile(r"terminate called after throwing an instance of '(?P<type>[^'\n]{1,200})'\s{1,4}what\(\): ")
FATAL_PYTHON = re.compile(r"^Fatal Python error: [^\n]{1,300}", re.MULTILINE)
# glibc's assert() and its heap and stack checks.
FATAL_C = re.compile(
    r"^(?:[^\n]{1,300}:\d{1,6}: [^\n]{1,300}: Assertion [`'][^\n]{1,300}' failed\.|malloc\(\): [^\n]{1,80}|"
    r"(?:free|munmap_chunk|realloc)\(\): invalid [^\n]{1,40}|double free or corruption [^\n]{1,40}|"
    r"corrupted [^\n]{1,60}|\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*)[^\n]{0,80}$",
    re.MULTILINE,
)
RANK_OF_TRACEBACK = re.compile(
    r"^\[(?:rank|default)(?P<rank>\d{1,9})\]:\s?Traceback \(most recent call last\):", re.MULTILINE
)
# What str.splitlines() also takes for the end of a line, but may be part of a source line.
NOT_LINE_END = re.compile("[\\x0b\\x0c\\x1c-\\x1e\\x85\\u2028\\u2029]")
MAX_RANKS = 64  # ranks that share a log, each with its own traceback
# Exceptions whose message contains the frames of another process.
REMOTE = ("ray.exceptions.", "ray::")
NO_MESSAGE = re.compile(r"[A-Za-z_][\w.]{0,200}(?:Error|Exception)")
SOURCE = re.compile(r'  File "(?P<path>[^"\n]{1,500})", line (?P<line>\d{1,9})')
RULE = re.compile(r"[-=*_#+~ ]{10,}")


def first_error(text: str) -> str:
    """Return the exception ("ValueError: boom", with all lines of its message) that ended a program, or "".

    An exception after which the program continued did not end it. If lines have process prefixes, return the first.
    """
    text = NOT_LINE_END.sub(" ", plain_output(text))
    ranks = list(dict.fromkeys(RANK_OF_TRACEBACK.findall(text)))[:MAX_RANKS]
    if len(ranks) > 1:  # lines from several ranks may be interleaved
        errors = (last_exception(lines_of_rank(text, rank)) for rank in ranks)
        return next(filter(None, errors), "")
    return last_exception(strip_prefix(RANK_PREFIX.sub("", text)).splitlines())


def lines_of_rank(text: str, rank: str) -> list[str]:
    """Return the lines with torch's prefix for a rank, without the prefix."""
    prefix = re.compile(rf"\[(?:rank|default){rank}\]:\s?")
    return [prefix.sub("", line, count=1) for line in text.splitlines() if prefix.match(line)]


def last_exception(lines: list[str]) -> str:
    """Return the message of the traceback that ended a process, from its lines, or "" if the process survived it.

    This is the last traceback. That of a thread, an asyncio task or an exit handler counts only if no other did.
    """
    own, background = find_tracebacks(lines)
    return next(filter(None, (exception_after(lines, own), exception_after(lines, background))), "")


def find_tracebacks(lines: list[str]) -> tuple[list[int], list[int]]:
    """Return the indices of the first lines of tracebacks: those of the main thread, and those in the background."""
    starts: dict[str, list[int]] = {"own": [], "background": [], "ignored": []}
    kind = "own"
    for index, line in enumerate(lines):
        if line.strip() == TRACEBACK:
            above = lines[max(0, index - 2) : index]
            if not any(text.startswith(CHAINED) for text in above):
                kind = traceback_kind(above)
            starts[kind].append(index)
    if not starts["own"] and not starts["background"]:  # the beginning of the only traceback may be cut off
        first = next((index for index, line in enumerate(lines) if SOURCE.match(line)), None)
        if first is not None and not any(line[:1].strip() for line in lines[:first]):
            starts["own"].append(first)
    return starts["own"], starts["background"]


def traceback_kind(above: list[str]) -> str:
    """Return "own", "background" or "ignored" for a traceback, from the two lines above it."""
    if above and above[-1].startswith(IGNORED):
        return "ignored"
    return "background" if any(line.startswith(BACKGROUND) for line in above) else "own"


def exception_after(lines: list[str], starts: list[int]) -> str:
    """Return the message of the last of these tracebacks that has one, or "" if the process survived it."""
    for start in reversed(starts):
        for index in range(start + 1, len(lines)):
            if lines[index].strip() == TRACEBACK:
                break
            if lines[index] and not lines[index][0].isspace():
                survived = count_progress(lines[index + 1 :]) >= MIN_PROGRESS
                return "" if survived else add_statement(message_at(lines, index), lines[start:index])
    return ""


def strip_prefix(text: str) -> str:
    """Return the lines of the process that failed first, if the launcher prefixes the lines of each process."""
    first = next(iter(PREFIXED_TRACEBACK.finditer(text)), None)
    prefix = first["prefix"] if first else ""
    if not prefix or TRACEBACK in text.splitlines():
        return text
    return "\n".join(line[len(prefix) :] for line in text.splitlines() if line.startswith(prefix))


def add_statement(message: str, frames: list[str]) -> str:
    """Return the message or, if there is none, as for a bare assert, the statement that raised the exception."""
    position = next((index for index in reversed(range(len(frames))) if SOURCE.match(frames[index])), None)
    if position is None or position + 1 >= len(frames) or not NO_MESSAGE.fullmatch(message):
        return message
    source = SOURCE.match(frames[position])
    statement = frames[position + 1].strip()
    if source is None or not statement:
        return message
    return f"{message}: {statement} ({source['path'].rpartition('/')[2]}:{source['line']})"[:MAX_ERROR]


def count_progress(lines: list[str]) -> int:
    """Return how many lines show that a program is continuing; the summary that wandb prints at its end does not
    count.
    """
    return sum(bool(PROGRESS.search(line[:500])) for line in lines if not line.startswith("wandb: "))


def message_at(lines: list[str], index: int) -> str:
    """Return the message of the exception at an index of lines, without the frames of a worker's own traceback."""
    message, in_frames = [lines[index].strip()], False
    remote = message[0].startswith(REMOTE)
    for line in lines[index + 1 :][: 4 * MAX_BANNER_LINES]:
        if (
            len(message) >= MAX_ERROR_LINES
            or (NEXT_MESSAGE.match(line) and line != ORIGINAL)
            or PROGRESS.search(line[:500])
        ):
            break
        in_frames = line == ORIGINAL or ((in_frames or remote) and line[:1].isspace())
        if line.strip() and not in_frames:
            message.append(line.rstrip())
    return "\n".join(message)[:MAX_ERROR]


def fatal_error(text: str) -> str:
    """Return the message with which a C++ library or the interpreter terminated the process, or ""."""
    text = RANK_PREFIX.sub("", strip_colors(text))
    asserted = list(FATAL_C.finditer(text))
    thrown = list(TERMINATE.finditer(text))
    if thrown:
        message = text[thrown[-1].end() :][:MAX_ERROR].splitlines()[:1]
        return f"{thrown[-1]['type']}: {''.join(message).strip()}"[:MAX_ERROR]
    if asserted:
        return asserted[-1][0][:MAX_ERROR]
    fatal = FATAL_PYTHON.findall(text)
    return str(fatal[-1]) if fatal else ""


def final_message(text: str) -> str:
    """Return the exception that ended a program, or else its last message (a banner, or its last line), or ""."""
    error = first_error(text)
    if error:
        return error
    lines = [line.strip() for line in strip_colors(text).splitlines() if line.strip()]
    rules = [index for index, line in enumerate(lines) if RULE.fullmatch(line)]
    if len(rules) > 1 and rules[-1] == len(lines) - 1 and 1 < rules[-1] - rules[-2] <= MAX_BANNER_LINES:
        return "\n".join(lines[rules[-2] + 1 : rules[-1]])[:MAX_ERROR]
    return next((line[:MAX_ERROR] for line in reversed(lines) if not RULE.fullmatch(line)), "")


def tail_lines(text: str) -> str:
    """Return the last lines of an output as a terminal would show them, with C++ frames as one line.

    Returns more lines than are shown: the line with the cause may precede a banner or many frames.
    """
    lines: list[str] = []
    frames = 0
    for line in strip_colors(text.rstrip()).split("\n")[-10 * MAX_TAIL_LINES :]:
        shown = line.rstrip("\r").rpartition("\r")[2]
        if FRAME.match(shown):
            frames += 1
            continue
        if frames:
            lines.append(f"    ({frames} C++ frames)")
            frames = 0
        lines.append(shown)
    if frames:
        lines.append(f"    ({frames} C++ frames)")
    return "\n".join(lines[-MAX_TAIL_LINES:])[-MAX_TAIL:]
