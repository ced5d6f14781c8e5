"""faulthandler dumps of a rank, parsed and classified by the rank's activity."""

from __future__ import annotations

import faulthandler
import sys
import tempfile
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._run.stack_dump import (
    CODE,
    COLLECTIVE,
    IN_BACKWARD,
    ON_GPU,
    Frame,
    classify,
    main_stack,
    parse_dump,
    parse_traceback,
)

TORCH = "/venv/lib/python3.11/site-packages/torch"
ALL_REDUCE = [
    Frame(f"{TORCH}/distributed/distributed_c10d.py", 3252, "all_reduce"),
    Frame(f"{TORCH}/distributed/c10d_logger.py", 83, "wrapper"),
]
TRAIN = [Frame("/home/me/train.py", 88, "train"), Frame("/home/me/train.py", 120, "<module>")]
LOADER = [
    Frame("/usr/lib/python3.11/threading.py", 331, "wait"),
    Frame(f"{TORCH}/utils/data/dataloader.py", 1200, "_get_data"),
    Frame(f"{TORCH}/utils/data/dataloader.py", 701, "__next__"),
]


def test_debug_wrapper_is_not_attributed_to_the_users_code() -> None:
    frames = [
        ("/runs/first/node0/hooks/debug_rank.py", 43, "wrapper"),
        (f"{TORCH}/distributed/distributed_c10d.py", 1899, "init_process_group"),
        ("/runs/first/node0/hooks/debug_rank.py", 43, "wrapper"),
        ("/home/me/train.py", 4, "<module>"),
    ]
    lines = [f'  File "{file}", line {line} in {function}' for file, line, function in frames[1:]]
    (stack,) = parse_dump("\n".join(["Stack (most recent call first):", *lines]))
    activity = classify(stack)
    assert (activity["kind"], activity["call"]) == (COLLECTIVE, "init_process_group")
    assert (activity["file"], activity["line"]) == ("/home/me/train.py", 4)
    waiting = '  File "/runs/first/node0/hooks/debug_rank.py", line 112 in wait_for_debugger'
    assert parse_dump(f"Stack (most recent call first):\n{waiting}")[0][0].function == "wait_for_debugger"


def test_dump_of_this_process_ends_with_the_main_thread() -> None:
    ready, end = threading.Event(), threading.Event()

    def wait_for_end() -> None:
        ready.set()
        end.wait()

    thread = threading.Thread(target=wait_for_end)
    thread.start()
    ready.wait()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as stream:
        faulthandler.dump_traceback(stream)
        stream.seek(0)
        threads = parse_dump(stream.read())
    end.set()
    thread.join()
    assert len(threads) >= 2
    assert main_stack(threads)[0].function == "test_dump_of_this_process_ends_with_the_main_thread"
    assert main_stack(threads)[0].file == __file__


def test_only_the_last_dump_is_used() -> None:
    item = 'Current thread 0x00007f01 (most recent call first):\n  File "/a.py", line 1 in f\n'
    two = 'Thread 0x00007f02 [loader] (most recent call first):\n  File "/b.py", line 2 in g\n\n'
    assert parse_dump(item + two + item.replace("/a.py", "/c.py")) == [
        [Frame("/b.py", 2, "g")],
        [Frame("/c.py", 1, "f")],
    ]


@given(st.text(max_size=2000))
def test_any_text_is_accepted(text: str) -> None:
    threads = parse_dump(text)
    frames = main_stack(threads)
    assert not frames or classify(frames)["kind"]
    parse_traceback(text)


@pytest.mark.parametrize(
    ("frames", "source", "expected"),
    [
        (ALL_REDUCE + TRAIN, "", (COLLECTIVE, "all_reduce", "/home/me/train.py", 88)),
        (LOADER + TRAIN, "", (CODE, "__next__", "/home/me/train.py", 88)),
        (TRAIN, "x = f(x)", (CODE, "", "/home/me/train.py", 88)),
        (TRAIN, "work.wait()", (COLLECTIVE, "wait", "/home/me/train.py", 88)),
        (TRAIN, "total += loss.item()", (ON_GPU, "item", "/home/me/train.py", 88)),
        (TRAIN, "for name, value in losses.items():", (CODE, "", "/home/me/train.py", 88)),
        ([Frame(f"{TORCH}/autograd/graph.py", 8, "_engine_run_backward"), *TRAIN], "", (IN_BACKWARD,)),
        ([Frame(f"{TORCH}/cuda/__init__.py", 8, "synchronize"), *TRAIN], "", (ON_GPU, "synchronize")),
        ([Frame(f"{TORCH}/nn/modules/module.py", 8, "forward"), *ALL_REDUCE, *TRAIN], "", (CODE,)),
        ([Frame("/v/site-packages/deepspeed/comm/torch.py", 8, "barrier"), *TRAIN], "", (COLLECTIVE, "barrier")),
        ([Frame("/usr/lib/python3.11/runpy.py", 8, "run")], "", (CODE, "", "/usr/lib/python3.11/runpy.py", 8)),
    ],
)
def test_a_stack_is_classified_by_its_innermost_frames(
    frames: list[Frame], source: str, expected: tuple[object, ...]
) -> None:
    result = classify(frames, source)
    assert tuple(result[name] for name in ("kind", "call", "file", "line")[: len(expected)]) == expected


def test_traceback_of_an_uncaught_exception_is_a_stack() -> None:
    text = (
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/home/me/train.py", line 88, in train\n'
        "[rank1]:     dist.all_reduce(x)\n"
        f'[rank1]:   File "{TORCH}/distributed/distributed_c10d.py", line 3252, in all_reduce\n'
        "[rank1]: RuntimeError: Timed out\n"
    )
    frames = parse_traceback(text)
    assert [frame.function for frame in frames] == ["all_reduce", "train"]
    assert classify(frames)["kind"] == COLLECTIVE


def test_python_supports_the_signals_that_the_hook_uses() -> None:
    import signal

    from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import stack_hook

    for number in (stack_hook.STACK_SIGNAL, stack_hook.PYTHON_STACK_SIGNAL):
        assert signal.SIGRTMIN < number < signal.SIGRTMAX, sys.platform


def test_dump_of_one_thread_omits_the_frame_of_the_hook() -> None:
    text = (
        "Stack (most recent call first):\n"
        '  File "/home/me/train.py", line 1 in old\n'
        "Stack (most recent call first):\n"
        '  File "/home/me/.muster/runs/r/node0/hooks/sitecustomize.py", line 66 in write_stack\n'
        '  File "/home/me/data.py", line 41 in load\n'
    )
    assert main_stack(parse_dump(text)) == [Frame("/home/me/data.py", 41, "load")]
