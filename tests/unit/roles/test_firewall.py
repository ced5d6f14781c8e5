"""The rules as text. That nft and ufw take them, and what they do, is tested on test hosts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "roles" / "firewall" / "files" / "firewall.py"
RULES = {
    "nodes": ["10.0.0.10", "10.0.0.11"],
    "ssh_ports": [22, 2222],
    "ssh_from": ["203.0.113.0/24", "2001:db8::/32"],
    "open": [{"port": "6006-6010", "protocol": "tcp", "from": []}],
    "close": True,
}
UFW = """# ufw's own
*filter
:ufw-before-input - [0:0]
-A ufw-before-input -i lo -j ACCEPT
# don't delete the 'COMMIT' line or these rules won't be processed
COMMIT
*nat
COMMIT
"""


@pytest.fixture(scope="module")
def firewall() -> Any:
    spec = importlib.util.spec_from_file_location("firewall", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def chain(**more: Any) -> dict[str, Any]:
    return {"chain": {"family": "inet", "table": "site", "name": "incoming", "hook": "input", "policy": "drop", **more}}


def rule(handle: int, expr: list[dict[str, Any]], comment: str = "", **more: Any) -> dict[str, Any]:
    entry = {"family": "inet", "table": "site", "chain": "incoming", "handle": handle, "expr": expr, **more}
    return {"rule": {**entry, **({"comment": comment} if comment else {})}}


def test_table_refuses_all_but_nodes_ssh_and_what_is_open(firewall: Any) -> None:
    text = firewall.own_table(RULES)
    assert "policy drop;" in text
    assert "ip saddr { 10.0.0.10, 10.0.0.11 } accept" in text
    for port in (22, 2222):
        assert f"ip saddr {{ 203.0.113.0/24 }} tcp dport {port} accept" in text
        assert f"ip6 saddr {{ 2001:db8::/32 }} tcp dport {port} accept" in text
        assert f"    tcp dport {port} accept" not in text
    assert "    tcp dport 6006-6010 accept" in text
    assert firewall.own_table({**RULES, "close": False}) == ""


def test_lines_for_ufw_are_of_one_family(firewall: Any) -> None:
    four, six = (firewall.iptables_lines(RULES, version) for version in (4, 6))
    assert "-A ufw-before-input -s 10.0.0.10 -j ACCEPT" in four
    assert "-A ufw-before-input -s 203.0.113.0/24 -p tcp --dport 22 -j ACCEPT" in four
    assert "-A ufw-before-input -p tcp --dport 6006:6010 -j ACCEPT" in four
    assert not [line for line in four if "2001:db8" in line]
    assert six[0] == "-A ufw6-before-input -s 2001:db8::/32 -p tcp --dport 22 -j ACCEPT"


def test_block_stands_at_the_end_of_the_table_filter(firewall: Any) -> None:
    once = firewall.with_block(UFW, ["-A one", "-A two"])
    assert once.index("-i lo") < once.index("-A one") < once.index("-A two") < once.index("COMMIT\n*nat")
    assert firewall.with_block(once, ["-A one", "-A two"]) == once
    assert firewall.with_block(once, []) == UFW
    with pytest.raises(firewall.Fault, match="no table `filter`"):
        firewall.with_block("*nat\nCOMMIT\n", ["-A one"])


def test_rule_goes_in_front_of_others_chains(firewall: Any) -> None:
    commands = firewall.transaction([chain(), rule(5, [{"accept": None}])], {**RULES, "close": False})
    assert commands.startswith("insert rule inet site incoming ip saddr { 10.0.0.10, 10.0.0.11 } accept")
    assert "handle 5" not in commands


def test_nothing_is_to_be_done_where_the_rules_are_in_force(firewall: Any) -> None:
    rules = {**RULES, "close": False}
    mark = f"muster {firewall.digest(rules)}"
    ruleset = [chain(), rule(7, [], mark)]
    assert firewall.transaction(ruleset, rules) == ""
    assert "delete rule inet site incoming handle 7" in firewall.transaction(ruleset, {**rules, "nodes": ["10.0.0.12"]})
    table = [
        {"table": {"family": "inet", "name": "muster"}},
        rule(3, [], f"muster {firewall.digest(RULES)}", table="muster"),
    ]
    assert firewall.transaction(table, RULES) == ""
    assert "delete table inet muster" in firewall.transaction(table, rules)


def test_without_kept_rules_all_of_ours_go(firewall: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(firewall, "KEPT", tmp_path / "none.json")
    table = [{"table": {"family": "inet", "name": "muster"}}, chain(), rule(7, [], "muster 0123456789ab")]
    commands = firewall.transaction(table, firewall.kept())
    assert "delete rule inet site incoming handle 7" in commands
    assert "delete table inet muster" in commands
    assert "accept" not in commands


@pytest.mark.parametrize(
    ("policy", "expr", "refuses"),
    [
        ("drop", [], True),
        ("accept", [{"counter": {}}, {"xt": {"type": "target", "name": "REJECT"}}], True),
        ("accept", [{"drop": None}], True),
        ("accept", [{"match": {}}, {"drop": None}], False),
        ("accept", [{"jump": {"target": "f2b-sshd"}}], False),
    ],
)
def test_iptables_alone_is_refused_where_it_refuses(firewall: Any, policy: str, expr: list[Any], refuses: bool) -> None:
    place = {"family": "ip", "table": "filter", "name": "INPUT"}
    ruleset = [chain(**place, policy=policy), rule(1, expr, family="ip", table="filter", chain="INPUT")]
    if refuses:
        with pytest.raises(firewall.Fault, match="kept by iptables"):
            firewall.transaction(ruleset, {**RULES, "close": False})
    else:
        assert firewall.transaction(ruleset, {**RULES, "close": False}) == ""
