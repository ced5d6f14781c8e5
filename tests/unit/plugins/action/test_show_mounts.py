"""The mounts of each node as a table."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.action.show_mounts import build_rows, format_free, render


def reply(*mounts: dict[str, Any]) -> dict[str, Any]:
    return {"facts": {"storage": {"mounts": list(mounts)}}}


def mount(state: str = "ok", **more: Any) -> dict[str, Any]:
    return {"point": "/data", "type": "nfs4", "source": "10.0.0.5:/data", "state": state, "error": "", **more}


def test_table_shows_state_free_space_and_source_of_each_mount() -> None:
    replies = {
        "node1": reply(mount(free_bytes=5 * 2**30), mount(point="/bucket", type="mount-s3", source="s3://b/")),
        "node2": reply(mount("hangs", error="no reply within 3 s"), mount("missing", point="/bucket", source="")),
        "node3": reply(),
        "node4": {"msg": "Connection refused", "unreachable": True},
    }
    rows = [row for name, response in replies.items() for row in build_rows(name, response)]
    lines = render(rows).splitlines()
    assert [line.split()[:3] for line in lines[1:6]] == [
        ["node1", "/bucket", "mounted"],
        ["node1", "/data", "mounted"],
        ["node2", "/bucket", "NOT"],
        ["node2", "/data", "HANGS:"],
        ["node3", "-", "no"],
    ]
    assert "5.0 GiB  nfs4 10.0.0.5:/data" in lines[2]
    assert "NO ANSWER: " in lines[6]
    assert lines[-1] == "2 of 4 mounts can be used"


def test_unlimited_and_unknown_space_have_no_number() -> None:
    assert [format_free({"free_bytes": size}) for size in (2**50, 2**40, 2**29, None)] == [
        *("-", "1.0 TiB", "0.5 GiB", "-"),
    ]


def test_names_from_a_node_cannot_control_the_terminal() -> None:
    assert "\x1b" not in render(build_rows("node1", reply(mount(point="/da\x1b[2Jta", source="\x1b]0;x"))))
