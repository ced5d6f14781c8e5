"""All nodes have the source tree; if not, each differing file is named."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive
from tests.support.drive import root_shell
from tests.support.recap import unchanged

CHECKOUT = Path(__file__).resolve().parents[4]
CONVERGE = str(Path(__file__).parents[1] / "converge.yml")
SOURCE = CHECKOUT / "build" / "molecule-code" / "project"
PROJECT = "/home/muster/work/project"
NODES = ("node1", "node2", "node3", "node4")
PAIR = NODES[:2]
TWO = ("--limit", ",".join(PAIR))
"""Behavior that does not depend on the number of nodes is tested with two."""
HASHES = (
    "cd {} && find . -name .git -prune -o -name .muster-code.json -prune"
    " -o -type f -printf '%m ' -exec sha256sum {{}} \\; -o -type l -printf '%p -> %l\\n'"
)


@pytest.fixture(autouse=True)
def _converge_reads_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLECULE_PROJECT_DIRECTORY", str(CHECKOUT))


def user(lab: Lab, node: str, command: str) -> str:
    completed = lab.exec(node, ["runuser", "--login", "muster", "-c", command])
    assert completed.returncode == 0, f"{node}: {command}: {completed.stdout}{completed.stderr}"
    return completed.stdout.strip()


def tree(lab: Lab, node: str, directory: str = PROJECT) -> set[str]:
    """Return the files with permissions and hashes, and the links with their targets."""
    return set(root_shell(lab, node, HASHES.format(directory)).splitlines())


def source_tree() -> set[str]:
    result = set()
    for path in SOURCE.rglob("*"):
        name = path.relative_to(SOURCE)
        if name.parts[0] in (".git", "outputs") or "__pycache__" in name.parts:
            continue
        if path.is_symlink():
            result.add(f"./{name} -> {os.readlink(path)}")
        elif path.is_file():
            result.add(f"{path.stat().st_mode & 0o777:o} {hashlib.sha256(path.read_bytes()).hexdigest()}  ./{name}")
    return result


def flat_output(play: drive.Play) -> str:
    return " ".join(play.output.split())


def test_every_node_has_the_source_tree(lab: Lab) -> None:
    expected = source_tree()
    assert len(expected) == 6
    for node in NODES:
        assert tree(lab, node) == expected
        assert root_shell(lab, node, f"find {PROJECT} ! -user muster") == ""


def test_controller_sends_code_only_to_the_first_node(lab: Lab) -> None:
    size = 8 << 20
    (SOURCE / "data" / "big.bin").write_bytes(os.urandom(size))
    controller = lab.nodes[0].address.rpartition(".")[0] + ".1"
    first = lab.nodes[0].address
    rules = "\n".join(f"ip saddr {address} counter" for address in (controller, first))
    table = f"table ip measured {{\nchain c {{\ntype filter hook input priority -300;\n{rules}\n}}\n}}"
    for node in NODES:
        root_shell(lab, node, f"nft '{table}'")
    try:
        play = drive.run(CONVERGE, lab.inventory)
        assert play.rc == 0, play.output
        received = {
            node: re.findall(r"bytes (\d+)", root_shell(lab, node, "nft list table ip measured")) for node in NODES
        }
    finally:
        for node in NODES:
            root_shell(lab, node, "nft delete table ip measured")
        (SOURCE / "data" / "big.bin").unlink()
    assert int(received["node1"][0]) > size
    for node in NODES[1:]:
        from_controller, from_first = map(int, received[node])
        assert from_controller < size / 4 and from_first > size, node
        root_shell(lab, node, f"rm {PROJECT}/data/big.bin")
    root_shell(lab, "node1", f"rm {PROJECT}/data/big.bin")


def test_ignore_existing_keeps_and_reports_differing_files(lab: Lab) -> None:
    user(lab, "node2", f"echo mine > {PROJECT}/train.py")
    play = drive.run(CONVERGE, lab.inventory, options=TWO, code_ignore_existing=True)
    assert play.rc == 2
    assert "train.py: different content on node2" in flat_output(play)
    assert "run.sh" not in flat_output(play)
    assert user(lab, "node2", f"cat {PROJECT}/train.py") == "mine"

    play = drive.run(CONVERGE, lab.inventory, options=TWO)
    assert play.rc == 0, play.output
    assert tree(lab, "node2") == source_tree()


@pytest.mark.thorough  # tests/unit/plugins/module_utils/code/test_copy.py
def test_files_written_by_a_job_stay_on_their_node(lab: Lab) -> None:
    """Each node has its own checkpoint next to the sources, the first node has one more; then the source changes."""
    (SOURCE / "old.py").write_text("old\n")
    three = ("--limit", ",".join(NODES[:3]))
    assert drive.run(CONVERGE, lab.inventory, options=three).rc == 0
    for node in PAIR:
        user(
            lab, node, f"cd {PROJECT} && echo step of {node} > ckpt.pt && mkdir -p outputs && echo 1 > outputs/step.pt"
        )
    user(lab, "node1", f"echo made > {PROJECT}/package/cache.bin")
    (SOURCE / "old.py").unlink()
    play = drive.run(CONVERGE, lab.inventory, options=three)
    assert play.rc == 0, play.output
    command = (
        f"cd {PROJECT} && ls -d ckpt.pt package/cache.bin outputs/step.pt old.py 2> /dev/null; cat ckpt.pt || true"
    )
    remaining = {node: user(lab, node, command).split("\n") for node in NODES[:3]}
    assert remaining["node1"] == ["ckpt.pt", "outputs/step.pt", "package/cache.bin", "step of node1"]
    assert remaining["node2"] == ["ckpt.pt", "outputs/step.pt", "step of node2"]
    assert remaining["node3"] == [""]
    rerun = drive.run(CONVERGE, lab.inventory, options=three)
    assert unchanged(rerun), rerun.output

    play = drive.run(CONVERGE, lab.inventory, options=three, code_delete=True)
    assert play.rc == 0, play.output
    for node in PAIR:
        assert user(lab, node, f"cat {PROJECT}/outputs/step.pt && rm -r {PROJECT}/outputs") == "1"
    for node in NODES:
        assert tree(lab, node) == source_tree()


def test_joining_node_copies_code_from_the_first_node(lab: Lab) -> None:
    root_shell(lab, "node4", f"rm -r {PROJECT}")
    before = tree(lab, "node1")
    play = drive.run(CONVERGE, lab.inventory, options=("--limit", "node4"))
    assert play.rc == 0, play.output
    assert tree(lab, "node4") == before


@pytest.mark.thorough  # molecule/trust runs the role for another user
def test_code_can_be_copied_for_another_user(lab: Lab) -> None:
    play = drive.run(CONVERGE, lab.inventory, options=TWO, code_user="trainer", code_directory="")
    assert play.rc == 0, play.output
    for node in PAIR:
        assert tree(lab, node, "/home/trainer/project") == source_tree()
        assert root_shell(lab, node, "find /home/trainer/project ! -user trainer") == ""


def test_node_that_cannot_log_in_to_the_first_node_is_named(lab: Lab) -> None:
    root_shell(lab, "node2", "mv /home/muster/.ssh/id_ed25519 /home/muster/.ssh/away")
    try:
        play = drive.run(CONVERGE, lab.inventory, options=("--limit", "node2"))
    finally:
        root_shell(lab, "node2", "mv /home/muster/.ssh/away /home/muster/.ssh/id_ed25519")
    assert play.rc == 2
    assert "node2: cannot copy from node1: " in flat_output(play)
    assert "Permission denied" in flat_output(play)


def test_all_nodes_check_out_the_same_commit(lab: Lab) -> None:
    commands = """
        set -e
        rm -rf repository.git seed && git init --quiet --bare --initial-branch=main repository.git
        git init --quiet --initial-branch=main seed && cd seed
        git config user.email nobody@example.com && git config user.name nobody
        echo 1 > train.py && echo 1 > old.py && git add . && git commit --quiet -m one && git tag v1
        echo 2 > train.py && git rm --quiet old.py && git add . && git commit --quiet -m two
        git push --quiet --tags ../repository.git main
        git checkout --quiet -b side && echo 3 > train.py && git commit --quiet -a -m three
        git push --quiet ../repository.git side
    """
    user(lab, "node1", commands)
    describe_clone = "cd clone && git rev-parse HEAD && git status --porcelain && ls"
    repository = "/home/muster/repository.git"
    source: dict[str, Any] = {"code_source": "", "code_repository": repository, "code_directory": "clone"}

    play = drive.run(CONVERGE, lab.inventory, options=TWO, **source, code_version="v1")
    assert play.rc == 0, play.output
    first = {node: user(lab, node, describe_clone) for node in PAIR}
    assert len(set(first.values())) == 1
    assert first["node2"].split()[1:] == ["old.py", "train.py"]

    play = drive.run(CONVERGE, lab.inventory, options=TWO, **source, code_version="main")
    assert play.rc == 0, play.output
    second = {node: user(lab, node, describe_clone) for node in PAIR}
    assert len(set(second.values())) == 1
    assert second["node2"].split()[1:] == ["train.py"]
    assert second["node2"].split()[0] == user(lab, "node1", "git -C repository.git rev-parse main")
    rerun = drive.run(CONVERGE, lab.inventory, options=TWO, **source, code_version="main")
    assert unchanged(rerun), rerun.output

    # a commit that is not on any branch of the first node's clone
    side = user(lab, "node1", "git -C repository.git rev-parse side")
    play = drive.run(CONVERGE, lab.inventory, options=TWO, **source, code_version=side)
    assert play.rc == 0, play.output
    assert {user(lab, node, "git -C clone rev-parse HEAD && cat clone/train.py") for node in PAIR} == {f"{side}\n3"}

    user(lab, "node2", "echo mine >> clone/train.py")
    play = drive.run(CONVERGE, lab.inventory, options=TWO, **source, code_version="main")
    assert play.rc == 2
    assert "node2" in flat_output(play) and (
        "Local modifications" in flat_output(play) or "different content on node2" in flat_output(play)
    )
    for node in PAIR:
        user(lab, node, "rm -rf clone repository.git seed")


@pytest.mark.thorough  # tests/unit/playbooks/test_code_here.py tests this for nodes on this machine
def test_launch_copies_current_code_unless_code_is_as_is(lab: Lab) -> None:
    """The run omits the first node of the group; files written by a job are preserved."""
    nodes = NODES[1:3]
    job: dict[str, Any] = {
        **{"code_source": str(SOURCE), "code_directory": "work/project", "launch_script": "train.py"},
        **{"launch_launcher": "env", "launch_python": "python3", "nodes": ",".join(nodes), "nproc_per_node": 1},
    }
    before = tree(lab, "node1")
    user(lab, "node2", f"echo step of node2 > {PROJECT}/ckpt.pt")
    (SOURCE / "train.py").write_text('print("edited")\n')
    (SOURCE / "new.py").write_text("new\n")
    try:
        play = drive.run("launch.yml", lab.inventory, **job, code="as_is")
        assert play.rc == 0, play.output
        assert re.search(r"^hello$", play.output, re.MULTILINE) and "edited" not in play.output
        assert "not copied because code is as_is" in flat_output(
            play
        ) and "train.py is older on the node" in flat_output(play)

        play = drive.run("launch.yml", lab.inventory, **job)
        assert play.rc == 0, play.output
        assert re.search(r"^edited$", play.output, re.MULTILINE)
        assert "copying the code from" in play.output and "node2, node3: " in play.output
        written = f"{PROJECT}/ckpt.pt"
        assert user(lab, "node2", f"cat {written} && rm {written}") == "step of node2"
        for node in nodes:
            assert tree(lab, node) == source_tree()
        assert tree(lab, "node1") == before, "it is no node of the run"

        rerun = drive.run("launch.yml", lab.inventory, **job)
        assert rerun.rc == 0 and "bringing" not in rerun.output, rerun.output
    finally:
        (SOURCE / "train.py").write_text('print("hello")\n')
        (SOURCE / "new.py").unlink()
        for node in nodes:
            root_shell(lab, node, "rm -rf /home/muster/.muster")


def test_missing_source_and_unknown_user_are_refused(lab: Lab) -> None:
    play = drive.run(CONVERGE, lab.inventory, code_source="/nonexistent/project")
    assert play.rc == 2
    assert "code_source is '/nonexistent/project'" in flat_output(play)
    assert not re.search(r"changed=[1-9]", play.output)

    play = drive.run(CONVERGE, lab.inventory, code_user="nobody-knows")
    assert play.rc == 2
    assert "[node1]: FAILED!" in flat_output(play)
    message = (
        "there is no user nobody-knows. Create the user who runs the jobs, with the same name on all nodes, or set"
    )
    assert message in flat_output(play)
    assert not re.search(r"changed=[1-9]", play.output)
