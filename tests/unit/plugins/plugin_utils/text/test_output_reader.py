"""Output without a reader."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._text.output_reader import (
    end_play_without_reader,
    has_reader,
)

WAIT = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]


def test_process_whose_output_is_read_continues() -> None:
    with subprocess.Popen(WAIT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stdout.readline() == b"\n"
        assert has_reader(process.pid)
        end_play_without_reader(process.pid)
        process.stdin.close()
        assert process.wait(60) == 0


def test_process_whose_output_is_not_read_is_ended() -> None:
    with subprocess.Popen(WAIT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        process.stdout.close()
        assert not has_reader(process.pid)
        end_play_without_reader(process.pid)
        assert process.wait(60) == -15


@pytest.mark.parametrize("output", [subprocess.DEVNULL, None])
def test_output_that_is_not_a_pipe_has_a_reader(output: int | None) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=output) as process:
        assert has_reader(process.pid)
        process.communicate(b"\n")


def test_exited_process_is_ignored() -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait()
    assert has_reader(process.pid)
