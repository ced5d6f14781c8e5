"""Advice in the message of an exception becomes the first remedy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.frames.advice import stated_advice

SITE = "/opt/env/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        (
            "The tokenizer is slow. Please pass use_fast=True to from_pretrained.",
            "Please pass use_fast=True to from_pretrained",
        ),
        ("Two modes at once, use either mode=1\nor mode=2.", "Two modes at once, use either mode=1 or mode=2"),
        ("No slots left. You can raise --slots to 8 for that.", "You can raise --slots to 8 for that"),
        ("Codec not found, install it with: pip install codec", "Codec not found, install it with: pip install codec"),
        ("Something went wrong. Please report this bug to the developers.", ""),
        ("For debugging consider passing CUDA_LAUNCH_BLOCKING=1", ""),
        ("index 3 is out of bounds for axis 0 with size 3", ""),
        ("", ""),
    ],
)
def test_advice_is_extracted(message: str, advice: str) -> None:
    assert stated_advice(message) == advice


@given(st.text(max_size=2000))
def test_advice_is_one_bounded_line(text: str) -> None:
    advice = stated_advice(text)
    assert "\n" not in advice
    assert len(advice) <= 320


def test_remedy_begins_with_the_advice() -> None:
    error = "ValueError: The pack has no index. Please run `pack index DIR` before training."
    lines = [
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 7, in main',
        "    data = packs.open(path)",
        f'  File "{SITE}/packs/reader.py", line 70, in open',
        "    raise ValueError(message)",
        error,
    ]
    explanation = explain_failure(error, lines)
    assert explanation is not None
    assert explanation["remedy"].startswith("as the message says: Please run 'pack index DIR' before training")
