"""The keys of Weights and Biases and Hugging Face are on the nodes, and in no output."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import termios
from pathlib import Path

from tests.lab import Lab
from tests.support import drive
from tests.support.drive import user_shell

SECRETS = str(Path(__file__).parents[1] / "secrets.yml")
NODES = ("node1", "node2")
KEY = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_0123456789abcdefghij"
NO_SECRETS = {"WANDB_API_KEY": "", "HF_TOKEN": ""}


def test_secret_files_are_readable_only_by_their_user(lab: Lab) -> None:
    for node in NODES:
        assert user_shell(
            lab, node, "stat --format=%a ~/.netrc ~/.cache/huggingface/token ~/.config/wandb/settings"
        ) == "\n".join(["600"] * 3)
        netrc = user_shell(lab, node, "cat ~/.netrc").split()
        assert netrc == ["machine", "api.wandb.ai", "login", "user", "password", KEY]
        assert user_shell(lab, node, "cat ~/.cache/huggingface/token") == TOKEN
        assert "project = demo" in user_shell(lab, node, "cat ~/.config/wandb/settings")


def test_secrets_are_not_shown_in_verbose_output(lab: Lab) -> None:
    drive.output_of(lab, "node2", "rm", "/home/muster/.netrc", "/home/muster/.cache/huggingface/token")
    play = drive.run(
        SECRETS,
        lab.inventory,
        options=("--limit", "node2", "-vvv", "--diff"),
        part="passed",
        secret=KEY,
        token=TOKEN,
    )
    assert play.rc == 0, play.output
    assert "Ensure the key in netrc" in play.output
    assert KEY not in play.output and TOKEN not in play.output
    assert KEY in user_shell(lab, "node2", "cat ~/.netrc")


def prompt_command(lab: Lab, *options: str) -> list[str]:
    """Return the arguments of a command that prompts for the secrets."""
    program = str(drive.CHECKOUT / ".venv/bin/ansible-playbook")
    return [program, SECRETS, "-i", str(lab.inventory), "--limit", "node2", "-e", "part=typed", *options]


def test_secrets_that_are_typed_in_are_stored_but_not_echoed(lab: Lab) -> None:
    drive.output_of(lab, "node2", "rm", "-f", "/home/muster/.netrc", "/home/muster/.cache/huggingface/token")
    process, terminal = drive.terminal(prompt_command(lab, "-vvv"), NO_SECRETS)
    replies = {"Weights and Biases key (input is hidden)": KEY, "Hugging Face token (input is hidden)": TOKEN}
    output = ""
    try:
        while process.poll() is None:
            if select.select([terminal], [], [], 1)[0]:
                with contextlib.suppress(OSError):  # Linux reports the end of a terminal this way
                    output += os.read(terminal, 65536).decode(errors="replace")
            elif not termios.tcgetattr(terminal)[3] & termios.ECHO:  # wait for the prompt: earlier input would be lost
                prompt = max(replies, key=output.rfind)
                os.write(terminal, f"{replies[prompt]}\r".encode() if prompt in output else b"")
        assert process.returncode == 0, output
    finally:
        process.kill()
        os.close(terminal)
    assert all(question in output for question in replies)
    assert KEY not in output and TOKEN not in output
    assert KEY in user_shell(lab, "node2", "cat ~/.netrc")
    assert user_shell(lab, "node2", "cat ~/.cache/huggingface/token") == TOKEN


def test_missing_secret_without_a_terminal_is_reported_with_remedy(lab: Lab) -> None:
    arguments, env = prompt_command(lab), {**os.environ, **NO_SECRETS, "ANSIBLE_FORCE_COLOR": "0"}
    completed = subprocess.run(
        arguments,
        stdin=subprocess.DEVNULL,
        env=env,
        cwd=drive.CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == 2, completed.stdout
    assert "no Weights and Biases key is set. Copy the key shown at " in " ".join(completed.stdout.split()), (
        completed.stdout
    )
