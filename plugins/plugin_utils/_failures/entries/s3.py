# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures related to S3 and its credentials."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "S3"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="s3-credentials-expired",
        title="The credentials for S3 have expired",
        example="An error occurred (ExpiredToken) when calling the ListObjectsV2 operation: The provided token "
        "has expired.",
        texts=(
            r"\((?:ExpiredToken|ExpiredTokenException|TokenRefreshRequired|RequestExpired)\) when calling",
            r"The provided token has expired",
            r"Token has expired and refresh failed",
            r"SSO session associated with this profile has expired",
            r"security token included in the request is (?:expired|invalid)",
            r"\(400\) when calling the Head\w{1,20} operation: Bad Request",
        ),
        cause=(
            "Temporary AWS credentials expired during the job, usually after one to twelve hours; S3 then responds "
            "to a HEAD request with only 400 Bad Request."
        ),
        remedy=(
            "use credentials that are renewed: an instance profile (IAM role) for the machines, or an access key "
            "without a session token. For a long job, stage the data first with ansible-playbook stage_data.yml"
        ),
        source="CivicTechTO/ttc_subway_times#59",
    ),
    CatalogueEntry(
        id="s3-no-credentials",
        title="There are no credentials for S3",
        example="botocore.exceptions.NoCredentialsError: Unable to locate credentials",
        texts=(
            r"Unable to locate credentials",
            r"The config profile \([^)\n]{1,80}\) could not be found",
            r"(?:NoCredentialsError|PartialCredentialsError)\b",
        ),
        cause=(
            "The job has no AWS credentials on that node, or many workers queried the instance metadata service at "
            "the same time."
        ),
        remedy=(
            'pass the credentials to the job with -e \'{"launch_pass_environment": ["AWS_ACCESS_KEY_ID", '
            '"AWS_SECRET_ACCESS_KEY"]}\', give the machines an instance profile, or stage the data with '
            "ansible-playbook stage_data.yml"
        ),
        source="meta-pytorch/data#906",
        recoverable=True,
    ),
    CatalogueEntry(
        id="s3-forbidden",
        title="S3 denies access",
        example="An error occurred (403) when calling the HeadObject operation: Forbidden",
        texts=(r"\((?:403|AccessDenied|AllAccessDisabled|InvalidAccessKeyId|SignatureDoesNotMatch)\) when calling",),
        cause="The credentials on that node are valid for AWS, but not for this bucket or this operation; or "
        "the key was mistyped.",
        remedy=(
            "run `aws sts get-caller-identity` on the node to see whose credentials they are; allow this "
            "identity to list, read from and write to the bucket, and check the bucket's region"
        ),
        source="https://docs.aws.amazon.com/AmazonS3/latest/userguide/troubleshoot-403-errors.html",
    ),
    CatalogueEntry(
        id="s3-interrupted",
        title="The connection to remote data broke",
        example="fsspec.exceptions.FSTimeoutError",
        texts=(
            r"FSTimeoutError\b",
            r"botocore\.exceptions\.(?:ReadTimeoutError|IncompleteReadError|ConnectionClosedError|ResponseStreamingError)",
        ),
        cause=(
            "Data streamed from S3 or another remote store did not arrive in time: the connection broke, is slow, or "
            "has too many readers."
        ),
        remedy=(
            "download the data before the job: ansible-playbook stage_data.yml copies a bucket to all nodes. "
            "Otherwise, allow more retries and a longer timeout, and use fewer DataLoader workers"
        ),
        source="huggingface/datasets#7164",
        recoverable=True,
    ),
    CatalogueEntry(
        id="s3-missing",
        title="The object does not exist in the bucket",
        example="An error occurred (404) when calling the HeadObject operation: Not Found",
        texts=(r"An error occurred \((?:404|NoSuchKey|NoSuchBucket)\) when calling",),
        cause="The bucket or the object in it does not exist under this name. Names are case-sensitive, and "
        "a directory is not an object.",
        remedy=(
            "run `aws s3 ls s3://BUCKET/PREFIX` on the node to list what exists; check the region and, if the bucket "
            "is not on AWS, the endpoint (AWS_ENDPOINT_URL in launch_environment)"
        ),
        source="sophos/SOREL-20M#8",
        recoverable=True,
    ),
    CatalogueEntry(
        id="s3-clock",
        title="The node's clock is too far off for S3",
        example="An error occurred (RequestTimeTooSkewed) when calling the GetObject operation: The difference "
        "between the request time and the current time is too large.",
        texts=(
            r"RequestTimeTooSkewed\b",
            r"The difference between the request time and the current time is too large",
        ),
        cause=(
            "S3 rejects requests whose timestamp is more than 15 minutes off: the node's clock is wrong, or a "
            "request was delayed by that much."
        ),
        remedy=(
            "run sudo timedatectl set-ntp true on the node; to compare the clocks of all nodes, run "
            "ansible-playbook preflight.yml"
        ),
        source="aws/aws-cli#6358",
    ),
    CatalogueEntry(
        id="s3-unreachable",
        title="The node cannot reach S3",
        example="botocore.exceptions.ConnectTimeoutError: Connect timeout on endpoint URL: "
        '"https://bucket.s3.amazonaws.com/"',
        texts=(
            r"botocore\.exceptions\.(?:EndpointConnectionError|ConnectTimeoutError)",
            r"Could not connect to the endpoint URL: ",
            r"Connect timeout on endpoint URL: ",
        ),
        cause="The node has no internet access or no route to the endpoint, or the endpoint or the region is wrong.",
        remedy=(
            "test the connection on the node with `curl -sI https://s3.amazonaws.com`. Behind a proxy, set "
            "HTTPS_PROXY in launch_environment. If the connection fails intermittently, let botocore retry (-e "
            '\'{"launch_environment": {"AWS_MAX_ATTEMPTS": "10", "AWS_RETRY_MODE": "adaptive"}}\') or copy the data '
            "before the job with ansible-playbook stage_data.yml"
        ),
        source="boto/boto3#2341",
        recoverable=True,
    ),
    CatalogueEntry(
        id="s3-slow-down",
        title="S3 limits the rate of requests",
        example="An error occurred (SlowDown) when calling the GetObject operation (reached max retries: 4): "
        "Please reduce your request rate.",
        texts=(
            r"\((?:SlowDown|503|RequestLimitExceeded|ThrottlingException)\) when calling",
            r"Please reduce your request rate",
        ),
        cause=(
            "The job reads or lists too many objects at the same time: every DataLoader worker of every rank sends "
            "its own requests."
        ),
        remedy=(
            "copy the data to the nodes before the job (ansible-playbook stage_data.yml), or use fewer workers and "
            'larger objects. To make boto3 wait, use -e \'{"launch_environment": {"AWS_RETRY_MODE": "adaptive", '
            '"AWS_MAX_ATTEMPTS": "10"}}\''
        ),
        source="minio/minio#16469",
        recoverable=True,
    ),
    CatalogueEntry(
        id="google-credentials",
        title="The job has no credentials for Google Cloud",
        example="google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found.",
        texts=(
            r"DefaultCredentialsError\b",
            r"Your default credentials were not found",
        ),
        cause="The data is in Google Cloud Storage, and this node has neither a service account nor a key file.",
        remedy=(
            "give the machines a service account that may read the bucket; copy a key file to each node and set "
            'its path with -e \'{"launch_environment": {"GOOGLE_APPLICATION_CREDENTIALS": "/path/key.json"}}\'; '
            "or copy the data before the job with ansible-playbook stage_data.yml"
        ),
        source="bettercollected/bettercollected#283",
        recoverable=True,
    ),
)
