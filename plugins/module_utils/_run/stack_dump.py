# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read faulthandler's output for a process, and classify what its main thread is doing.

The text is the job's: a process may write anything into its file.
"""

from __future__ import annotations

import collections
import posixpath
import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Dict

    Data = Dict[str, Any]

MAX_FRAMES = 100  # number of frames of a thread, as limited by faulthandler
MAX_THREADS = 100
MAX_SHOWN = 12  # number of stack frames that a report keeps
MAX_PATH = 300  # characters
MAX_NAME = 100

THREAD = re.compile(r"(?:Stack|(?:Current thread|Thread) 0x[0-9a-fA-F]{1,16}(?: \[.*\])?) \(most recent call first\):")
HOOK_FILE = "/hooks/sitecustomize.py"  # how the path of the innermost frame ends if Python itself handled the signal
DEBUGGER_FILE = "/hooks/debug_rank.py"  # its wrapper extends init_process_group's timeout
FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>[0-9]{1,9}|\?\?\?) in (?P<function>.*)')
TRACEBACK = "Traceback (most recent call last):"
TRACEBACK_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>[0-9]{1,9}), in (?P<function>.*)')
RANK_PREFIX = re.compile(r"^\[(?:rank|default)[0-9]{1,7}\]:\s?", re.MULTILINE)  # torch's prefix of each line
Frame = collections.namedtuple("Frame", "file line function")

INSTALLED = re.compile(r"/(?:site|dist)-packages/|/torch/(?:distributed|nn|utils|autograd|optim|cuda|_\w+)/")
STANDARD = re.compile(r"/lib(?:64)?/python3\.[0-9]+/(?!(?:site|dist)-packages/)|^<frozen ")
DISTRIBUTED = re.compile(r"/torch/distributed/(?!elastic/|launcher/|run\.py)|/deepspeed/(?:comm|utils/comms)|/horovod/")
BACKWARD = re.compile(r"/torch/autograd/")
GPU = re.compile(r"/torch/(?:cuda|xpu|accelerator)/")
DECORATORS = ("wrapper", "wrapped", "inner", "_fn", "decorate_context", "func_wrapper", "log_wrapper")
# A line that is waiting in a method written in C, which has no Python frame.
WAITING_LINE = re.compile(r"\.(?:wait|synchronize|monitored_barrier|barrier)\(")
# A line that is waiting for the GPU: it calls a method that copies a tensor from the GPU.
GPU_LINE = re.compile(r"\.(?P<call>item|tolist|cpu)\(\)")

# A rank's activities; each of the first three may mean that it is waiting for other ranks.
COLLECTIVE, IN_BACKWARD, ON_GPU, CODE, STOPPED, NO_STACK = "collective", "backward", "gpu", "code", "stopped", "none"
KINDS = (COLLECTIVE, IN_BACKWARD, ON_GPU, CODE, STOPPED, NO_STACK)


def is_hook(file: str, function: str) -> bool:
    """Return whether a frame is in code of this collection that runs in the job's processes around the job's own."""
    return file.endswith(HOOK_FILE) or (file.endswith(DEBUGGER_FILE) and function in DECORATORS)


def parse_dump(text: str) -> list[list[Frame]]:
    """Return the stacks of the last dump in a text, one for each thread, innermost frame first; the last is main's."""
    threads: list[list[Frame]] = []
    is_after_blank = False
    for line in text.splitlines():
        if THREAD.fullmatch(line):
            if not is_after_blank:  # the threads in a dump are separated by blank lines
                threads = []
            threads.append([])
        elif threads and len(threads[-1]) < MAX_FRAMES:
            match = FRAME.fullmatch(line)
            if match is not None and not is_hook(match["file"], match["function"]):
                number = int(match["line"]) if match["line"].isdigit() else 0
                threads[-1].append(Frame(match["file"][-MAX_PATH:], number, match["function"][:MAX_NAME]))
        is_after_blank = not line
    return threads[-MAX_THREADS:]


def main_stack(threads: list[list[Frame]]) -> list[Frame]:
    """Return the stack of the main thread: Python lists threads from the newest to the oldest."""
    return next((frames for frames in reversed(threads) if frames), [])


def is_standard(frame: Frame) -> bool:
    """Return whether a frame is in Python's standard library."""
    return STANDARD.search(frame.file) is not None


def is_user(frame: Frame) -> bool:
    """Return whether a frame is in the user's own code, neither installed nor Python's."""
    return not is_standard(frame) and not INSTALLED.search(frame.file) and not frame.file.startswith("<")


def called_function(frames: list[Frame], position: int) -> Frame | None:
    """Return the frame of the function called by the frame at a position, skipping decorators' wrappers."""
    inner = [frame for frame in frames[:position] if frame.function not in DECORATORS]
    return inner[-1] if inner else None


def kind_of(frames: list[Frame], source: str) -> str:
    """Return the activity in a stack; source: the user's innermost line, or "" if unknown."""
    working = [frame for frame in frames if not is_standard(frame) and frame.function not in DECORATORS]
    if not working:
        return CODE
    innermost = working[0]
    if DISTRIBUTED.search(innermost.file):
        return COLLECTIVE
    if BACKWARD.search(innermost.file):
        return IN_BACKWARD
    if GPU.search(innermost.file):
        return ON_GPU
    if frames[0] != innermost or not is_user(innermost):
        return CODE
    return COLLECTIVE if WAITING_LINE.search(source) else ON_GPU if GPU_LINE.search(source) else CODE


def user_position(frames: list[Frame]) -> int:
    """Return the position of the user's innermost frame or, if there is none, that of the outermost installed code."""
    for position, frame in enumerate(frames):
        if is_user(frame):
            return position
    installed = [position for position, frame in enumerate(frames) if not is_standard(frame)]
    return installed[-1] if installed else 0


def format_frame(frame: Frame) -> str:
    """Return a frame as "load (data.py:41)"."""
    return f"{frame.function} ({posixpath.basename(frame.file)}:{frame.line})"


def classify(frames: list[Frame], source: str = "") -> Data:
    """Return the activity in a stack: kind, call (the library's function), function, file, line, text and frames.

    frames: not empty, innermost first. source: the text of the user's line.
    """
    position = user_position(frames)
    user = frames[position]
    kind = kind_of(frames, source)
    called = called_function(frames, position)
    distributed = [frame for frame in frames[:position] if DISTRIBUTED.search(frame.file)]
    if kind == COLLECTIVE and distributed:
        called = called_function([*distributed, user], len(distributed)) or called
    call = called.function if called is not None else ""
    if kind == COLLECTIVE and not call:
        match = WAITING_LINE.search(source)
        call = match[0][1:-1] if match else "wait"
    if kind == ON_GPU and not call:
        match = GPU_LINE.search(source)
        call = match["call"] if match else "synchronize"
    shown = [format_frame(frame)[: MAX_NAME + MAX_PATH] for frame in frames[:MAX_SHOWN]]
    return {
        "kind": kind,
        "call": call,
        "function": user.function,
        "file": user.file,
        "line": user.line,
        "text": source[:MAX_PATH],
        "frames": shown,
    }


def parse_traceback(text: str) -> list[Frame]:
    """Return the stack of the last uncaught exception in a rank's output, innermost frame first, or [] if there is
    none.
    """
    lines = RANK_PREFIX.sub("", text).splitlines()
    starts = [number for number, line in enumerate(lines) if line == TRACEBACK]
    frames: list[Frame] = []
    for line in lines[starts[-1] + 1 :] if starts else []:
        match = TRACEBACK_FRAME.fullmatch(line)
        if match is not None:
            frames.append(Frame(match["file"][-MAX_PATH:], int(match["line"]), match["function"][:MAX_NAME]))
        elif line and not line[0].isspace():
            break
    return frames[::-1][:MAX_FRAMES]
