"""Firewall rules that accept all traffic between a cluster's nodes, tried before they are kept.

    firewall.py try SECONDS   read the desired rules from standard input; activate them, and roll back after SECONDS
    firewall.py confirm       keep the rules on trial
    firewall.py state         print as JSON the kept rules, and whether they are active, also at boot
    firewall.py rollback      restore the previous rules
    firewall.py apply         activate the kept rules (at boot, and after nftables has loaded its own rules); first roll
    back a trial that a reboot interrupted

The rules are a JSON object: nodes (addresses), ssh_ports, ssh_from (networks; empty means all), open (port, protocol,
from), close (whether to reject everything else).
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

KEPT_FILE = Path("/etc/muster/firewall.json")
STATE_DIRECTORY = Path("/var/lib/muster_firewall")  # on disk, since the changes of a trial also survive a reboot
TRIED_FILE = STATE_DIRECTORY / "tried.json"  # exists from the start of a trial until it is confirmed or rolled back
SAVED_FILE = STATE_DIRECTORY / "ufw.json"  # ufw's files from before the trial
BOOT_UNIT = "muster_firewall.service"
ROLLBACK_TIMER = "muster_firewall_rollback.timer"
MARK = "muster"
BEGIN, END = "# BEGIN muster", "# END muster"
UFW_FILES = {4: Path("/etc/ufw/before.rules"), 6: Path("/etc/ufw/before6.rules")}
UFW_DEFAULTS = Path("/etc/default/ufw")

Rules = Dict[str, Any]


class FirewallError(Exception):
    """Rules that cannot be activated; the message says why and what to do."""


# --- Rules as text ----------------------------------------------------------------------------------------------------


def digest(rules: Rules) -> str:
    """Return a short digest of these rules, by which they are recognised among the active ones."""
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:12]


def split_by_family(addresses: list[str]) -> dict[int, list[str]]:
    """Return addresses or networks by IP version, 4 and 6."""
    return {
        4: [address for address in addresses if ":" not in address],
        6: [address for address in addresses if ":" in address],
    }


def list_openings(rules: Rules) -> list[dict[str, Any]]:
    """Return the ports that are open to other machines than the nodes."""
    ssh = [{"port": port, "protocol": "tcp", "from": rules["ssh_from"]} for port in rules["ssh_ports"]]
    # A single network may be a plain string.
    other_openings = [
        {**opening, "from": opening["from"].split(",") if isinstance(opening["from"], str) else opening["from"]}
        for opening in rules["open"]
    ]
    return [*ssh, *other_openings]


def nft_set(values: list[Any]) -> str:
    """Return values as a set in nft's notation."""
    return "{ " + ", ".join(str(value) for value in values) + " }"


def format_node_rules(rules: Rules, family: str) -> list[str]:
    """Return the rules that accept all traffic from the nodes, for a chain of this table family."""
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
        # ICMP and ICMPv6, by number since minimal systems lack /etc/protocols: errors, path MTU, neighbors, ping.
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
    """Return the same rules for ufw, in iptables' format."""
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
    """Return a ufw file with the muster block at the end of its table `filter`; without lines, the block is removed."""
    text = re.sub(rf"^{BEGIN}[^\n]*\n.*?^{END}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    if not lines:
        return text
    block = "\n".join([BEGIN, *lines, END, ""])
    match = re.search(r"^\*filter$.*?(^COMMIT$)", text, flags=re.MULTILINE | re.DOTALL)
    if not match:
        raise FirewallError(
            "a ufw file has no table `filter` that ends with COMMIT. Restore before.rules as ufw ships it"
        )
    return text[: match.start(1)] + block + text[match.start(1) :]


# --- Active rules as listed by nft ------------------------------------------------------------------------------------


def foreign_input_chains(ruleset: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the chains of other programs that all incoming traffic for this machine passes."""
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
    """Return whether a rule was added by this program."""
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
    """Return the nft commands that establish the desired rules, or "" if they are active. Raise FirewallError."""
    commands = []
    for chain in foreign_input_chains(ruleset):
        location = f"{chain['family']} {chain['table']} {chain['name']}"
        if is_iptables_chain(chain):
            if rejects_unmatched(ruleset, chain):
                raise FirewallError(
                    f"the firewall of this node is managed by iptables (table {location}) without ufw. This role "
                    "cannot change it. Accept all traffic from the nodes in iptables, and set firewall_enabled to "
                    "false for this host"
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


# --- Input and output -------------------------------------------------------------------------------------------------


def run(*arguments: str, stdin: str = "") -> str:
    """Return the output of a command. Raise FirewallError with its output if it fails."""
    try:
        completed = subprocess.run(arguments, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise FirewallError(f"{arguments[0]} is not installed on this node. Install nftables or ufw") from error
    if completed.returncode:
        raise FirewallError(f"`{' '.join(arguments)}` failed: {(completed.stderr or completed.stdout).strip()}")
    return completed.stdout


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
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Sync a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def exclusive_lock() -> Iterator[None]:
    """Hold the lock that excludes other changing calls of this program."""
    STATE_DIRECTORY.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (STATE_DIRECTORY / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_ruleset() -> list[dict[str, Any]]:
    """Return all active rules."""
    ruleset: list[dict[str, Any]] = json.loads(run("nft", "--json", "list", "ruleset"))["nftables"]
    return ruleset


def ufw_is_active() -> bool:
    """Return whether ufw manages this machine's firewall."""
    return shutil.which("ufw") is not None and "Status: active" in run("ufw", "status")


def desired_ufw_files(rules: Rules) -> dict[Path, str]:
    """Return the desired contents of ufw's files."""
    texts = {
        path: replace_block(path.read_text(), format_iptables_lines(rules, version))
        for version, path in UFW_FILES.items()
        if path.exists()
    }
    defaults = UFW_DEFAULTS.read_text()
    if rules["close"]:
        defaults = re.sub(r"(?m)^DEFAULT_INPUT_POLICY=.*$", 'DEFAULT_INPUT_POLICY="DROP"', defaults)
    return {**texts, UFW_DEFAULTS: defaults}


def changed_files(texts: dict[Path, str]) -> dict[Path, str]:
    """Return those of the texts that differ from the files."""
    return {path: text for path, text in texts.items() if path.read_text() != text}


def write_ufw(texts: dict[Path, str]) -> None:
    """Write ufw's files and reload it."""
    for path, text in texts.items():
        write(path, text)
    run("ufw", "reload")


def activate(rules: Rules) -> None:
    """Activate these rules, with ufw if it is active, else with nftables."""
    if ufw_is_active():
        texts = changed_files(desired_ufw_files(rules))
        if texts:
            write_ufw(texts)
    else:
        commands = plan_commands(read_ruleset(), rules)
        if commands:
            run("nft", "--file", "-", stdin=commands)


def is_active(rules: Rules) -> bool:
    """Return whether these rules are active."""
    if ufw_is_active():
        return not changed_files(desired_ufw_files(rules))
    return not plan_commands(read_ruleset(), rules)


def read_kept_rules() -> Rules:
    """Return the kept rules, or rules that change nothing if there are none."""
    if KEPT_FILE.exists():
        rules: Rules = json.loads(KEPT_FILE.read_text())
        return rules
    return {"nodes": [], "ssh_ports": [], "ssh_from": [], "open": [], "close": False}


def try_rules(rules_text: str, seconds: int) -> str:
    """Activate the rules in a text for this many seconds; return what was done."""
    desired: Rules = json.loads(rules_text)
    rollback()  # end an earlier unconfirmed trial: its changes are not the previous state
    in_force = is_active(desired)  # raises FirewallError before any change if they cannot be activated
    if in_force and KEPT_FILE.exists() and KEPT_FILE.read_text() == rules_text:
        return "unchanged"
    saved = {str(path): path.read_text() for path in (*UFW_FILES.values(), UFW_DEFAULTS) if path.exists()}
    write(SAVED_FILE, json.dumps(saved))
    write(TRIED_FILE, rules_text)
    subprocess.run(["systemctl", "stop", ROLLBACK_TIMER], capture_output=True, check=False)
    timer_command = [
        "systemd-run",
        "--collect",
        f"--unit={ROLLBACK_TIMER}",
        f"--on-active={seconds}",
        "--timer-property=AccuracySec=100ms",
    ]
    run(*timer_command, sys.executable, os.path.abspath(__file__), "rollback")
    run("systemctl", "--quiet", "enable", BOOT_UNIT)  # rolls back if a reboot removes the timer
    try:
        activate(desired)
    except FirewallError:
        rollback()
        raise
    return "applied"


def confirm() -> str:
    """Keep the rules on trial."""
    if not TRIED_FILE.exists():
        raise FirewallError("the rules were rolled back before they were confirmed. Increase firewall_rollback_after")
    run("systemctl", "stop", ROLLBACK_TIMER)
    write(KEPT_FILE, TRIED_FILE.read_text())
    end_try()
    return "confirmed"


def rollback() -> str:
    """Restore the rules from before a trial."""
    if not TRIED_FILE.exists():
        return "no rules are on trial"
    saved = {Path(path): text for path, text in json.loads(SAVED_FILE.read_text()).items()}
    changed = changed_files({path: text for path, text in saved.items() if path.exists()})
    if changed:
        write_ufw(changed)
    if not ufw_is_active():
        activate(read_kept_rules())
    end_try()
    return "rolled back"


def end_try() -> None:
    """Record that no rules are on trial."""
    TRIED_FILE.unlink()
    sync_directory(STATE_DIRECTORY)


def apply() -> str:
    """Activate the kept rules, or those of a trial that is still active."""
    if TRIED_FILE.exists():
        timer_active = (
            subprocess.run(["systemctl", "--quiet", "is-active", ROLLBACK_TIMER], check=False).returncode == 0
        )
        if not timer_active:
            return rollback()
        activate(json.loads(TRIED_FILE.read_text()))
    elif KEPT_FILE.exists():
        activate(read_kept_rules())
    return "applied"


def is_active_at_boot() -> bool:
    """Return whether systemd activates the kept rules at each boot, and has done so at this one."""
    commands = (["systemctl", "--quiet", word, BOOT_UNIT] for word in ("is-enabled", "is-active"))
    return all(subprocess.run(command, capture_output=True, check=False).returncode == 0 for command in commands)


def state() -> str:
    """Return JSON: the kept rules, whether they are active with none on trial, and whether a boot activates them."""
    has_kept = KEPT_FILE.exists()
    in_force = has_kept and not TRIED_FILE.exists() and is_active(read_kept_rules())
    return json.dumps(
        {"kept": KEPT_FILE.read_text() if has_kept else "", "in_force": in_force, "at_boot": is_active_at_boot()}
    )


def main(arguments: list[str]) -> int:
    """Run the command in the first argument; return the exit status."""
    try:
        with exclusive_lock():
            if arguments[:1] == ["try"]:
                print(try_rules(sys.stdin.read(), int(arguments[1])))
                if is_active_at_boot():
                    print("at boot")
            else:
                print({"confirm": confirm, "rollback": rollback, "apply": apply, "state": state}[arguments[0]]())
    except FirewallError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
