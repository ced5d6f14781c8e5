# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Format firewall rules for nftables and ufw, and parse those that nft lists."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Dict

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError

MARK = "muster"
BEGIN, END = "# BEGIN muster", "# END muster"

Rules = Dict[str, Any]


def digest(rules: Rules) -> str:
    """Return a short digest of these rules, which identifies them among the active rules."""
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:12]


def split_by_family(addresses: list[str]) -> dict[int, list[str]]:
    """Return addresses or networks by IP version, 4 and 6."""
    return {
        4: [address for address in addresses if ":" not in address],
        6: [address for address in addresses if ":" in address],
    }


def list_openings(rules: Rules) -> list[dict[str, Any]]:
    """Return the ports that are open to machines other than the nodes."""
    ssh = [{"port": port, "protocol": "tcp", "from": rules["ssh_from"]} for port in rules["ssh_ports"]]
    # A single network may be given as a plain string.
    other_openings = [
        {**opening, "from": opening["from"].split(",") if isinstance(opening["from"], str) else opening["from"]}
        for opening in rules["open"]
    ]
    return [*ssh, *other_openings]


def nft_set(values: list[Any]) -> str:
    """Return values as a set in nft's notation."""
    return "{ " + ", ".join(str(value) for value in values) + " }"


def format_node_rules(rules: Rules, family: str) -> list[str]:
    """Return the rules that accept all traffic from the nodes, for a chain in a table of this family."""
    suffix = f'accept comment "{MARK} {digest(rules)}"'
    families = {4: ("ip", ("ip", "inet")), 6: ("ip6", ("ip6", "inet"))}
    return [
        f"{families[version][0]} saddr {nft_set(addresses)} {suffix}"
        for version, addresses in split_by_family(rules["nodes"]).items()
        if addresses and family in families[version][1]
    ]


def format_own_table(rules: Rules) -> str:
    """Return the muster table, which rejects everything not listed; empty without `close`."""
    if not rules["close"]:
        return ""
    lines = [
        "type filter hook input priority filter; policy drop;",
        "ct state established,related accept",
        "iif lo accept",
        *format_node_rules(rules, "inet"),
        # ICMP and ICMPv6, by number because minimal systems lack /etc/protocols: errors, path MTU, neighbors, ping.
        "meta l4proto { 1, 58 } accept",
        # DHCP.
        "udp dport { 68, 546 } accept",
    ]
    for opening in list_openings(rules):
        port = f"{opening['protocol']} dport {opening['port']}"
        sources = split_by_family(opening["from"])
        if not opening["from"]:
            lines.append(f"{port} accept")
        lines += [f"ip saddr {nft_set(sources[4])} {port} accept"] if sources[4] else []
        lines += [f"ip6 saddr {nft_set(sources[6])} {port} accept"] if sources[6] else []
    body = "\n".join(f"    {line}" for line in lines)
    return f"table inet {MARK} {{\n  chain input {{\n{body}\n  }}\n}}\n"


def format_iptables_lines(rules: Rules, version: int) -> list[str]:
    """Return the rules for ufw, in iptables format, to add to those that ufw already has."""
    chain = "ufw-before-input" if version == 4 else "ufw6-before-input"
    lines = [f"-A {chain} -s {address} -j ACCEPT" for address in split_by_family(rules["nodes"])[version]]
    for opening in list_openings(rules):
        port = f"-p {opening['protocol']} --dport {str(opening['port']).replace('-', ':')} -j ACCEPT"
        sources = split_by_family(opening["from"])[version]
        lines += [f"-A {chain} -s {source} {port}" for source in sources]
        if not opening["from"]:
            lines.append(f"-A {chain} {port}")
    return lines


def replace_block(text: str, lines: list[str]) -> str:
    """Return a ufw file with the muster block at the end of its `filter` table; without lines, the block is removed."""
    text = re.sub(rf"^{BEGIN}[^\n]*\n.*?^{END}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    if not lines:
        return text
    block = "\n".join([BEGIN, *lines, END, ""])
    match = re.search(r"^\*filter$.*?(^COMMIT$)", text, flags=re.MULTILINE | re.DOTALL)
    if not match:
        raise StepError(
            "a ufw file has no table `filter` that ends with COMMIT. Restore the before.rules that ufw ships"
        )
    return text[: match.start(1)] + block + text[match.start(1) :]


def foreign_input_chains(ruleset: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the chains of other programs that all incoming traffic for this machine passes through."""
    chains = [entry["chain"] for entry in ruleset if "chain" in entry]
    return [
        chain
        for chain in chains
        if chain.get("hook") == "input" and chain["table"] != MARK and chain["family"] in ("ip", "ip6", "inet")
    ]


def chain_rules(ruleset: list[dict[str, Any]], chain: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rules of a chain, in order."""
    chain_key = (chain["family"], chain["table"], chain["name"])
    rules = [entry["rule"] for entry in ruleset if "rule" in entry]
    return [rule for rule in rules if (rule["family"], rule["table"], rule["chain"]) == chain_key]


def is_own_rule(rule: dict[str, Any]) -> bool:
    """Return whether this program added a rule."""
    return str(rule.get("comment", "")).startswith(f"{MARK} ")


def is_iptables_chain(chain: dict[str, Any]) -> bool:
    """Return whether a chain is managed by iptables, which cannot read rules that other programs add there."""
    return chain["family"] in ("ip", "ip6") and (chain["table"], chain["name"]) == ("filter", "INPUT")


def rejects_unmatched(ruleset: list[dict[str, Any]], chain: dict[str, Any]) -> bool:
    """Return whether a chain drops or rejects traffic that matches no rule."""
    parts = [
        part for rule in chain_rules(ruleset, chain)[-1:] for part in rule.get("expr", []) if "counter" not in part
    ]
    names = [part["xt"].get("name", "").lower() if "xt" in part else name for part in parts for name in part]
    return chain.get("policy") == "drop" or names in (["drop"], ["reject"])


def plan_commands(ruleset: list[dict[str, Any]], rules: Rules) -> str:
    """Return the nft commands that establish the desired rules, or "" if they are active. Raise StepError."""
    commands = []
    for chain in foreign_input_chains(ruleset):
        location = f"{chain['family']} {chain['table']} {chain['name']}"
        if is_iptables_chain(chain):
            if rejects_unmatched(ruleset, chain):
                raise StepError(
                    f"this node's firewall is managed by iptables (chain {location}) and not by ufw, so this role "
                    "cannot change it. Accept all traffic from the other nodes in iptables, and set "
                    "firewall_enabled to false for this host"
                )
            continue
        existing = [rule for rule in chain_rules(ruleset, chain) if is_own_rule(rule)]
        desired = format_node_rules(rules, chain["family"])
        if [rule["comment"] for rule in existing] != [f"{MARK} {digest(rules)}"] * len(desired):
            commands += [f"delete rule {location} handle {rule['handle']}" for rule in existing]
            commands += [f"insert rule {location} {rule}" for rule in desired]
    own_rules = [entry["rule"] for entry in ruleset if entry.get("rule", {}).get("table") == MARK]
    has_table = any(entry.get("table", {}).get("name") == MARK for entry in ruleset)
    in_force = any(rule.get("comment") == f"{MARK} {digest(rules)}" for rule in own_rules)
    if not in_force if rules["close"] else has_table:
        commands += [f"add table inet {MARK}", f"delete table inet {MARK}", format_own_table(rules)]
    return "\n".join([*commands, ""]) if commands else ""
