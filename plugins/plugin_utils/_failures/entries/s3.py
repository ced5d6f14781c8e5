# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of S3 and its credentials."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "S3"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="s3-no-credentials",
        title="The job has no credentials for S3",
        example="botocore.exceptions.NoCredentialsError: Unable to locate credentials",
        texts=(
            r"\bNoCredentialsError\b",
            r"Unable to locate credentials",
        ),
        cause="The node has neither access keys in the job's environment or ~/.aws, nor an instance role.",
        remedy="""-e '{"launch_pass_environment": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]}'"""
        " passes yours to the job; or give the machines an instance role (IAM). For a public bucket, "
        "use unsigned requests (s3fs: anon=True). To need none in the job, copy the data first: "
        "ansible-playbook stage_data.yml",
        source="mlfoundations/dclm#29",
    ),
    CatalogueEntry(
        id="s3-expired",
        title="The credentials for S3 have expired",
        example="botocore.exceptions.ClientError: An error occurred (ExpiredToken) when calling the "
        "ListObjectsV2 operation: The provided token has expired.",
        texts=(
            r"An error occurred \((?:ExpiredToken\w{0,12}|RequestExpired|TokenRefreshRequired|InvalidTokenId?)\) w"
            r"hen calling",
            r"An error occurred \(400\) when calling the Head\w{1,10} operation: Bad Request",
            r"The (?:provided token has expired|security token included in the request is (?:expired|invalid))",
        ),
        cause="The job uses temporary credentials (AWS_SESSION_TOKEN, SSO, an assumed role), and they "
        "expired while it ran or before it started; an invalid one is incomplete. For requests without "
        "a body (Head...), S3 says only `400 Bad Request`, which rarely is the wrong region.",
        remedy="give the machines an instance role (IAM), whose credentials are renewed, instead of keys in "
        "the environment. Until then get new ones and pass all three: "
        """-e '{"launch_pass_environment": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", """
        '"AWS_SESSION_TOKEN"]}\'',
        source="CivicTechTO/ttc_subway_times#59",
    ),
    CatalogueEntry(
        id="s3-forbidden",
        title="S3 denies access",
        example="botocore.exceptions.ClientError: An error occurred (403) when calling the HeadObject "
        "operation: Forbidden",
        texts=(
            r"An error occurred \((?:403|AccessDenied|AllAccessDisabled|InvalidAccessKeyId|SignatureDoesNotMatch|U"
            r"nauthorizedAccess)\) when calling",
        ),
        cause="The credentials that the job uses on this node are valid for another account or user, or do "
        "not allow this operation on this bucket. Other keys may take precedence: environment, then "
        "~/.aws, then the instance role.",
        remedy="on the node, `aws sts get-caller-identity` shows who the job is, `aws s3 ls s3://BUCKET` what "
        "it may do. Allow s3:ListBucket, s3:GetObject and s3:PutObject in its policy, or pass the "
        "right keys: "
        """-e '{"launch_pass_environment": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", """
        '"AWS_SESSION_TOKEN"]}\'',
        source="Lightning-AI/litData#603",
    ),
    CatalogueEntry(
        id="s3-missing",
        title="The bucket does not have the object",
        example="An error occurred (404) when calling the HeadObject operation: Not Found",
        texts=(r"An error occurred \((?:404|NoSuchKey|NoSuchBucket)\) when calling",),
        cause="The bucket or the object in it does not exist under this name. Names are case-sensitive, and "
        "a directory is not an object.",
        remedy="`aws s3 ls s3://BUCKET/PREFIX` on the node lists what exists; check the endpoint and the "
        "region, if the bucket is not on AWS (AWS_ENDPOINT_URL in launch_environment)",
        source="sophos/SOREL-20M#8",
    ),
    CatalogueEntry(
        id="s3-clock",
        title="The node's clock is wrong for S3",
        example="An error occurred (RequestTimeTooSkewed) when calling the GetObject operation: The difference "
        "between the request time and the current time is too large.",
        texts=(
            r"RequestTimeTooSkewed\b",
            r"The difference between the request time and the current time is too large",
        ),
        cause="S3 rejects requests whose time is more than 15 minutes off: the node's clock is wrong, or a "
        "request waited that long.",
        remedy="sudo timedatectl set-ntp true on the node; ansible-playbook preflight.yml compares the clocks "
        "of all nodes",
        source="aws/aws-cli#6358",
    ),
    CatalogueEntry(
        id="s3-unreachable",
        title="The node does not reach S3",
        example="botocore.exceptions.ConnectTimeoutError: Connect timeout on endpoint URL: "
        '"https://bucket.s3.amazonaws.com/"',
        texts=(
            r"botocore\.exceptions\.(?:EndpointConnectionError|ConnectTimeoutError|ReadTimeoutError|ConnectionClos"
            r"edError|ResponseStreamingError)",
            r"Could not connect to the endpoint URL: ",
            r"Connect timeout on endpoint URL: ",
        ),
        cause="The node has no internet access or no route to the endpoint, the endpoint or region is wrong, "
        "or the connection broke while data was streamed.",
        remedy="test it on the node: `curl -sI https://s3.amazonaws.com`. Behind a proxy, set HTTPS_PROXY in "
        "launch_environment. If it breaks now and then, let botocore retry "
        """(-e '{"launch_environment": {"AWS_MAX_ATTEMPTS": "10", "AWS_RETRY_MODE": "adaptive"}}') or """
        "copy the data before the job: ansible-playbook stage_data.yml",
        source="boto/boto3#2341",
        recoverable=True,
    ),
)
