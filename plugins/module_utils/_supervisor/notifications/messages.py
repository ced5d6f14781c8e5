# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's messages to people, and the format that each service expects. Pure.

A kind of service is a function from a message to a request, with an entry in KINDS. The controller derives the kind
from a URL: HOSTS in plugin_utils/_plan/notify_targets.py.
"""

from __future__ import annotations

import collections
import json

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Callable, Mapping

# What an HTTP request sends: the body in bytes, and headers by name.
Body = collections.namedtuple("Body", "data headers")

# Events that a person may be notified of, by the kind of the run's event that causes them.
EVENTS = {
    "go": "started",
    "hang": "hang",
    "attempt": "attempt",
    "notice": "notice",
    "limit": "limit",
    "gpus": "unhealthy",
    "health": "unhealthy",
    "broken": "unhealthy",
    "slow": "unhealthy",
    "idle": "idle",
}
ENDED = "ended"
MAX_TEXT = 1800  # number of characters; Discord accepts 2000


def message(plan: Mapping[str, Any], event: str, text: str, **fields: Any) -> dict[str, Any]:
    """Return a message about a run. fields: additional values for programs that receive it as JSON."""
    run_id = plan["run_id"]
    title = f"run {run_id}: {event}"
    return {"event": event, "run_id": run_id, "title": title, "text": text[:MAX_TEXT], **fields}


def end_message(plan: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message about a run's end; result: the content of result.json."""
    seconds = max(0.0, result["ended"] - result["started"])
    total = int(seconds)
    duration = f"{total // 3600}:{total // 60 % 60:02d}:{total % 60:02d}"
    nodes = f"{result['nnodes']} node{'' if result['nnodes'] == 1 else 's'}"
    lines = [f"{result['state']} after {duration} on {nodes}, world size {result['world_size']}"]
    if result["state"] != "succeeded":
        error = first_error(result)
        lines += [line for line in dict.fromkeys((result["reason"], error)) if line]
    cost = total_cost(plan, seconds)
    if cost is not None:
        lines.append(f"cost: {cost:.2f} {plan.get('currency', '')}".rstrip())
    lines.append(f"report: ./muster report {plan['run_id']}")
    content = message(plan, ENDED, "\n".join(line[:500] for line in lines), state=result["state"], seconds=seconds)
    return {**content, "title": f"run {plan['run_id']} {result['state']}", "cost": cost}


def lost_message(plan: Mapping[str, Any], reason: str, seconds: float) -> dict[str, Any]:
    """Return the message about a run's end from a node that has lost the node leading it.

    It takes the place of end_message(), which that node cannot send. seconds: since the start of the run on this
    node.
    """
    name = plan["node"]["name"]
    lines = [f"{name} has ended its part of the run, but does not know how the run ended", reason]
    cost = total_cost(plan, seconds)
    if cost is not None:
        lines.append(f"cost so far: {cost:.2f} {plan.get('currency', '')}".rstrip())
    lines.append(f"status: ./muster status {plan['run_id']}")
    content = message(plan, ENDED, "\n".join(line[:500] for line in lines), state="lost", seconds=seconds)
    return {**content, "title": f"run {plan['run_id']} lost", "cost": cost}


def killed_message(plan: Mapping[str, Any], reason: str, seconds: float) -> dict[str, Any]:
    """Return the message about the end of a run whose supervisor was killed, while no other node could report it.

    seconds: since the start of the run.
    """
    total = int(seconds)
    duration = f"{total // 3600}:{total // 60 % 60:02d}:{total % 60:02d}"
    lines = [f"failed after {duration}, world size {plan['world_size']}", reason]
    cost = total_cost(plan, seconds)
    if cost is not None:
        lines.append(f"cost: {cost:.2f} {plan.get('currency', '')}".rstrip())
    lines.append(f"report: ./muster report {plan['run_id']}")
    content = message(plan, ENDED, "\n".join(line[:500] for line in lines), state="failed", seconds=seconds)
    return {**content, "title": f"run {plan['run_id']} failed", "cost": cost}


def first_error(result: Mapping[str, Any]) -> str:
    """Return the error of the rank that failed first on the node that ended the run, or "" if unknown."""
    for node in result["nodes"]:
        if node["name"] != result["first_node"]:
            continue
        ranks = [rank for rank in (node["report"] or {}).get("ranks", []) if rank.get("error")]
        ranks.sort(key=lambda rank: not rank.get("first"))
        if ranks:
            return f"rank {ranks[0]['rank']} on {node['name']}: {ranks[0]['error']}"
    return ""


def total_cost(plan: Mapping[str, Any], seconds: float) -> float | None:
    """Return the cost of all nodes for this time, or None if the price of any node is unknown."""
    prices = [node.get("price_per_hour") for node in plan["nodes"]]
    if not all(isinstance(price, (int, float)) for price in prices):
        return None
    return float(sum(prices)) * seconds / 3600


def format_json(content: Any) -> Body:
    return Body(json.dumps(content).encode(), {"Content-Type": "application/json"})


def format_slack(content: Mapping[str, Any]) -> Body:
    """Return a Slack message; a job's output must not mention people or contain links under another name."""
    text = content["text"].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return format_json({"text": f"*{content['title']}*\n{text}"})


def format_discord(content: Mapping[str, Any]) -> Body:
    """Return a Discord message that mentions nobody."""
    return format_json({"content": f"**{content['title']}**\n{content['text']}", "allowed_mentions": {"parse": []}})


def teams(content: Mapping[str, Any]) -> Body:
    """Return an Adaptive Card, as workflows of Microsoft Teams expect."""
    lines = content["text"].splitlines()
    blocks = [{"type": "TextBlock", "text": content["title"], "weight": "Bolder", "wrap": True}]
    blocks += [{"type": "TextBlock", "text": line, "wrap": True} for line in lines]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": blocks,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return format_json({"type": "message", "attachments": [attachment]})


def format_ntfy(content: Mapping[str, Any]) -> Body:
    """Return an ntfy message; headers are ASCII, as names of runs are."""
    title = content["title"].encode("ascii", "replace").decode()
    return Body(content["text"].encode(), {"Title": title, "Content-Type": "text/plain; charset=utf-8"})


KINDS: dict[str, Callable[[Mapping[str, Any]], Body]] = {
    "slack": format_slack,
    "discord": format_discord,
    "teams": teams,
    "ntfy": format_ntfy,
    "json": format_json,
}
