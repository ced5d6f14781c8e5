"""The error that ended a program, from its output: full messages, banners and fatal errors only."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.error_text import (
    MAX_ERROR,
    MAX_ERROR_LINES,
    MAX_TAIL,
    MAX_TAIL_LINES,
    fatal_error,
    final_message,
    first_error,
    tail_lines,
)

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n'
STEPS = "\n".join(f"step {number} loss 0.3" for number in range(5))
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, internal error\n"
    "ncclInternalError: Internal check failed.\n"
    "Last error:\n"
    "Could not find NET with id 0"
)
STATE_DICT = (
    "RuntimeError: Error(s) in loading state_dict for Net:\n"
    "        size mismatch for lm_head.weight: copying a param with shape torch.Size([3]) from checkpoint"
)
BANNER = "-" * 70


@pytest.mark.parametrize("message", [NCCL, STATE_DICT])
def test_all_lines_of_an_exceptions_message_are_kept(message: str) -> None:
    assert first_error(f"step 1 loss 3\n{TRACEBACK}{message}\n") == message
    prefixed = "".join(f"[rank3]: {line}\n" for line in f"{TRACEBACK}{message}".splitlines())
    assert first_error(prefixed + "[rank3]:[W1124 ProcessGroupNCCL.cpp:1250] Warning: not destroyed\n") == message


@pytest.mark.parametrize(
    "after",
    [
        "[rank0]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] watchdog",
        "2024-05-02 08:00:00 INFO upload finished",
        "wandb: Run summary:",
        "srun: error: node1: task 0: Exited with exit code 1",
        "frame #0: c10::Error::Error",
        "step 4 loss 0.2",
    ],
)
def test_message_of_an_exception_ends_at_the_next_message(after: str) -> None:
    assert first_error(f"{TRACEBACK}ValueError: boom\n{after}\n") == "ValueError: boom"


def test_exception_of_a_dataloader_worker_is_kept_without_its_frames() -> None:
    text = (
        f"{TRACEBACK}OSError: Caught OSError in DataLoader worker process 1.\n"
        "Original Traceback (most recent call last):\n"
        '  File "/env/asyncio/tasks.py", line 490, in wait_for\n    return fut.result()\n'
        "OSError: [Errno 5] Input/output error\n"
    )
    assert first_error(text) == (
        "OSError: Caught OSError in DataLoader worker process 1.\nOSError: [Errno 5] Input/output error"
    )


def test_exception_without_a_message_is_reported_with_its_statement() -> None:
    frame = '  File "/home/me/train.py", line 94, in <module>\n    assert steps % world_size == 0\n'
    text = "".join(f"[rank0]: {line}\n" for line in f"{TRACEBACK}{frame}           ^^^^\nAssertionError".split("\n"))
    assert first_error(text) == "AssertionError: assert steps % world_size == 0 (train.py:94)"
    assert first_error(f"{TRACEBACK}{frame}AssertionError: uneven\n") == "AssertionError: uneven"
    assert first_error('Traceback (most recent call last):\n  File "<string>", line 1\nKeyError\n') == "KeyError"


def test_handled_exception_is_not_the_final_error() -> None:
    assert first_error(f"{TRACEBACK}torch.OutOfMemoryError: CUDA out of memory\n{STEPS}\n") == ""
    assert first_error(f"Exception ignored in: <function f>\n{TRACEBACK}AssertionError: child\n") == ""
    survived = f"{TRACEBACK}KeyError: 'a'\n{STEPS}\n"
    assert first_error(f"{survived}{TRACEBACK}ValueError: boom\n") == "ValueError: boom"


def test_message_is_bounded() -> None:
    long = first_error(f"{TRACEBACK}ValueError: boom\n" + "  more\n" * 100)
    assert len(long.split("\n")) == MAX_ERROR_LINES
    assert len(first_error(f"{TRACEBACK}ValueError: {'x' * 9000}\n")) == MAX_ERROR


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "terminate called after throwing an instance of 'c10::DistBackendError'\n"
            "  what():  [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)\n"
            "Exception raised from checkTimeout at x.cpp:618 (most recent call first):\nframe #0: f\n",
            "c10::DistBackendError: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
        ),
        ("Fatal Python error: Bus error\n\nThread 0x1 (most recent call first):\n", "Fatal Python error: Bus error"),
        ("step 1\n", ""),
    ],
)
def test_fatal_error_is_the_message_of_the_runtime(text: str, message: str) -> None:
    assert fatal_error(text) == message


def test_banner_without_its_rules_is_the_final_message() -> None:
    banner = f"starting\n{BANNER}\nThere are not enough slots\n\nEither request fewer\n{BANNER}\n"
    assert final_message(banner) == "There are not enough slots\nEither request fewer"
    assert final_message(f"usage: x\n{BANNER}\n") == "usage: x"
    assert final_message("\n \n") == ""


def test_tail_collapses_the_frames_of_a_stack_into_one_line() -> None:
    frames = "".join(f"frame #{number}: c10::f() + 0x57\n" for number in range(60))
    assert tail_lines(f"the cause\n{frames}end\n{frames}") == (
        "the cause\n    (60 C++ frames)\nend\n    (60 C++ frames)"
    )


def test_tail_is_bounded() -> None:
    assert len(tail_lines("line\n" * 1000).split("\n")) == MAX_TAIL_LINES
    assert len(tail_lines("x" * 100_000)) == MAX_TAIL


@pytest.mark.parametrize(
    "prefix", ["node1: [rank18]: ", "xxx1: ", "3: ", "[1,3]<stderr>:", "[trainer0|0]:", "(worker6, rank=6, pid=8930) "]
)
def test_traceback_with_a_launcher_prefix_is_recognized_as_an_error(prefix: str) -> None:
    lines = [f"{prefix}{line}" for line in f"{TRACEBACK}ValueError: boom\nat 3".splitlines()]
    foreign_lines = [f"node9: {line}" for line in f"{TRACEBACK}KeyError: 'later'".splitlines()]
    mixed = [line for pair in zip(lines, foreign_lines, strict=False) for line in pair] + lines[len(foreign_lines) :]
    assert first_error("\n".join(["node1: step 1", *mixed])) == "ValueError: boom\nat 3"


def test_exception_with_a_truncated_traceback_is_preferred_over_an_ignored_one() -> None:
    text = (
        '    self.optimizer = Adam(model)\n  File "/lib/builder.py", line 60, in check\n    raise Exception(message)\n'
        "Exception: CUDA 11.0 does not match 10.1\nException ignored in: <function Adam.__del__ at 0x7f>\n"
        'Traceback (most recent call last):\n  File "/lib/adam.py", line 91, in __del__\n    self.opt.destroy()\n'
        "AttributeError: 'Adam' object has no attribute 'opt'\n"
    )
    assert first_error(text) == "Exception: CUDA 11.0 does not match 10.1"


@pytest.mark.parametrize("prefix", ["ERROR: ", "[ERROR 3]: ", "2026-01-01 12:00:00 root: "])
def test_traceback_quoted_in_a_log_is_not_an_error(prefix: str) -> None:
    assert first_error(f"{prefix}{TRACEBACK}ValueError: boom\n") == ""


def test_prefix_search_takes_linear_time() -> None:
    started = time.process_time()
    for piece in ("a1.", "[a,", "(rank=", "a1: "):
        first_error(f"{piece * 200_000}\n" * 2)
        first_error(f"{piece}\n" * 200_000)
    assert time.process_time() - started < 20  # about 1 s; a backtracking search would take minutes


def test_hydra_advice_is_not_part_of_the_error() -> None:
    text = (
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\nValueError: bad\n\n'
        "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    )
    assert first_error(text) == "ValueError: bad"


THREAD = (
    "Exception in thread Thread-1 (heartbeat):\nTraceback (most recent call last):\n"
    '  File "/usr/lib/python3.11/threading.py", line 1038, in _bootstrap_inner\n    self.run()\n'
    "ConnectionResetError: [Errno 104] Connection reset by peer\n"
)
TASK = (
    "Task exception was never retrieved\nfuture: <Task finished name='Task-1' coro=<f() done>>\n"
    f"{TRACEBACK}TimeoutError: no reply\n"
)
EXIT = f"Error in atexit._run_exitfuncs:\n{TRACEBACK}RuntimeError: cannot schedule new futures after shutdown\n"
CHAINED_THREAD = (
    f"{THREAD}\nDuring handling of the above exception, another exception occurred:\n\n{TRACEBACK}OSError: closed\n"
)
DEALLOCATOR = (
    "Exception ignored while calling deallocator <function Adam.__del__ at 0x7f>:\n"
    f"{TRACEBACK}AttributeError: 'Adam' object has no attribute 'opt'\n"
)


@pytest.mark.parametrize("background", [THREAD, TASK, EXIT, CHAINED_THREAD, DEALLOCATOR])
def test_exception_that_ended_the_process_is_preferred_over_one_in_the_background(background: str) -> None:
    ended = f"{TRACEBACK}KeyError: 'learning_rate'\n"
    assert first_error(ended + background) == "KeyError: 'learning_rate'"
    assert first_error(background + ended) == "KeyError: 'learning_rate'"


@pytest.mark.parametrize(
    ("background", "error"),
    [
        (THREAD, "ConnectionResetError: [Errno 104] Connection reset by peer"),
        (TASK, "TimeoutError: no reply"),
        (EXIT, "RuntimeError: cannot schedule new futures after shutdown"),
        (CHAINED_THREAD, "OSError: closed"),
        (DEALLOCATOR, ""),
    ],
)
def test_exception_in_the_background_is_the_error_if_there_is_no_other(background: str, error: str) -> None:
    assert first_error(background) == error
    survived = f"{TRACEBACK}ValueError: caught\n{STEPS}\n"
    assert first_error(survived + background) == error


def test_main_threads_exception_of_a_real_program_is_preferred(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import sys, threading\n"
        "ended = threading.Event()\n"
        "def report(*error):\n"
        "    sys.__excepthook__(*error)\n"
        "    ended.set()\n"
        "sys.excepthook = report\n"
        "def heartbeat():\n"
        "    ended.wait()\n"
        "    raise ConnectionResetError(104, 'Connection reset by peer')\n"
        "threading.Thread(target=heartbeat).start()\n"
        "{}['learning_rate']\n"
    )
    completed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert completed.stderr.index("KeyError") < completed.stderr.index("Exception in thread"), completed.stderr
    assert first_error(completed.stderr) == "KeyError: 'learning_rate'"


def test_colors_are_removed() -> None:
    """As Python 3.13 prints an exception with PYTHON_COLORS=1."""
    text = (
        "Traceback (most recent call last):\n"
        '  File \x1b[35m"/srv/train.py"\x1b[0m, line \x1b[35m3\x1b[0m, in \x1b[35mmain\x1b[0m\n'
        "    assert \x1b[1;31mx > 1\x1b[0m\n"
        "\x1b[1;35mAssertionError\x1b[0m\n"
    )
    assert first_error(text) == "AssertionError: assert x > 1 (train.py:3)"
    assert final_message("\x1b[31mno space left\x1b[0m\n") == "no space left"
    assert tail_lines("\x1b[1;35mKeyError\x1b[0m: \x1b[35m'a'\x1b[0m") == "KeyError: 'a'"
    assert fatal_error("\x1b[31mmalloc(): corrupted top size\x1b[0m\n") == "malloc(): corrupted top size"


def test_message_after_an_unfinished_traceback_is_found() -> None:
    text = "Traceback (most recent call last):\n"
    assert first_error(f"{TRACEBACK}ValueError: boom\n{text}{text}") == "ValueError: boom"


def test_source_line_may_contain_other_line_separators() -> None:
    text = "Traceback (most recent call last):\n  File \"train.py\", line 3, in f\n    f('a\x85b', 'c\u2028d')\n"
    assert first_error(f"{text}ValueError: boom\n") == "ValueError: boom"
