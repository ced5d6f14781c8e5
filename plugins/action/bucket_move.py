# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module bucket_move: copies a bucket to another region and shows the progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._files.content import format_size
from ansible_collections.muster.training.plugins.module_utils._s3_client.s3 import error_code
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._s3.bucket_move import (
    MoveError,
    MoveProgress,
    Route,
    Survey,
    compare_buckets,
    copy_missing,
)
from ansible_collections.muster.training.plugins.plugin_utils._s3.client import (
    bucket_region,
    explain,
    make_client,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

MAX_KEYS = 3  # names of objects in a message
# For each required argument, its description and an example.
EXAMPLE_VALUES = {
    "source": ("the bucket to copy", "BUCKET"),
    "target": ("the bucket to copy to", "NEW_BUCKET"),
    "region": ("the region to copy to", "us-east-1"),
}
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "source": {"type": "str", "required": True},
    "target": {"type": "str", "required": True},
    "region": {"type": "str", "required": True},
    "endpoint_url": {"type": "str", "default": ""},
    "access_key_id": {"type": "str", "default": ""},
    "secret_access_key": {"type": "str", "default": "", "no_log": True},
    "session_token": {"type": "str", "default": "", "no_log": True},
    "replace": {"type": "bool", "default": False},
    "workers": {"type": "int", "default": 16},
    "price_per_gb": {"type": "float", "default": 0.02},
    "price_per_1000_requests": {"type": "float", "default": 0.005},
    "show_every": {"type": "int", "default": 10},
}


def describe_plan(plan: Survey, args: dict[str, Any], from_region: str, free: bool) -> str:
    """Return the planned actions, and their cost."""
    price = plan.price(0.0 if free else args["price_per_gb"], args["price_per_1000_requests"])
    existing = plan.objects - plan.missing
    return (
        f"{args['source']} ({from_region}) to {args['target']} ({args['region']}): {plan.objects} objects, "
        f"{format_size(plan.size)}; {existing} already copied; to be copied: {plan.missing} objects, "
        f"{format_size(plan.missing_size)}, {plan.requests} requests, about {price:.2f} USD"
    )


def refuse_conflicts(plan: Survey, args: dict[str, Any]) -> None:
    """Raise MoveError if the objects should not be copied."""
    if plan.differing and not args["replace"]:
        raise MoveError(
            f"{args['target']} has {len(plan.differing)} objects that differ from those in {args['source']}: "
            f"{format_list(plan.differing, MAX_KEYS)}. Either bucket may have been changed. Check which objects are "
            "right; replace=true overwrites those in the target"
        )
    if plan.archived:
        raise MoveError(
            f"{args['source']} has archived objects, which cannot be read ({len(plan.archived)} in total): "
            f"{format_list(plan.archived, MAX_KEYS)}. Restore them first (aws s3api restore-object)"
        )


class BucketMove:
    """One move, from the first query to the final comparison."""

    def __init__(self, args: dict[str, Any]) -> None:
        self.args = args
        self.bucket = args["source"]  # the bucket that errors refer to

    def client(self, region: str) -> Any:
        """Return a client for a region."""
        names = ("access_key_id", "secret_access_key", "session_token")
        credentials = {name: self.args[name] for name in names}
        return make_client(
            **credentials, region=region, endpoint_url=self.args["endpoint_url"], workers=self.args["workers"]
        )

    def find_target_region(self, client: Any) -> str:
        """Return the target's region, or an empty string if the target does not exist yet."""
        self.bucket = self.args["target"]
        try:
            return bucket_region(client, self.args["target"])
        except Exception as error:
            if error_code(error) in ("404", "NoSuchBucket"):
                return ""
            raise

    def create_target(self, client: Any) -> None:
        """Create the target."""
        region = self.args["region"]
        location = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        client.create_bucket(Bucket=self.args["target"], **location)

    def run(self, check: bool) -> dict[str, Any]:
        """Compare the buckets, copy the objects, compare again and return the result.

        Raise MoveError and boto3's errors.
        """
        args, display = self.args, Display()
        if args["source"] == args["target"]:
            raise MoveError(f"source and target are both {args['source']}. Choose another name for the target")
        from_region = bucket_region(self.client("us-east-1"), args["source"])
        writer = self.client(args["region"])
        target_region = self.find_target_region(writer)
        if target_region and target_region != args["region"]:
            raise MoveError(
                f"bucket {args['target']} already exists in {target_region}, not in {args['region']}. "
                "Correct the region, or choose another name for the target"
            )
        self.bucket = args["source"]
        route = Route(args["source"], args["target"], self.client(from_region), writer)
        initial = compare_buckets(route, bool(target_region))
        summary = describe_plan(initial, args, from_region, from_region == args["region"])
        display.display(summary)
        result = {
            "changed": bool(initial.missing) or not target_region,
            "created": not target_region,
            "objects": initial.objects,
            "bytes": initial.size,
            "copied": initial.missing,
            "copied_bytes": initial.missing_size,
            "requests": initial.requests,
            "price": round(
                initial.price(args["price_per_gb"] * (from_region != args["region"]), args["price_per_1000_requests"]),
                4,
            ),
            "msg": summary,
        }
        refuse_conflicts(initial, args)
        if check:
            return result
        if not target_region:
            self.bucket = args["target"]
            self.create_target(writer)
            self.bucket = args["source"]
        if initial.missing:
            self.copy(route, initial)
        final = compare_buckets(route, True)
        if final.missing or final.objects != initial.objects or final.size != initial.size:
            keys = f": {format_list(final.differing, MAX_KEYS)}" if final.differing else ""
            raise MoveError(
                f"after copying, {final.missing} objects in {args['target']} are missing or differ from those in "
                f"{args['source']}{keys} (before: {initial.objects} objects, {format_size(initial.size)}; now: "
                f"{final.objects} objects, {format_size(final.size)}). Stop the programs that are writing there, and "
                "run this again"
            )
        by_size = f" ({final.by_size} encrypted objects were compared by size only)" if final.by_size else ""
        extra = f"; the target has {final.extra} additional objects" if final.extra else ""
        display.display(
            f"{args['target']} contains all {final.objects} objects ({format_size(final.size)}) from "
            f"{args['source']}: the object count, sizes and checksums match{by_size}{extra}. {args['source']} was "
            "not changed"
        )
        return {
            **result,
            "verified": final.objects,
            "verified_by_size": final.by_size,
            "extra": final.extra,
        }

    def copy(self, route: Route, plan: Survey) -> None:
        """Copy the planned objects, and show the progress."""
        display, progress = Display(), MoveProgress()
        started = last_shown = time.monotonic()

        def tick() -> None:
            nonlocal last_shown
            now = time.monotonic()
            if now - last_shown < self.args["show_every"]:
                return
            last_shown = now
            speed = progress.size / (now - started)
            remaining = format_duration((plan.missing_size - progress.size) / speed) if speed else "?"
            display.display(
                f"copied {progress.objects} of {plan.missing} objects, {format_size(progress.size)} of "
                f"{format_size(plan.missing_size)}, {format_size(speed)}/s, {remaining} left"
            )

        copy_missing(route, self.args["workers"], progress, tick)


def describe_missing(args: Mapping[str, Any]) -> str:
    """Return a message that names the missing arguments, with a complete command."""
    descriptions = " and ".join(description for name, (description, _value) in EXAMPLE_VALUES.items() if not args[name])
    options = "".join(f" -e {name}={args[name] or value}" for name, (_description, value) in EXAMPLE_VALUES.items())
    return adapt_commands(f"name {descriptions}: ansible-playbook bucket_move.yml{options}")


class ActionModule(ActionBase):
    """Action plugin that runs on the controller and uses no node."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Move the bucket; return the actions taken."""
        super().run(tmp, task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if not all(args[name] for name in EXAMPLE_VALUES):
            return {"failed": True, "msg": describe_missing(args)}
        move = BucketMove(args)
        try:
            from boto3.exceptions import Boto3Error
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError:
            message = "the Python that runs ansible-playbook does not have boto3. Install it: "
            return {"failed": True, "msg": f"{message}{sys.executable} -m pip install boto3"}
        try:
            return move.run(self._task.check_mode)
        except MoveError as error:
            return {"failed": True, "msg": str(error)}
        except (Boto3Error, BotoCoreError, ClientError) as error:
            return {"failed": True, "msg": explain(error, move.bucket)}
