# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module bucket_move: copies a bucket into another region, and shows the progress."""

from __future__ import annotations

import sys
import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import duration
from ansible_collections.muster.training.plugins.plugin_utils._s3.bucket_move import (
    MoveError,
    Progress,
    Route,
    Survey,
    copy_missing,
    in_words,
    some,
    survey,
)
from ansible_collections.muster.training.plugins.plugin_utils._s3.client import (
    answer_code,
    explain,
    make_client,
    region_of,
)

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


def plan_words(found: Survey, args: dict[str, Any], from_region: str, free: bool) -> str:
    """The planned actions, and their cost."""
    price = found.price(0.0 if free else args["price_per_gb"], args["price_per_1000_requests"])
    there = found.objects - found.missing
    return (
        f"{args['source']} ({from_region}) to {args['target']} ({args['region']}): {found.objects} objects, "
        f"{in_words(found.size)}; {there} already there; to be copied: {found.missing} objects, "
        f"{in_words(found.missing_size)}, {found.requests} requests, about {price:.2f} USD"
    )


def refuse(found: Survey, args: dict[str, Any]) -> None:
    """Raise MoveError if the objects should not be copied."""
    if found.differing and not args["replace"]:
        raise MoveError(
            f"{args['target']} has {len(found.differing)} objects that differ from those in {args['source']}: "
            f"{some(found.differing)}. They were changed in one of the two. Check which are right; "
            "replace=true copies those of the source over them"
        )
    if found.frozen:
        raise MoveError(
            f"{len(found.frozen)} objects of {args['source']} are archived and cannot be read: {some(found.frozen)}. "
            "Have S3 restore them first (aws s3api restore-object)"
        )


class Move:
    """One move, from the first query to the final comparison."""

    def __init__(self, args: dict[str, Any]) -> None:
        self.args = args
        self.about = args["source"]  # the bucket that errors refer to

    def client(self, region: str) -> Any:
        """A client in a region."""
        names = ("access_key_id", "secret_access_key", "session_token")
        words = {name: self.args[name] for name in names}
        return make_client(**words, region=region, endpoint_url=self.args["endpoint_url"], workers=self.args["workers"])

    def target_region(self, client: Any) -> str:
        """The target's region, empty if it does not exist yet."""
        self.about = self.args["target"]
        try:
            return region_of(client, self.args["target"])
        except Exception as error:
            if answer_code(error) in ("404", "NoSuchBucket"):
                return ""
            raise

    def create(self, client: Any) -> None:
        """Make the target."""
        region = self.args["region"]
        place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        client.create_bucket(Bucket=self.args["target"], **place)

    def do(self, check: bool) -> dict[str, Any]:
        """Compare, copy, compare again. Raises MoveError and boto3's errors."""
        args, display = self.args, Display()
        if args["source"] == args["target"]:
            raise MoveError(f"source and target are both {args['source']}. Give the target another name")
        from_region = region_of(self.client("us-east-1"), args["source"])
        writer = self.client(args["region"])
        there = self.target_region(writer)
        if there and there != args["region"]:
            raise MoveError(
                f"bucket {args['target']} already exists in {there}, not in {args['region']}. "
                "Correct the region, or give the target another name"
            )
        self.about = args["source"]
        route = Route(args["source"], args["target"], self.client(from_region), writer)
        found = survey(route, bool(there))
        words = plan_words(found, args, from_region, from_region == args["region"])
        display.display(words)
        result = {
            "changed": bool(found.missing) or not there,
            "created": not there,
            "objects": found.objects,
            "bytes": found.size,
            "copied": found.missing,
            "copied_bytes": found.missing_size,
            "requests": found.requests,
            "price": round(
                found.price(args["price_per_gb"] * (from_region != args["region"]), args["price_per_1000_requests"]), 4
            ),
            "msg": words,
        }
        refuse(found, args)
        if check:
            return result
        if not there:
            self.about = args["target"]
            self.create(writer)
            self.about = args["source"]
        if found.missing:
            self.copy(route, found)
        proof = survey(route, True)
        if proof.missing or proof.objects != found.objects or proof.size != found.size:
            raise MoveError(
                f"after copying, {proof.missing} objects of {args['target']} differ from those of {args['source']} "
                f"({some(proof.differing) or 'they are missing'}; {found.objects} objects, {in_words(found.size)} "
                f"before, {proof.objects} objects, {in_words(proof.size)} now). Stop what writes there; run this again"
            )
        by_size = f" ({proof.by_size} encrypted ones by their sizes only)" if proof.by_size else ""
        extra = f"; {proof.extra} more objects are in the target" if proof.extra else ""
        display.display(
            f"{args['target']} holds all {proof.objects} objects, {in_words(proof.size)}, of {args['source']}: "
            f"number, sizes and checksums are the same{by_size}{extra}. {args['source']} was left unchanged"
        )
        return {**result, "verified": proof.objects, "verified_by_size": proof.by_size, "extra": proof.extra}

    def copy(self, route: Route, found: Survey) -> None:
        """Copy, and show the progress."""
        display, done = Display(), Progress()
        started = shown = time.monotonic()

        def tick() -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown < self.args["show_every"]:
                return
            shown = now
            speed = done.size / (now - started)
            left = duration((found.missing_size - done.size) / speed) if speed else "?"
            display.display(
                f"copied {done.objects} of {found.missing} objects, {in_words(done.size)} of "
                f"{in_words(found.missing_size)}, {in_words(speed)}/s, {left} left"
            )

        copy_missing(route, self.args["workers"], done, tick)


class ActionModule(ActionBase):
    """Runs where ansible-playbook runs; no node takes part."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Move the bucket; return what was done."""
        super().run(tmp, task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        missing = [name for name in ("source", "target", "region") if not args[name]]
        if missing:
            return {"failed": True, "msg": f"{' and '.join(missing)} must be given: -e {missing[0]}=..."}
        move = Move(args)
        try:
            from boto3.exceptions import Boto3Error
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError:
            why = "boto3 is missing in the Python of ansible-playbook. Needed: boto3. Install it: "
            return {"failed": True, "msg": f"{why}{sys.executable} -m pip install boto3"}
        try:
            return move.do(self._task.check_mode)
        except MoveError as error:
            return {"failed": True, "msg": str(error)}
        except (Boto3Error, BotoCoreError, ClientError) as error:
            return {"failed": True, "msg": explain(error, move.about)}
