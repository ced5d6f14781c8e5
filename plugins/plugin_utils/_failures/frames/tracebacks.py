# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse the tracebacks in a log: their frames, their exceptions and how the exceptions are chained."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.muster.training.plugins.module_utils._run.error_text import (
    LINE_PREFIX,
    ORIGINAL,
    message_at,
)
from ansible_collections.muster.training.plugins.module_utils._run.output_formats import TRACEBACK

MAX_FRAMES = 200  # number of frames in a traceback
MAX_TRACEBACKS = 50  # number of tracebacks, counted from the end of a log
CAUSED = "The above exception was the direct cause of the following exception:"
DURING = "During handling of the above exception, another exception occurred:"
FRAME = re.compile(
    r'\s{1,40}File "(?P<path>[^"\n]{1,500})", line (?P<line>\d{1,9})(?:, in (?P<function>[^\n]{1,200}))?'
)
# The beginning of a traceback sent by another rank or process: torch.distributed.checkpoint marks it "(RANK 3)".
SENT = re.compile(r"Traceback \(most recent call last\): \(RANK \d{1,7}\)$")
MARKS = re.compile(r"[\s~^]{1,500}\Z")
PREFIX = re.compile(LINE_PREFIX)
FAULT = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]{1,20}[^\n]{0,100}\(most recent call first\):")
FAULT_FRAME = re.compile(r'\s{1,8}File "(?P<path>[^"\n]{1,500})", line (?P<line>\d{1,9}) in (?P<function>[^\n]{1,200})')
# Code that belongs to Python, installed packages and launchers, as opposed to the user's own.
INSTALLED = re.compile(
    r"/(?:site|dist)-packages/|/lib/python\d\.\d{1,2}/|^<(?!stdin>)|^[^/\n]{1,300}/[^\n]{1,300}\.(?:pyx|pxi|pxd)$|"
    r"/bin/[\w-]{1,40}$"
)
# Parts of Python that read files or connect to servers.
STANDARD = re.compile(
    r"/lib/python\d\.\d{1,2}/(?P<name>tarfile|zipfile|gzip|bz2|lzma|pickle|csv|xml|sqlite3|json|urllib|http|ssl|socket|"
    r"smtplib|multiprocessing)\b"
)
# Cython names its files relative to the directory in which a package was built.
PACKAGE = re.compile(
    r"/(?:site|dist)-packages/(?P<name>[A-Za-z_]\w{0,60})|"
    r"^(?P<compiled>[A-Za-z_]\w{0,60})/(?:[\w.-]{1,80}/){0,8}[\w.-]{1,80}\.(?:pyx|pxi|pxd)$"
)

# Files whose __getattr__ reports an attribute that torch.nn.Module, or a module such as torch itself, does not have.
LOOKUP_FILE = re.compile(r"/torch/(?:nn/modules/module|(?:\w{1,40}/){0,6}__init__)\.py$")
# What may precede a statement on its line, such as "if rank == 1: ".
BLOCK = r"(?:(?:if|elif|else|try|except|finally|for|while|with|case)\b[^\n]{0,300}:\s{1,9})?"
RAISE = re.compile(rf"\s{{0,9}}{BLOCK}raise\b")


@dataclass(frozen=True)
class Frame:
    """A frame of a traceback."""

    path: str
    line: int
    function: str
    source: str = ""

    @property
    def is_user_code(self) -> bool:
        """Whether the file belongs neither to Python nor to an installed package."""
        return not INSTALLED.search(self.path)

    @property
    def installed_package(self) -> str:
        """The package that the file belongs to; "" for the user's code and the standard library."""
        match = PACKAGE.search(self.path)
        return "" if match is None else match["name"] or match["compiled"]

    @property
    def package(self) -> str:
        """The package that the file belongs to; "" if there is none, "Python" for most of the standard library."""
        if self.installed_package:
            return self.installed_package
        match = STANDARD.search(self.path)
        if match is not None:
            return match["name"]
        return "" if self.is_user_code else "Python"


@dataclass(frozen=True)
class RaisedError:
    """An exception with its frames, outermost first.

    link: how the exception before it in the log is related: "cause" (raise ... from), "context" (raised while handling
    it), "original" (this one is what a worker process raised), or "".
    """

    text: str
    frames: tuple[Frame, ...]
    link: str = ""

    @property
    def exception(self) -> str:
        """The name of the exception's class, without its module."""
        return self.qualified_name.rpartition(".")[2]

    @property
    def qualified_name(self) -> str:
        """The name of the exception's class as it appears in the traceback."""
        match = re.match(r"[A-Za-z_][\w.]{0,200}", self.text)
        return match[0] if match else ""

    @property
    def message(self) -> str:
        """The first line of the message, without the class; all lines if the message begins on the next line."""
        first, _separator, rest = self.text.partition("\n")
        message = first[len(self.qualified_name) :].removeprefix(":").strip()
        return message or " ".join(rest.split())

    @property
    def user_frame(self) -> Frame | None:
        """The innermost frame of the user's own code, or None."""
        frames = self.frames_of_reader or self.frames
        return next((frame for frame in reversed(frames) if frame.is_user_code), None)

    @property
    def innermost(self) -> Frame | None:
        """The frame that raised the exception, or None.

        For an attribute that a model or torch does not have, this is the script's frame which reads it.
        """
        frames = self.frames_of_reader or self.frames
        return frames[-1] if frames else None

    @property
    def frames_of_reader(self) -> tuple[Frame, ...]:
        """The frames up to the script's line which reads an attribute that a torch.nn.Module or torch does not have,
        or ().

        torch raises this exception in a __getattr__, which a class of the script or of a package may call from its
        own __getattr__. If a package reads the attribute, the exception is that package's.
        """
        if not self.frames or not is_torch_lookup(self.frames[-1]):
            return ()
        frames = self.frames[:-1]
        while frames and frames[-1].function == "__getattr__" and "getattr" in (frames[-1].source or "getattr"):
            frames = frames[:-1]
        return frames if frames and frames[-1].is_user_code else ()

    @property
    def is_deliberate(self) -> bool:
        """Whether a raise statement of the script itself raised the exception, rather than an operation that failed."""
        frame = self.innermost
        return frame is not None and frame.is_user_code and bool(RAISE.match(frame.source))

    @property
    def packages(self) -> tuple[str, ...]:
        """The installed packages inside the user's innermost frame, innermost first, without Python itself.

        An attribute is missing for the code that reads it, not for the __getattr__ which says so.
        """
        names: list[str] = []
        frames = self.frames_of_reader or self.frames
        if len(frames) > 1 and frames[-1].function == "__getattr__" and not frames[-2].is_user_code:
            frames = frames[:-1]
        for frame in reversed(frames):
            if frame.is_user_code:
                break
            if frame.package != "Python" and frame.package not in names:
                names.append(frame.package)
        return tuple(names)


def is_torch_lookup(frame: Frame) -> bool:
    """Return whether a frame is a __getattr__ of torch, which Python calls for attributes that do not exist."""
    return frame.function == "__getattr__" and bool(LOOKUP_FILE.search(frame.path))


def read_tracebacks(lines: Iterable[str]) -> list[RaisedError]:
    """Return the exceptions in a log, preprocessed by plain_output(), with their frames, in log order."""
    lines = restore_first_head(list(lines))
    starts = [index for index, line in enumerate(lines) if is_head(line.rstrip())]
    return [raised for start in starts[-MAX_TRACEBACKS:] if (raised := read_traceback(lines, start)) is not None]


def is_head(line: str) -> bool:
    """Return whether a line is the first line of a traceback. line: without trailing whitespace."""
    return line.endswith((TRACEBACK, ORIGINAL)) or bool(SENT.search(line[-80:]))


def prefix_of(line: str) -> str:
    """Return the prefix by which a launcher marks the process that wrote a line, or ""."""
    match = PREFIX.match(line)
    return match[0] if match else ""


def restore_first_head(lines: list[str]) -> list[str]:
    """Return the lines of a log, with a first line added to a traceback whose beginning is cut off."""
    for index, line in enumerate(lines):
        if is_head(line.rstrip()):
            return lines
        prefix = prefix_of(line)
        if FRAME.match(line[len(prefix) :]):
            return [*lines[:index], prefix + TRACEBACK, *lines[index:]]
    return lines


def read_traceback(lines: list[str], start: int) -> RaisedError | None:
    """Return the exception whose traceback starts at an index, or None if it is cut off."""
    prefix = prefix_of(lines[start])
    own = [line[len(prefix) :] for line in lines[start + 1 :][: 4 * MAX_FRAMES] if line.startswith(prefix)]
    for index, line in enumerate(own):
        if line and not line[0].isspace():
            return RaisedError(message_at(own, index), read_frames(own[:index]), link_before(lines, start, prefix))
    return None


def link_before(lines: list[str], start: int, prefix: str) -> str:
    """Return how a traceback is related to the exception before it."""
    if lines[start].endswith(ORIGINAL) or SENT.search(lines[start].rstrip()[-80:]):
        return "original"
    before = [line[len(prefix) :].strip() for line in lines[max(0, start - 4) : start] if line.startswith(prefix)]
    return "cause" if CAUSED in before else "context" if DURING in before else ""


def read_frames(lines: list[str]) -> tuple[Frame, ...]:
    """Return the frames in the lines between the first line of a traceback and its exception."""
    frames: list[Frame] = []
    for line in lines:
        match = FRAME.match(line)
        if match:
            frames.append(Frame(match["path"], int(match["line"]), (match["function"] or "").strip()))
        elif frames and not frames[-1].source and line.strip() and not MARKS.match(line):
            last = frames.pop()
            frames.append(Frame(last.path, last.line, last.function, line.strip()[:500]))
    return tuple(frames[-MAX_FRAMES:])


def read_fault(lines: Iterable[str]) -> tuple[Frame, ...]:
    """Return the frames of the thread in which a fatal error occurred, outermost first, as dumped by faulthandler, or
    ().
    """
    frames: list[Frame] = []
    inside = False
    for line in lines:
        line = line[len(prefix_of(line)) :]
        if FAULT.search(line):
            if frames and "Current thread" not in line:
                break
            frames, inside = [], True
            continue
        match = FAULT_FRAME.match(line) if inside else None
        if match:
            frames.append(Frame(match["path"], int(match["line"]), match["function"].strip()))
        elif inside and line.strip():
            inside = False
    return tuple(reversed(frames[:MAX_FRAMES]))


def chain_of(error: str, lines: Iterable[str]) -> list[RaisedError]:
    """Return an error's exception, then those that led to it, nearest first; [] if the log does not contain it."""
    tracebacks = read_tracebacks(lines)
    first = error.partition("\n")[0].strip()[:200]
    firsts = [text for text in (first, PREFIX.sub("", first, count=1)) if text]  # "cv2.error: " looks like a prefix
    for index in reversed(range(len(tracebacks))):
        raised = tracebacks[index]
        text = raised.text.partition("\n")[0].strip()[:200]
        if not text or not any(first.startswith(text) or text.startswith(first) for first in firsts):
            continue
        chain = [raised]
        while index + 1 < len(tracebacks) and tracebacks[index + 1].link == "original" and raised.link != "original":
            index += 1
            chain.insert(0, tracebacks[index])
        for number in reversed(range(index)):
            if tracebacks[number + 1].link not in ("cause", "context"):
                break
            chain.append(tracebacks[number])
        return chain
    return []
