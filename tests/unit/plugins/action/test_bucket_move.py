"""A bucket is moved on a fake S3 server: completely, with metadata and tags, verified, and after interruptions."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.action import bucket_move
from ansible_collections.muster.training.plugins.plugin_utils._s3 import bucket_move as s3_bucket_move
from ansible_collections.muster.training.plugins.plugin_utils._s3.bucket_move import MoveError
from ansible_collections.muster.training.plugins.plugin_utils._s3.client import explain
from tests.support.s3_server import S3Server
from tests.unit.typed import give_collection, typed

pytestmark = pytest.mark.one_core

PART = 5 * 2**20
BIG = bytes(range(256)) * (2 * PART // 256) + b"the rest"


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with S3Server(buckets=["source"]) as server:
        client = server.client()
        for number in range(20):
            client.put_object(Bucket="source", Key=f"few/{number:02}", Body=b"x" * number, ContentType="text/x-few")
        client.put_object_tagging(
            Bucket="source", Key="few/07", Tagging={"TagSet": [{"Key": "split", "Value": "train + test"}]}
        )
        upload_in_parts(client, "big.bin", [BIG[:PART], BIG[PART : 2 * PART], BIG[2 * PART :]])
        yield server
        for bucket in client.list_buckets()["Buckets"]:
            empty_bucket(client, bucket["Name"])


def empty_bucket(client: Any, bucket: str) -> None:
    """Remove a bucket, because all servers of a process share moto's state."""
    for entry in client.list_multipart_uploads(Bucket=bucket).get("Uploads", ()):
        client.abort_multipart_upload(Bucket=bucket, Key=entry["Key"], UploadId=entry["UploadId"])
    for entry in client.list_objects_v2(Bucket=bucket).get("Contents", ()):
        client.delete_object(Bucket=bucket, Key=entry["Key"])
    client.delete_bucket(Bucket=bucket)


def upload_in_parts(client: Any, key: str, parts: list[bytes]) -> None:
    upload = client.create_multipart_upload(
        Bucket="source", Key=key, ContentType="video/mp4", Metadata={"camera": "3"}, Tagging="split=train%2Btest"
    )["UploadId"]
    arguments = {"Bucket": "source", "Key": key, "UploadId": upload}
    uploaded = [
        {"PartNumber": number, "ETag": client.upload_part(PartNumber=number, Body=body, **arguments)["ETag"]}
        for number, body in enumerate(parts, 1)
    ]
    client.complete_multipart_upload(MultipartUpload={"Parts": uploaded}, **arguments)


def move(s3: S3Server, check: bool = False, **more: Any) -> dict[str, Any]:
    spec = bucket_move.ARGUMENT_SPEC
    args = {name: option.get("default") for name, option in spec.items()}
    args.update(source="source", target="target", region="us-east-1", endpoint_url=s3.url, workers=4, show_every=0)
    args.update(access_key_id=s3.access_key, secret_access_key=s3.secret_key)
    args.update(more)
    return bucket_move.BucketMove(args).run(check)


def content(client: Any, bucket: str) -> dict[str, str]:
    result = {}
    for entry in client.list_objects_v2(Bucket=bucket)["Contents"]:
        body = client.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
        result[entry["Key"]] = hashlib.sha256(body).hexdigest()
    return result


def count_copies(s3: S3Server) -> int:
    return sum(method in ("PUT", "POST") for method, _path in s3.requests)


def test_objects_are_moved_with_content_type_metadata_and_tags(s3: S3Server) -> None:
    client = s3.client()
    before = content(client, "source")
    result = move(s3)
    assert result["changed"] and result["created"]
    assert (result["objects"], result["copied"], result["verified"], result["extra"]) == (21, 21, 21, 0)
    assert content(client, "target") == before == content(client, "source")
    for key, kind in (("big.bin", "video/mp4"), ("few/07", "text/x-few")):
        copied = client.head_object(Bucket="target", Key=key)
        assert copied["ContentType"] == kind
        assert copied["ETag"] == client.head_object(Bucket="source", Key=key)["ETag"]
    assert client.head_object(Bucket="target", Key="big.bin")["Metadata"] == {"camera": "3"}
    for key, value in (("big.bin", "train+test"), ("few/07", "train + test")):
        assert client.get_object_tagging(Bucket="target", Key=key)["TagSet"] == [{"Key": "split", "Value": value}]


def test_a_second_move_copies_nothing(s3: S3Server) -> None:
    move(s3)
    s3.requests.clear()
    result = move(s3)
    assert not result["changed"]
    assert result["copied"] == 0
    assert count_copies(s3) == 0


def test_check_mode_shows_size_and_price_and_creates_nothing(s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    s3.requests.clear()
    result = move(s3, check=True, price_per_gb=1000.0)
    size = len(BIG) + sum(range(20))
    assert (result["changed"], result["copied"], result["copied_bytes"]) == (True, 21, size)
    assert "21 objects, 10.5 MB" in result["msg"]
    assert result["price"] == round(result["requests"] / 1000 * 0.005, 4), "within a region transfer is free"
    assert count_copies(s3) == 0
    assert [bucket["Name"] for bucket in s3.client().list_buckets()["Buckets"]] == ["source"]


def test_price_includes_transfer_to_another_region() -> None:
    result = s3_bucket_move.Survey(objects=2, size=10**9, missing=2, missing_size=10**9, requests=5)
    args = {"source": "a", "target": "b", "region": "us-east-1", "price_per_gb": 0.02, "price_per_1000_requests": 5.0}
    assert "about 0.04 USD" in bucket_move.describe_plan(result, args, "eu-central-1", free=False)
    assert "about 0.03 USD" in bucket_move.describe_plan(result, args, "us-east-1", free=True)


def test_interrupted_move_resumes(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    client = s3.client()
    judge, uploaded_parts = s3._judge, []

    def fail_after_first_part(environ: dict[str, Any]) -> tuple[str, dict[str, str]]:
        if environ["REQUEST_METHOD"] == "PUT" and "partNumber=" in environ["QUERY_STRING"]:
            uploaded_parts.append(environ["PATH_INFO"])
        return ("AccessDenied", {}) if len(uploaded_parts) > 1 else judge(environ)

    monkeypatch.setattr(s3, "_judge", fail_after_first_part)
    with pytest.raises(Exception, match="AccessDenied"):
        move(s3, workers=1)
    monkeypatch.undo()
    pending_uploads = client.list_multipart_uploads(Bucket="target")["Uploads"]
    assert [upload["Key"] for upload in pending_uploads] == ["big.bin"]
    s3.requests.clear()
    result = move(s3)
    parts = [path for method, path in s3.requests if (method, path) == ("PUT", "/target/big.bin")]
    assert len(parts) == 2, "one of three parts was there"
    assert result["verified"] == 21
    assert content(client, "target") == content(client, "source")


def test_differing_object_is_replaced_only_with_replace_true(s3: S3Server) -> None:
    client = s3.client()
    move(s3)
    client.put_object(Bucket="target", Key="few/09", Body=b"x" * 8 + b"y")
    with pytest.raises(MoveError, match=r"target has 1 objects that differ from those in source: few/09.*replace=true"):
        move(s3)
    assert client.get_object(Bucket="target", Key="few/09")["Body"].read() == b"x" * 8 + b"y"
    assert move(s3, replace=True)["copied"] == 1
    assert content(client, "target") == content(client, "source")


def test_object_changed_during_copy_is_detected(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy_and_change(*arguments: Any) -> None:
        s3_bucket_move.copy_missing(*arguments)
        s3.client().put_object(Bucket="target", Key="few/10", Body=b"y" * 10)

    monkeypatch.setattr(bucket_move, "copy_missing", copy_and_change)
    with pytest.raises(MoveError, match=r"1 objects in target are missing or differ from those in source: few/10"):
        move(s3)


def test_archived_objects_are_refused_before_copying(s3: S3Server) -> None:
    s3.client().put_object(Bucket="source", Key="old", Body=b"1", StorageClass="GLACIER")
    with pytest.raises(MoveError, match=r"source has archived objects, which cannot be read \(1 in total\): old"):
        move(s3)
    assert [bucket["Name"] for bucket in s3.client().list_buckets()["Buckets"]] == ["source"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"source": "nowhere"}, "bucket nowhere does not exist. Correct its name"),
        ({"source": "Not_A_Bucket!"}, "Not_A_Bucket! is not a valid bucket name"),
        ({"access_key_id": "AKIAWRONG"}, "is denied|is not known"),
        ({"secret_access_key": "wrong"}, "is denied|does not belong"),
        ({"target": "source"}, "source and target are both source"),
    ],
)
def test_errors_are_explained_in_one_line_without_secrets(s3: S3Server, more: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception) as excinfo:
        move(s3, **more)
    text = explain(excinfo.value, more.get("source", "source"))
    assert re.search(message, text)
    assert "\n" not in text
    assert s3.secret_key not in text


def test_a_target_in_another_region_is_refused(s3: S3Server) -> None:
    s3.client().create_bucket(Bucket="target2")
    with pytest.raises(MoveError, match="target2 already exists in us-east-1, not in eu-central-1"):
        move(s3, target="target2", region="eu-central-1")


def test_playbook_names_missing_variables(tmp_path: Path) -> None:
    give_collection(tmp_path)
    command = ["ansible-playbook", "muster.training.bucket_move", "-e", "source=a"]
    message = "name the bucket to copy to and the region to copy to: "
    completed = typed(tmp_path, command)
    assert completed.returncode == 2
    variables = "-e source=a -e target=NEW_BUCKET -e region=us-east-1"
    assert f"{message}ansible-playbook muster.training.bucket_move {variables}" in completed.stdout
    completed = typed(tmp_path, command, MUSTER_COMMAND="./muster")
    options = "--from a --to NEW_BUCKET --region us-east-1"
    assert f"{message}./muster bucket-move {options}" in completed.stdout


@pytest.mark.parametrize("missing", ["boto3", "botocore"])  # other programs install botocore without boto3
def test_missing_boto3_is_reported_with_install_command(tmp_path: Path, missing: str) -> None:
    give_collection(tmp_path)
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / f"{missing}.py").write_text("raise ModuleNotFoundError('No module named so')\n")
    arguments = [
        "ansible-playbook",
        "muster.training.bucket_move",
        "-e",
        "source=a",
        "-e",
        "target=b",
        "-e",
        "region=c",
    ]
    completed = typed(tmp_path, arguments, PYTHONPATH=str(tmp_path / "without"))
    assert completed.returncode == 2
    output = f"the Python that runs ansible-playbook does not have boto3. Install it: {sys.executable} -m pip"
    assert output in " ".join(completed.stdout.split()), completed.stdout
    assert "No module named" not in completed.stdout
