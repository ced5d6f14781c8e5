"""Explanations of S3 errors; the tests of moving a bucket cause most of them for real."""

from __future__ import annotations

import botocore.exceptions
import pytest

from ansible_collections.muster.training.plugins.module_utils._s3_client.s3 import error_code
from ansible_collections.muster.training.plugins.plugin_utils._s3.client import MESSAGES, explain


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("NoCredentialsError", "no credentials for S3 were found"),
        ("EndpointConnectionError", "Check that the endpoint is correct"),
        ("ConnectTimeoutError", "Check that the endpoint is correct"),
    ],
)
def test_errors_without_a_response_are_explained_and_have_no_code(kind: str, message: str) -> None:
    error = getattr(botocore.exceptions, kind)(endpoint_url="http://s3.example")
    assert message in explain(error, "source")
    assert error_code(error) == ""


@pytest.mark.parametrize("code", MESSAGES)
def test_each_known_error_code_is_explained_in_one_line(code: str) -> None:
    error = botocore.exceptions.ClientError({"Error": {"Code": code, "Message": "words"}}, "CreateBucket")
    text = explain(error, "target")
    assert "{" not in text
    assert "\n" not in text


def test_bucket_name_taken_by_another_account_is_reported() -> None:
    response = {"Error": {"Code": "BucketAlreadyExists", "Message": ""}}
    assert "another account already has a bucket target" in explain(
        botocore.exceptions.ClientError(response, "CreateBucket"), "target"
    )


def test_unknown_error_is_reported_verbatim_on_one_line() -> None:
    error = botocore.exceptions.ClientError({"Error": {"Code": "Odd", "Message": "two\nlines"}}, "CopyObject")
    assert explain(error, "b") == "An error occurred (Odd) when calling the CopyObject operation: two lines"
