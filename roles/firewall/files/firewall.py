"""Firewall rules that accept all traffic between a cluster's nodes, tried before they are kept.

    firewall.py try SECONDS   read the wanted rules from standard input; activate them, and roll back after SECONDS
    firewall.py confirm       keep the rules being tried
    firewall.py state         print as JSON the kept rules, and whether they are active, also at boot
    firewall.py rollback      restore the previous rules
    firewall.py apply         activate the kept rules (at boot, and after nftables has loaded its own rules); first roll
    back a try that a boot interrupted

The rules are a JSON object: nodes (addresses), ssh_ports, ssh_from (networks, none: all), open (port, protocol, from),
close (whether to refuse everything else). Standard library only, Python >= 3.8.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator

KEPT = Path("/etc/muster/firewall.json")
STATE = Path("/var/lib/muster_firewall")  # on disk, since a try's changes also survive a boot
TRIED = STATE / "tried.json"  # exists from the start of a try until it is confirmed or rolled back
SAVED = STATE / "ufw.json"  # ufw's files from before the try
UNIT = "muster_firewall.service"
TIMER = "muster_firewall_rollback.timer"
MARK = "muster"
BEGIN, END = "# BEGIN muster", "# END muster"
UFW_FILES = {4: Path("/etc/ufw/before.rules"), 6: Path("/etc/ufw/before6.rules")}
UFW_DEFAULTS = Path("/etc/default/ufw")

Rules = Dict[str, Any]


class Fault(Exception):
    """What was found, what is needed and what to do."""


# --- Rules as text ----------------------------------------------------------------------------------------------------


def digest(rules: Rules) -> str:
    """A short digest of these rules, by which they are found among the active ones."""
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:12]


def by_family(addresses: list[str]) -> dict[int, list[str]]:
    """Addresses or networks, split into IPv4 and IPv6."""
    return {4: [one for one in addresses if ":" not in one], 6: [one for one in addresses if ":" in one]}


def openings(rules: Rules) -> list[dict[str, Any]]:
    """The ports that are open to others than the nodes."""
    ssh = [{"port": port, "protocol": "tcp", "from": rules["ssh_from"]} for port in rules["ssh_ports"]]
    # A single network may be a plain string.
    others = [
        {**one, "from": one["from"].split(",") if isinstance(one["from"], str) else one["from"]}
        for one in rules["open"]
    ]
    return [*ssh, *others]


def nft_set(values: list[Any]) -> str:
    """Values in nft's notation."""
    return "{ " + ", ".join(str(value) for value in values) + " }"


def node_rules(rules: Rules, family: str) -> list[str]:
    """Rules that accept all traffic from the nodes, for a chain of this table family."""
    mark = f'accept comment "{MARK} {digest(rules)}"'
    words = {4: ("ip", ("ip", "inet")), 6: ("ip6", ("ip6", "inet"))}
    return [
        f"{words[version][0]} saddr {nft_set(addresses)} {mark}"
        for version, addresses in by_family(rules["nodes"]).items()
        if addresses and family in words[version][1]
    ]


def own_table(rules: Rules) -> str:
    """Our table, which refuses everything not listed. Without `close` there is none."""
    if not rules["close"]:
        return ""
    lines = [
        "type filter hook input priority filter; policy drop;",
        "ct state established,related accept",
        "iif lo accept",
        *node_rules(rules, "inet"),
        # ICMP and ICMPv6, by number since a small system has no /etc/protocols: errors, path MTU, neighbors, ping.
        "meta l4proto { 1, 58 } accept",
        # DHCP.
        "udp dport { 68, 546 } accept",
    ]
    for opening in openings(rules):
        port = f"{opening['protocol']} dport {opening['port']}"
        sources = by_family(opening["from"])
        if not opening["from"]:
            lines.append(f"{port} accept")
        lines += [f"ip saddr {nft_set(sources[4])} {port} accept"] if sources[4] else []
        lines += [f"ip6 saddr {nft_set(sources[6])} {port} accept"] if sources[6] else []
    body = "\n".join(f"    {line}" for line in lines)
    return f"table inet {MARK} {{\n  chain input {{\n{body}\n  }}\n}}\n"


def iptables_lines(rules: Rules, version: int) -> list[str]:
    """The same rules for ufw, which uses iptables' format."""
    chain = "ufw-before-input" if version == 4 else "ufw6-before-input"
    lines = [f"-A {chain} -s {address} -j ACCEPT" for address in by_family(rules["nodes"])[version]]
    for opening in openings(rules):
        port = f"-p {opening['protocol']} --dport {str(opening['port']).replace('-', ':')} -j ACCEPT"
        sources = by_family(opening["from"])[version]
        lines += [f"-A {chain} -s {source} {port}" for source in sources]
        if not opening["from"]:
            lines.append(f"-A {chain} {port}")
    return lines


def with_block(text: str, lines: list[str]) -> str:
    """A ufw file with our block at the end of its table `filter`; without lines, our block is removed."""
    text = re.sub(rf"^{BEGIN}[^\n]*\n.*?^{END}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    if not lines:
        return text
    block = "\n".join([BEGIN, *lines, END, ""])
    found = re.search(r"^\*filter$.*?(^COMMIT$)", text, flags=re.MULTILINE | re.DOTALL)
    if not found:
        raise Fault("a ufw file has no table `filter` that ends with COMMIT. Needed: before.rules as ufw ships it")
    return text[: found.start(1)] + block + text[found.start(1) :]


# --- What nft says is in force ----------------------------------------------------------------------------------------


def input_chains(ruleset: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Others' chains that all incoming traffic for this machine passes."""
    chains = [entry["chain"] for entry in ruleset if "chain" in entry]
    return [
        chain
        for chain in chains
        if chain.get("hook") == "input" and chain["table"] != MARK and chain["family"] in ("ip", "ip6", "inet")
    ]


def rules_of(ruleset: list[dict[str, Any]], chain: dict[str, Any]) -> list[dict[str, Any]]:
    """The rules of a chain, in order."""
    wanted = (chain["family"], chain["table"], chain["name"])
    rules = [entry["rule"] for entry in ruleset if "rule" in entry]
    return [rule for rule in rules if (rule["family"], rule["table"], rule["chain"]) == wanted]


def is_ours(rule: dict[str, Any]) -> bool:
    """Whether a rule is ours."""
    return str(rule.get("comment", "")).startswith(f"{MARK} ")


def is_of_iptables(chain: dict[str, Any]) -> bool:
    """Whether a chain is managed by iptables, which cannot read rules written there by others."""
    return chain["family"] in ("ip", "ip6") and (chain["table"], chain["name"]) == ("filter", "INPUT")


def refuses(ruleset: list[dict[str, Any]], chain: dict[str, Any]) -> bool:
    """Whether a chain refuses traffic that matches no rule."""
    parts = [part for rule in rules_of(ruleset, chain)[-1:] for part in rule.get("expr", []) if "counter" not in part]
    words = [part["xt"].get("name", "").lower() if "xt" in part else word for part in parts for word in part]
    return chain.get("policy") == "drop" or words in (["drop"], ["reject"])


def transaction(ruleset: list[dict[str, Any]], rules: Rules) -> str:
    """The nft commands that establish the wanted rules; empty if they are already active."""
    commands = []
    for chain in input_chains(ruleset):
        place = f"{chain['family']} {chain['table']} {chain['name']}"
        if is_of_iptables(chain):
            if refuses(ruleset, chain):
                raise Fault(
                    f"the firewall of this node is managed by iptables (table {place}), without ufw. Needed: nftables "
                    "or ufw. Let iptables accept all from the nodes, and set firewall_enabled to false for this host"
                )
            continue
        ours = [rule for rule in rules_of(ruleset, chain) if is_ours(rule)]
        wanted = node_rules(rules, chain["family"])
        if [rule["comment"] for rule in ours] != [f"{MARK} {digest(rules)}"] * len(wanted):
            commands += [f"delete rule {place} handle {rule['handle']}" for rule in ours]
            commands += [f"insert rule {place} {rule}" for rule in wanted]
    table = [entry["rule"] for entry in ruleset if entry.get("rule", {}).get("table") == MARK]
    is_there = any(entry.get("table", {}).get("name") == MARK for entry in ruleset)
    in_force = any(rule.get("comment") == f"{MARK} {digest(rules)}" for rule in table)
    if not in_force if rules["close"] else is_there:
        commands += [f"add table inet {MARK}", f"delete table inet {MARK}", own_table(rules)]
    return "\n".join([*commands, ""]) if commands else ""


# --- Input and output -------------------------------------------------------------------------------------------------


def run(*words: str, stdin: str = "") -> str:
    """Run a command; raise a Fault with its output if it fails."""
    try:
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Fault(f"there is no {words[0]} on this node. Needed: nftables or ufw. Install nftables") from error
    if done.returncode:
        raise Fault(f"`{' '.join(words)}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def write(path: Path, text: str) -> None:
    """Write a file atomically, keeping its permissions, and sync it to disk in case of a power failure."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    if path.exists():
        shutil.copystat(path, new)
    new.replace(path)
    write_names(path.parent)


def write_names(directory: Path) -> None:
    """Sync a directory to disk."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hold the lock that excludes other changing calls of this program."""
    STATE.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (STATE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ruleset_now() -> list[dict[str, Any]]:
    """All active rules."""
    listed: list[dict[str, Any]] = json.loads(run("nft", "--json", "list", "ruleset"))["nftables"]
    return listed


def ufw_is_active() -> bool:
    """Whether ufw manages this machine's firewall."""
    return shutil.which("ufw") is not None and "Status: active" in run("ufw", "status")


def ufw_texts(rules: Rules) -> dict[Path, str]:
    """The desired contents of ufw's files."""
    texts = {
        path: with_block(path.read_text(), iptables_lines(rules, version))
        for version, path in UFW_FILES.items()
        if path.exists()
    }
    defaults = UFW_DEFAULTS.read_text()
    if rules["close"]:
        defaults = re.sub(r"(?m)^DEFAULT_INPUT_POLICY=.*$", 'DEFAULT_INPUT_POLICY="DROP"', defaults)
    return {**texts, UFW_DEFAULTS: defaults}


def differing(texts: dict[Path, str]) -> dict[Path, str]:
    """Those of the texts that differ from the files."""
    return {path: text for path, text in texts.items() if path.read_text() != text}


def write_ufw(texts: dict[Path, str]) -> None:
    """Write ufw's files and reload it."""
    for path, text in texts.items():
        write(path, text)
    run("ufw", "reload")


def put_in_force(rules: Rules) -> None:
    """Activate these rules, with ufw if it is active, else with nftables."""
    if ufw_is_active():
        texts = differing(ufw_texts(rules))
        if texts:
            write_ufw(texts)
    else:
        commands = transaction(ruleset_now(), rules)
        if commands:
            run("nft", "--file", "-", stdin=commands)


def is_in_force(rules: Rules) -> bool:
    """Whether these rules are active."""
    if ufw_is_active():
        return not differing(ufw_texts(rules))
    return not transaction(ruleset_now(), rules)


def kept() -> Rules:
    """The kept rules; without any, rules that change nothing."""
    if KEPT.exists():
        rules: Rules = json.loads(KEPT.read_text())
        return rules
    return {"nodes": [], "ssh_ports": [], "ssh_from": [], "open": [], "close": False}


def try_rules(text: str, seconds: int) -> str:
    """Activate the rules in a text for this many seconds. Returns what was done."""
    wanted: Rules = json.loads(text)
    rollback()  # an earlier unconfirmed try: its changes are not the previous state
    in_force = is_in_force(wanted)  # raises Fault if they cannot be activated, before any change
    if in_force and KEPT.exists() and KEPT.read_text() == text:
        return "unchanged"
    saved = {str(path): path.read_text() for path in (*UFW_FILES.values(), UFW_DEFAULTS) if path.exists()}
    write(SAVED, json.dumps(saved))
    write(TRIED, text)
    subprocess.run(["systemctl", "stop", TIMER], capture_output=True, check=False)
    words = [
        "systemd-run",
        "--collect",
        f"--unit={TIMER}",
        f"--on-active={seconds}",
        "--timer-property=AccuracySec=100ms",
    ]
    run(*words, sys.executable, os.path.abspath(__file__), "rollback")
    run("systemctl", "--quiet", "enable", UNIT)  # rolls back if a boot removes the timer
    try:
        put_in_force(wanted)
    except Fault:
        rollback()
        raise
    return "applied"


def confirm() -> str:
    """Keep the rules being tried."""
    if not TRIED.exists():
        raise Fault("the rules were rolled back before they were confirmed. Increase firewall_rollback_after")
    run("systemctl", "stop", TIMER)
    write(KEPT, TRIED.read_text())
    end_try()
    return "confirmed"


def rollback() -> str:
    """Restore the rules from before a try."""
    if not TRIED.exists():
        return "nothing is tried"
    saved = {Path(path): text for path, text in json.loads(SAVED.read_text()).items()}
    changed = differing({path: text for path, text in saved.items() if path.exists()})
    if changed:
        write_ufw(changed)
    if not ufw_is_active():
        put_in_force(kept())
    end_try()
    return "rolled back"


def end_try() -> None:
    """Record that no try is active."""
    TRIED.unlink()
    write_names(STATE)


def apply() -> str:
    """Activate the kept rules, or those of a try that is still active."""
    if TRIED.exists():
        is_going_on = subprocess.run(["systemctl", "--quiet", "is-active", TIMER], check=False).returncode == 0
        if not is_going_on:
            return rollback()
        put_in_force(json.loads(TRIED.read_text()))
    elif KEPT.exists():
        put_in_force(kept())
    return "applied"


def is_at_boot() -> bool:
    """Whether systemd activates the kept rules at each boot, and has done so at this one."""
    asked = (["systemctl", "--quiet", word, UNIT] for word in ("is-enabled", "is-active"))
    return all(subprocess.run(words, capture_output=True, check=False).returncode == 0 for words in asked)


def state() -> str:
    """The kept rules as text, whether they are active and no others are tried, and whether a boot activates them."""
    is_kept = KEPT.exists()
    in_force = is_kept and not TRIED.exists() and is_in_force(kept())
    return json.dumps({"kept": KEPT.read_text() if is_kept else "", "in_force": in_force, "at_boot": is_at_boot()})


def main(words: list[str]) -> int:
    """Carry out the command in the first word."""
    try:
        with alone():
            if words[:1] == ["try"]:
                print(try_rules(sys.stdin.read(), int(words[1])))
                if is_at_boot():
                    print("at boot")
            else:
                print({"confirm": confirm, "rollback": rollback, "apply": apply, "state": state}[words[0]]())
    except Fault as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
