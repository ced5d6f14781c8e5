"""Errors of S3 in words for a person; most of them are made for real where a bucket is moved."""

from __future__ import annotations

import botocore.exceptions
import pytest

from ansible_collections.muster.training.plugins.plugin_utils._s3 import ANSWERS, answer_code, explain


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("NoCredentialsError", "there are no credentials for S3"),
        ("EndpointConnectionError", "Check that the endpoint is right"),
        ("ConnectTimeoutError", "Check that the endpoint is right"),
    ],
)
def test_errors_without_an_answer(kind: str, said: str) -> None:
    error = getattr(botocore.exceptions, kind)(endpoint_url="http://s3.example")
    assert said in explain(error, "source")
    assert answer_code(error) == ""


@pytest.mark.parametrize("code", ANSWERS)
def test_each_answer_becomes_one_line(code: str) -> None:
    error = botocore.exceptions.ClientError({"Error": {"Code": code, "Message": "words"}}, "CreateBucket")
    text = explain(error, "target")
    assert "{" not in text
    assert "\n" not in text


def test_a_name_that_is_somebody_elses() -> None:
    answer = {"Error": {"Code": "BucketAlreadyExists", "Message": ""}}
    assert "taken by somebody else" in explain(botocore.exceptions.ClientError(answer, "CreateBucket"), "target")


def test_other_answers_are_told_as_they_are() -> None:
    error = botocore.exceptions.ClientError({"Error": {"Code": "Odd", "Message": "two\nlines"}}, "CopyObject")
    assert explain(error, "b") == "An error occurred (Odd) when calling the CopyObject operation: two lines"
