# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Send requests to AWS, and interpret its errors.

AwsClient.call() is for requests that may safely be sent twice, because of a client token, a unique name, or because
they remove something: it repeats them if a reply is lost. AwsClient.send_once() sends all others.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import CloudError
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

# The request may succeed elsewhere, at a later time, or with another type:
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
CAPACITY_ERRORS = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientCapacity",
        "UnfulfillableCapacity",
        "SpotMaxPriceTooLow",
        "Unsupported",
        "InsufficientFreeAddressesInSubnet",
    }
)
# The account's limit has been reached; another zone in the region does not help.
QUOTA_ERRORS = frozenset({"MaxSpotInstanceCountExceeded", "VcpuLimitExceeded", "InstanceLimitExceeded"})
TRANSIENT_ERRORS = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "InternalError",
        "InternalFailure",
        "Unavailable",
        "ServiceUnavailable",
    }
)
NO_REPLY = "no reply"
# Seconds before each retry.
RETRY_DELAYS = (2.0, 4.0, 8.0, 16.0, 30.0)

CREDENTIALS_HINT = "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in with `aws sso login`"
_CREDENTIAL_ERRORS = frozenset(
    {
        "AuthFailure",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
    }
)


class Ec2Error(CloudError):
    """A request that AWS rejected or did not reply to. str() is a one-line message. code: AWS's code, or NO_REPLY."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.transient = code in TRANSIENT_ERRORS or code == NO_REPLY
        self.refused = not self.transient
        self.scope = "offer" if code in CAPACITY_ERRORS else "pool" if code in QUOTA_ERRORS else "request"


class BotoMissingError(CloudError):
    """boto3 is not installed. str() is a one-line message for the user."""


def new_session() -> Any:
    """Return a boto3 session, configured by the environment and ~/.aws. Raise BotoMissingError or Ec2Error."""
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise BotoMissingError(
            "boto3 is not installed for the Python that runs ansible-playbook. Install it: "
            f"{sys.executable} -m pip install boto3"
        ) from None
    try:
        return boto3.session.Session()
    except BotoCoreError as error:  # a missing profile
        raise Ec2Error("", f"{single_line(error)}. Correct AWS_PROFILE") from None


@dataclasses.dataclass
class AwsClient:
    """The AWS services in one region. show: prints a line for the user."""

    session: Any
    region: str
    show: Callable[[str], None] = print
    sleep: Callable[[float], None] = time.sleep
    clients: dict[str, Any] = dataclasses.field(default_factory=dict)

    def client(self, service: str) -> Any:
        """Return a service client with botocore's retries disabled, because this class decides when to retry."""
        if service not in self.clients:
            from botocore.config import Config

            # The Pricing API is available in only a few regions, but it covers prices for all of them
            region = "us-east-1" if service == "pricing" else self.region
            config = Config(connect_timeout=10, read_timeout=60, retries={"total_max_attempts": 1})
            self.clients[service] = self.session.client(service, region_name=region, config=config)
        return self.clients[service]

    def ec2(self, action: str, **parameters: Any) -> dict[str, Any]:
        """Send a request to EC2, and retry after transient errors. action: the name in boto3. Raise Ec2Error."""
        return self.call("ec2", action, **parameters)

    def call(self, service: str, action: str, **parameters: Any) -> dict[str, Any]:
        """Send a request, and retry after transient errors. Raise Ec2Error."""
        for delay in (*RETRY_DELAYS, None):
            try:
                return self.send_once(service, action, **parameters)
            except Ec2Error as error:
                if not error.transient or delay is None:
                    raise
                self.show(f"{error}; retrying in {delay:g} s")
                self.sleep(delay)
        raise AssertionError("the last attempt returns or raises")

    def list_all(self, action: str, key: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return all items of an EC2 list. Raise Ec2Error."""
        items: list[dict[str, Any]] = []
        while True:
            reply = self.ec2(action, **parameters)
            items += reply.get(key) or []
            if not reply.get("NextToken"):
                return items
            parameters["NextToken"] = reply["NextToken"]

    def send_once(self, service: str, action: str, **parameters: Any) -> dict[str, Any]:
        """Send a request without retrying it. Raise Ec2Error."""
        import botocore.exceptions
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            HTTPClientError,
            NoCredentialsError,
            NoRegionError,
            PartialCredentialsError,
        )
        from botocore.parsers import ResponseParserError

        try:
            reply: dict[str, Any] = getattr(self.client(service), action)(**parameters)
        except ClientError as error:
            raise parse_error(action, error.response) from None
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise Ec2Error("NoCredentials", f"{single_line(error)}. {CREDENTIALS_HINT}") from None
        except (HTTPClientError, botocore.exceptions.ConnectionError, ResponseParserError) as error:
            raise Ec2Error(NO_REPLY, f"no reply to {action}: {single_line(error)}") from None
        except NoRegionError as error:
            raise Ec2Error("NoRegion", single_line(error)) from None
        except BotoCoreError as error:
            raise Ec2Error(type(error).__name__, f"{action}: {single_line(error)}") from None
        return reply


def parse_error(action: str, response: dict[str, Any]) -> Ec2Error:
    """Return the error from AWS, with a message and a remedy on one line. response: the response from botocore."""
    error = response.get("Error") or {}
    code, message = single_line(error.get("Code") or "", 100), single_line(error.get("Message") or "")
    status = (response.get("ResponseMetadata") or {}).get("HTTPStatusCode")
    if code == "RequestExpired" or (
        code in _CREDENTIAL_ERRORS and ("clock" in message or "ignature expired" in message)
    ):
        return Ec2Error(
            code, f"according to AWS, this machine's clock is wrong: {message}. Set it (sudo timedatectl set-ntp true)"
        )
    if code in _CREDENTIAL_ERRORS:
        return Ec2Error(code, f"AWS rejected the credentials: {message} ({code}). {CREDENTIALS_HINT}")
    if code in ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"):
        return Ec2Error(
            code,
            f"this AWS user is not allowed to call {action}: {message} ({code}). Request the permission, or use a "
            "different user",
        )
    if code not in CAPACITY_ERRORS and isinstance(status, int) and status >= 500:
        code = code if code in TRANSIENT_ERRORS else "Unavailable"
    return Ec2Error(code, f"{action} was rejected: {message} ({code})")
