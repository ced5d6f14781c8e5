"""Tracebacks in the formats of other libraries are read like Python's."""

from __future__ import annotations

import json

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.error_text import fatal_error, first_error
from ansible_collections.muster.training.plugins.module_utils._run.output_formats import plain_output

TRACEBACK = 'Traceback (most recent call last):\n  File "/job/train.py", line 3, in main\n    load(path)\n'
RICH = """\
step 1
╭─────────────────── Traceback (most recent call last) ───────────────────╮
│ /job/train.py:3 in main                                                 │
│                                                                         │
│    1 def main():                                                        │
│    2 │   path = find()                                                  │
│ ❱  3 │   load(path)                                                     │
│    4                                                                    │
╰─────────────────────────────────────────────────────────────────────────╯
ValueError: boom
"""
NARROW = """\
╭───── Traceback (most recent call last) ─────╮
│ /opt/env/lib/python3.10/site-packages/deeps │
│ peed/engine.py:1845 in backward             │
│ ❱ 1845 │   self.optimizer.backward(loss)    │
╰─────────────────────────────────────────────╯
RuntimeError: boom
"""
LOGURU = """\
2024-01-01 10:00:00.123 | ERROR | __main__:<module>:12 - failed
Traceback (most recent call last):

> File "/job/train.py", line 3, in main
    load(path)
    │    └ 'a.json'
    └ <function load at 0x7f>

ValueError: boom
"""
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/job/train.py", line 9, in <module>
  |     asyncio.run(main())
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/job/train.py", line 3, in main
    |     load(path)
    | ValueError: boom
    +------------------------------------
"""
ELASTIC = "[ERROR] error_handler: {\n" + '  "message": ' + json.dumps("ValueError: boom") + ",\n" + (
    '    "py_callstack": ' + json.dumps(f"{TRACEBACK}ValueError: boom") + ",\n}\n"
)  # fmt: skip
TIMES = "".join(
    f"[2024-02-27T21:35:34.295539Z] fa88a9df || {line}\n" for line in f"{TRACEBACK}ValueError: boom".split("\n")
)
CLUSTER = "".join(
    f"2021-03-10T13:22:37.443Z: [1,0]<stderr>:{line}\n" for line in f"{TRACEBACK}ValueError: boom".split("\n")
)
FLAT = 'Traceback (most recent call last):\nFile "/job/train.py", line 3, in main\nload(path)\nValueError: boom\n'


@pytest.mark.parametrize(
    "text",
    [RICH, LOGURU, GROUP, ELASTIC, TIMES, CLUSTER, FLAT],
    ids=["rich", "loguru", "exception group", "torchelastic", "times", "cluster", "without indentation"],
)
def test_exception_and_frame_are_recognized_in_each_format(text: str) -> None:
    assert first_error(text) == "ValueError: boom"
    if text != CLUSTER:  # the rank prefixes in the cluster's text remain
        assert '  File "/job/train.py", line 3, in main\n    load(path)\n' in plain_output(text)


def test_path_that_a_narrow_box_wraps_is_joined() -> None:
    assert first_error(NARROW) == "RuntimeError: boom"
    assert '  File "/opt/env/lib/python3.10/site-packages/deepspeed/engine.py", line 1845, in backward' in plain_output(
        NARROW
    )


@pytest.mark.parametrize("text", ["step 1\nloss 3\n", '{"loss": "3"}\n', TRACEBACK, "╭──╮\n│ a table │\n╰──╯\n", ""])
def test_other_output_is_unchanged(text: str) -> None:
    assert plain_output(text) == text


def test_interleaved_lines_of_ranks_are_read_rank_by_rank() -> None:
    first, second = (f"{TRACEBACK}{error}\n".splitlines() for error in ("ValueError: boom", "KeyError: 'x'"))
    lines = [
        line for pair in zip(first, second, strict=True) for line in (f"[rank1]: {pair[0]}", f"[rank2]: {pair[1]}")
    ]
    assert first_error("\n".join(lines)) == "ValueError: boom"
    cut_off = [line for line in lines if "ValueError" not in line]
    assert first_error("\n".join(cut_off)) == "KeyError: 'x'"


def test_ray_exception_is_kept_without_the_frames_of_the_remote_process() -> None:
    text = (
        f"{TRACEBACK}ray.exceptions.RayTaskError(ValueError): ray::train() (pid=9, ip=10.0.0.2)\n"
        + '  File "/job/train.py", line 30, in train\n    step()\n' * 12
        + "ValueError: boom\n"
    )
    assert first_error(text).splitlines()[1:] == ["ValueError: boom"]


@pytest.mark.parametrize(
    "line",
    [
        "python: malloc.c:2617: sysmalloc: Assertion `(old_top == initial_top (av))' failed.",
        "double free or corruption (!prev)",
        "free(): invalid pointer",
        "*** stack smashing detected ***: terminated",
    ],
)
def test_c_library_message_is_the_error(line: str) -> None:
    assert fatal_error(f"step 3\n{line}\nFatal Python error: Aborted\n").startswith(line[:30])


def test_indentation_lost_after_a_rank_prefix_is_restored() -> None:
    text = "".join(f"[rank3]: {line}\n" for line in FLAT.splitlines())
    assert first_error(text) == "ValueError: boom"
    assert plain_output(text).splitlines()[1:3] == [
        '[rank3]:   File "/job/train.py", line 3, in main',
        "[rank3]:     load(path)",
    ]
