# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to AWS, and the meaning of its errors. Private to this collection, controller only.

Aws.call() is for requests that may safely be sent twice, because of a client token, a unique name, or because they
remove something: if an answer is lost, the request is repeated. Aws.once() sends all others.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

#: Possible elsewhere, later or with another type: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
SHORTAGE = frozenset(
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
#: The account may not have more; another zone in the region does not help.
QUOTA = frozenset({"MaxSpotInstanceCountExceeded", "VcpuLimitExceeded", "InstanceLimitExceeded"})
PASSING = frozenset(
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
LOST = "no answer"
#: Seconds before each retry.
WAITS = (2.0, 4.0, 8.0, 16.0, 30.0)

KEYS = "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in with `aws sso login`"
_KEY_CODES = frozenset(
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


class Ec2Error(Exception):
    """A request that AWS refused or did not answer. str() is one line for a person. code: AWS's, or LOST."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in PASSING or self.code == LOST


class BotoMissing(Exception):
    """boto3 is not installed. str() is one line for a person."""


def new_session() -> Any:
    """A boto3 session, configured by the environment and ~/.aws. Raises BotoMissing, Ec2Error."""
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise BotoMissing(
            "boto3 is missing in the Python of ansible-playbook. Needed: boto3. Install it: "
            f"{sys.executable} -m pip install boto3"
        ) from None
    try:
        return boto3.session.Session()
    except BotoCoreError as error:  # a missing profile
        raise Ec2Error("", f"{one_line(error)}. Correct AWS_PROFILE") from None


@dataclasses.dataclass
class Aws:
    """The services of one region. say: shows a line to the waiting user."""

    session: Any
    region: str
    say: Callable[[str], None] = print
    sleep: Callable[[float], None] = time.sleep
    clients: dict[str, Any] = dataclasses.field(default_factory=dict)

    def client(self, service: str) -> Any:
        """The client of a service, without its own retries: this class decides on them."""
        if service not in self.clients:
            from botocore.config import Config

            # Pricing exists in few regions, and has the prices of all
            region = "us-east-1" if service == "pricing" else self.region
            config = Config(connect_timeout=10, read_timeout=60, retries={"total_max_attempts": 1})
            self.clients[service] = self.session.client(service, region_name=region, config=config)
        return self.clients[service]

    def ec2(self, action: str, **given: Any) -> dict[str, Any]:
        """One request to EC2; action as in boto3. Raises Ec2Error."""
        return self.call("ec2", action, **given)

    def call(self, service: str, action: str, **given: Any) -> dict[str, Any]:
        """One request, repeated after transient errors. Raises Ec2Error."""
        for wait in (*WAITS, None):
            try:
                return self.once(service, action, **given)
            except Ec2Error as error:
                if not error.passing or wait is None:
                    raise
                self.say(f"{error}; retrying in {wait:g} s")
                self.sleep(wait)
        raise AssertionError("the last try returns or raises")

    def pages(self, action: str, key: str, **given: Any) -> list[dict[str, Any]]:
        """All items of an EC2 list. Raises Ec2Error."""
        found: list[dict[str, Any]] = []
        while True:
            answer = self.ec2(action, **given)
            found += answer.get(key) or []
            if not answer.get("NextToken"):
                return found
            given["NextToken"] = answer["NextToken"]

    def once(self, service: str, action: str, **given: Any) -> dict[str, Any]:
        """One request, sent once. Raises Ec2Error."""
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
            answer: dict[str, Any] = getattr(self.client(service), action)(**given)
        except ClientError as error:
            raise explained(action, error.response) from None
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise Ec2Error("NoCredentials", f"{one_line(error)}. {KEYS}") from None
        except (HTTPClientError, botocore.exceptions.ConnectionError, ResponseParserError) as error:
            raise Ec2Error(LOST, f"no answer to {action}: {one_line(error)}") from None
        except NoRegionError as error:
            raise Ec2Error("NoRegion", one_line(error)) from None
        except BotoCoreError as error:
            raise Ec2Error(type(error).__name__, f"{action}: {one_line(error)}") from None
        return answer


def explained(action: str, answer: dict[str, Any]) -> Ec2Error:
    """AWS's error in one line: its message, and what to do. answer: botocore's."""
    told = answer.get("Error") or {}
    code, words = one_line(told.get("Code") or "", 100), one_line(told.get("Message") or "")
    status = (answer.get("ResponseMetadata") or {}).get("HTTPStatusCode")
    if code == "RequestExpired" or (code in _KEY_CODES and ("clock" in words or "ignature expired" in words)):
        return Ec2Error(code, f"AWS says this machine's clock is wrong: {words}. Set it (timedatectl set-ntp true)")
    if code in _KEY_CODES:
        return Ec2Error(code, f"AWS rejected the credentials: {words} ({code}). {KEYS}")
    if code in ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"):
        return Ec2Error(
            code, f"this AWS user may not call {action}: {words} ({code}). Get the permission, or use another"
        )
    if code not in SHORTAGE and isinstance(status, int) and status >= 500:
        code = code if code in PASSING else "Unavailable"
    return Ec2Error(code, f"{action} was refused: {words} ({code})")
