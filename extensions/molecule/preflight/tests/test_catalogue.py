"""Each real fault on one of four hosts is reported by preflight on that host, without other findings."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import drive
from tests.support.cluster import Cluster

GPU_HEADER = (
    "index, uuid, name, driver_version, memory.total [MiB], memory.used [MiB], compute_mode, "
    "ecc.errors.uncorrected.volatile.total, retired_pages.pending"
)
FUSE = r"""
import ctypes, os, sys, time
mode, target = sys.argv[1:]
os.makedirs(target, exist_ok=True)
device = os.open("/dev/fuse", os.O_RDWR)
options = "fd=%d,rootmode=40000,user_id=0,group_id=0%s" % (device, "" if mode == "private" else ",allow_other")
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"bucket", target.encode(), b"fuse.s3fs", 0, options.encode()):
    sys.exit(os.strerror(ctypes.get_errno()))
if mode != "stale":
    open("/run/fuse-fault", "w").close()
    time.sleep(1000)  # holds the file system, and answers nothing
"""


def preflight(cluster: Cluster, tmp_path: Path, **extra: Any) -> tuple[drive.Play, list[tuple[str, str, list[str]]]]:
    """Run the playbook; return it and its findings: severity, id, nodes."""
    target = tmp_path / "findings.json"
    play = drive.run("preflight.yml", cluster.lab.inventory, preflight_json=str(target), **extra)
    assert target.exists(), play.output
    result = json.loads(target.read_text())["findings"]
    for finding in result:
        assert finding["problem"] and finding["requirement"] and finding["remedy"], finding
        assert finding["id"] in play.output, play.output
    return play, [(finding["severity"], finding["id"], finding["nodes"]) for finding in result]


def test_healthy_hosts_have_no_finding(cluster: Cluster, tmp_path: Path) -> None:
    play, result = preflight(cluster, tmp_path)
    assert (play.rc, result) == (0, []), play.output
    assert "preflight on 4 nodes: no errors, no warnings" in play.output


Injector = Callable[[Cluster], None]


def shell(name: str, make: str, undo: str) -> Injector:
    """Return an injector that runs a script on one host; {node1} is the address of node1."""

    def inject(cluster: Cluster) -> None:
        addresses = {item: cluster.address(item) for item in cluster.names}
        cluster.fault(name, make.format(**addresses), undo.format(**addresses))

    return inject


def hosts(name: str, script: str) -> Injector:
    """Return an injector that changes /etc/hosts with sed."""
    return shell(
        name,
        f"cp /etc/hosts /etc/hosts.right; sed -i {shlex.quote(script)} /etc/hosts",
        "cp /etc/hosts.right /etc/hosts",
    )


def nft(name: str, rules: str) -> Injector:
    """Return an injector for a packet filter between a host and its peers, which do not include the controller."""

    def inject(cluster: Cluster) -> None:
        peers = ", ".join(cluster.address(item) for item in cluster.names if item != name)
        text = f"table inet fault {{\n{rules.replace('PEERS', '{ ' + peers + ' }')}\n}}"
        cluster.fault(name, f"nft -f - <<'END'\n{text}\nEND", "nft delete table inet fault")

    return inject


def login_variable(name: str, line: str) -> Injector:
    """Return an injector for a line of /etc/environment, which ends open sessions because only new logins read it."""

    def inject(cluster: Cluster) -> None:
        cluster.fault(name, f"echo {shlex.quote(line)} >> /etc/environment", "truncate -s 0 /etc/environment")
        cluster.undo.insert(-1, lambda: cluster.log_in_anew(name))
        cluster.log_in_anew(name)

    return inject


def fuse(name: str, mode: str) -> Injector:
    """Return an injector for a FUSE file system at /mnt/data that is dead, hangs, or is private to one user."""
    start = (
        "python3 /root/fuse.py" if mode == "stale" else "systemd-run --quiet --unit=fuse-fault python3 /root/fuse.py"
    )
    wait = "" if mode == "stale" else "; for i in $(seq 100); do test -e /run/fuse-fault && break; sleep 0.1; done"
    script = f"cat > /root/fuse.py <<'END'\n{FUSE}\nEND\n{start} {mode} /mnt/data{wait}; grep -q /mnt/data /proc/mounts"
    undo = "systemctl stop fuse-fault 2>/dev/null; umount -l /mnt/data; rm -f /run/fuse-fault"

    def inject(cluster: Cluster) -> None:
        cluster.fault(name, script, undo)

    return inject


def systemd_limit(name: str, setting: str) -> Injector:
    path = "/etc/systemd/system.conf.d/fault.conf"
    return shell(
        name,
        f"mkdir -p /etc/systemd/system.conf.d; printf '[Manager]\\n{setting}\\n' > {path}; systemctl daemon-reexec",
        f"rm {path}; systemctl daemon-reexec",
    )


PYTHON = {"launch_python": "/opt/job/bin/python"}
"""The interpreter that conftest.py creates on each host, with its own packages."""


def version(name: str, package: str, right: str, wrong: str) -> Injector:
    installed, mismatched = f"/opt/site/{package}-{right}.dist-info", f"/opt/site/{package}-{wrong}.dist-info"
    return shell(name, f"mv {installed} {mismatched}", f"mv {mismatched} {installed}")


SILENT = (
    "systemd-run --quiet --unit=silent python3 -c"
    " \"import socket, time; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('127.0.0.53', 53)); time.sleep(1000)\""
    "; for i in $(seq 100); do ss -Hlun | grep -q 127.0.0.53:53 && break; sleep 0.1; done"
)
"""A name server that never replies."""
SQUATTER = """
systemd-run --quiet --collect --unit=squatter --uid={user} --property=Restart=on-failure --property=RestartSec=1 \\
  --property=StartLimitIntervalSec=0 python3 -m http.server 29500 --bind {node1}
holds() {{ ss -Hltnp "sport = :29500" | grep -q "pid=$(systemctl show --property=MainPID --value squatter),"; }}
for i in $(seq 600); do holds && exit; sleep 0.1; done
exit 1
"""
"""Occupies the rendezvous port, as soon as an earlier preflight that still waits for a peer releases it."""
NEW_FROM_PEERS = "chain in {{ type filter hook input priority 0; ip saddr PEERS tcp dport {} {}; }}"


def move(name: str, path: str) -> Injector:
    return shell(name, f"mv {path} {path}.away", f"mv {path}.away {path}")


NODE1, NODE2, NODE3, NODE4 = (["node1"], ["node2"], ["node3"], ["node4"])
SCRIPT = {"launch_script": "/opt/job/train.py"}


# Unrelated faults are injected together on different hosts: each must have its own finding.
@pytest.mark.parametrize(
    ("faults", "expected", "extra"),
    [
        # --- names
        pytest.param(
            [hosts("node2", "1i 127.0.1.1 node2")], [("error", "own-name-loopback", NODE2)], {}, id="loopback"
        ),
        # two rows of the table measured with glibc: last in the file, and on the line with localhost
        pytest.param(
            [
                hosts("node2", "$a 127.0.1.1 node2"),
                hosts("node4", "s/^127.0.0.1 localhost/127.0.0.1 localhost node4/"),
            ],
            [("error", "own-name-loopback", NODE2), ("error", "own-name-loopback", NODE4)],
            {},
            id="loopback-elsewhere",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            [hosts("node3", "s/.* node1$/10.255.255.1 node1/")],
            [("error", "name-differs", NODE3)],
            {},
            id="name-differs",
        ),
        pytest.param(
            [hosts("node2", "/ node4$/d"), shell("node3", "hostname node1", "hostname node3")],
            [("error", "duplicate-hostname", ["node1", "node3"]), ("error", "name-unknown", NODE2)],
            {},
            id="unknown-and-duplicate",
        ),
        pytest.param(
            [
                hosts("node2", "/ node4$/d"),
                shell(
                    "node2",
                    "cp /etc/resolv.conf /etc/resolv.right; echo nameserver 127.0.0.53 > /etc/resolv.conf; " + SILENT,
                    "cat /etc/resolv.right > /etc/resolv.conf; systemctl stop silent",
                ),
            ],
            [("warning", "name-unanswered", NODE2)],
            {},
            id="name-unanswered",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            [hosts(name, "s/.* node4$/10.255.255.4 node4/") for name in ("node1", "node2", "node3", "node4")],
            [("error", "name-elsewhere", NODE4)],
            {},
            id="name-elsewhere",
            marks=pytest.mark.thorough,
        ),
        # --- network
        pytest.param(
            [
                shell(
                    "node2",
                    "ip link set eth0 down; ip link set eth0 name veth9; ip link set veth9 up",
                    "ip link set veth9 down; ip link set veth9 name eth0; ip link set eth0 up;"
                    " ip route replace default via $(echo {node2} | sed 's/[0-9]*$/1/')",
                )
            ],
            [("warning", "internal-interface", NODE2)],
            {},
            id="internal-interface",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            [
                shell(
                    "node3",
                    "sysctl -qw net.ipv4.conf.all.arp_ignore=1; ip address add {node2}/32 dev lo",
                    "ip address del {node2}/32 dev lo; sysctl -qw net.ipv4.conf.all.arp_ignore=0",
                )
            ],
            [("error", "duplicate-address", NODE3)],
            {},
            id="duplicate-address",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            [
                shell(
                    "node2",
                    "ip link add fault0 type bridge; ip link set fault0 up; ip route add {node1}/32 dev fault0",
                    "ip link delete fault0",
                )
            ],
            [("error", "wrong-interface", NODE2)],
            {},
            id="wrong-interface",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            [shell("node2", "ip route add unreachable {node1}/32", "ip route delete unreachable {node1}/32")],
            [("error", "no-route", NODE2)],
            {},
            id="no-route",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            [
                shell(
                    "node4",
                    "ip link add fault0 type bridge; ip link set fault0 up;"
                    " ip address add $(echo {node4} | sed 's/[0-9]*$/200/')/24 dev fault0",
                    "ip link delete fault0",
                ),
                shell("node3", "ip link set eth0 mtu 1400", "ip link set eth0 mtu 1500"),
            ],
            [("warning", "mtu-mismatch", NODE3), ("warning", "several-interfaces", NODE4)],
            {},
            id="several-interfaces-and-mtu",
        ),
        pytest.param(
            [
                nft(
                    "node3",
                    "chain in { type filter hook prerouting priority raw; ip saddr PEERS ip length > 1300 drop; }",
                )
            ],
            [("error", "mtu-black-hole", NODE3)],
            {},
            id="mtu-black-hole",
        ),
        pytest.param(
            [nft("node3", NEW_FROM_PEERS.format("1-65535", "drop"))],
            [("error", "peers-blocked", NODE3)],
            {},
            id="tcp-dropped",
        ),
        pytest.param(
            [nft("node3", NEW_FROM_PEERS.format("1-65535 tcp flags syn", "reject with tcp reset"))],
            [("error", "peers-blocked", NODE3)],
            {},
            id="tcp-rejected",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            [
                nft(
                    "node3",
                    "chain out { type filter hook output priority 0; ip daddr PEERS tcp flags syn / syn,ack drop; }",
                )
            ],
            [("error", "peers-blocked", NODE3)],
            {},
            id="tcp-dropped-outward",
            marks=pytest.mark.thorough,
        ),
        # the run's ports are open, as users often configure it, but NCCL's and gloo's ports are not
        pytest.param(
            [nft("node1", NEW_FROM_PEERS.format("{ 1-21, 23-29498, 29501-65535 } tcp flags syn / syn,ack", "drop"))],
            [("error", "peers-blocked", NODE1)],
            {},
            id="ephemeral-ports-blocked",
        ),
        pytest.param(
            [nft("node1", NEW_FROM_PEERS.format("29500", "drop"))],
            [("error", "port-blocked", NODE1)],
            {},
            id="port-blocked",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            [
                shell("node1", SQUATTER.replace("{user}", "muster"), "systemctl stop squatter"),
            ],
            [("error", "port-in-use", NODE1)],
            {},
            id="port-in-use",
            marks=pytest.mark.thorough,
        ),
        # --- what the job imports, its variables and arguments
        pytest.param(
            [
                shell(
                    "node2",
                    "mv /opt/site/library.py /opt/site/library.right;"
                    " echo 'raise ImportError(\"libx.so.1: cannot open shared object file\")' > /opt/site/library.py",
                    "mv /opt/site/library.right /opt/site/library.py",
                ),
                shell("node3", "mkdir -p /opt/cache", "rm -r /opt/cache"),
                shell("node4", "touch /opt/last.pt", "rm /opt/last.pt"),
                *(shell(name, "mkdir -m 777 /opt/cache", "rm -r /opt/cache") for name in ("node1", "node2", "node4")),
            ],
            [
                ("error", "import-fails", NODE2),
                ("error", "job-interface", ["node1", "node2", "node3", "node4"]),
                ("warning", "cache-unwritable", NODE3),
                ("warning", "checkpoint-missing", ["node1", "node2", "node3"]),
            ],
            {
                **PYTHON,
                "launch_script": "/opt/job/with_library.py",
                "launch_args": ["--resume", "/opt/last.pt"],
                "launch_environment": {"GLOO_SOCKET_IFNAME": "eth9", "HF_HOME": "/opt/cache"},
            },
            id="imports-interface-cache-checkpoint",
        ),
        # --- software
        pytest.param(
            [
                shell(
                    "node2",
                    "cd /opt/job/bin; ln -s /usr/bin/python3 real; rm python;"
                    " echo '#!/bin/sh' > python; chmod 755 python;"
                    " echo '/opt/job/bin/real \"$@\" | sed s/3[.][0-9.]*/3.9.1/' >> python",
                    "rm /opt/job/bin/real; ln -sfn /usr/bin/python3 /opt/job/bin/python",
                ),
                version("node3", "torch", "2.7.1", "2.6.0"),
                shell(
                    "node4",
                    "sed -i s/12.8/12.4/ /opt/site/torch/version.py",
                    "sed -i s/12.4/12.8/ /opt/site/torch/version.py",
                ),
                version("node2", "nvidia_nccl_cu12", "2.26.2", "2.21.5"),
                version("node3", "flash_attn", "2.8.3", "2.7.4"),
                version("node4", "deepspeed", "0.19.8", "0.16.0"),
                version("node1", "transformers", "4.51.0", "4.40.0"),
                version("node2", "accelerate", "1.6.0", "1.5.2"),
                version("node3", "lightning", "2.5.1", "2.4.0"),
                version("node4", "numpy", "2.2.6", "1.26.4"),
                version("node1", "nvidia_cudnn_cu12", "9.7.1.26", "9.5.1.17"),
            ],
            [
                ("error", "skew-accelerate", NODE2),
                ("error", "skew-cuda", NODE4),
                ("error", "skew-deepspeed", NODE4),
                ("error", "skew-flash-attn", NODE3),
                ("error", "skew-lightning", NODE3),
                ("error", "skew-nccl", NODE2),
                ("error", "skew-python", NODE2),
                ("error", "skew-torch", NODE3),
                ("error", "skew-transformers", NODE1),
                ("warning", "skew-cudnn", NODE1),
                ("warning", "skew-numpy", NODE4),
            ],
            PYTHON,
            id="versions",
        ),
        pytest.param(
            [
                shell("node3", "echo 'print(2)' > /opt/job/train.py", "echo 'print(1)' > /opt/job/train.py"),
                shell("node4", "chmod 0 /opt/job/train.py", "chmod 644 /opt/job/train.py"),
            ],
            [("error", "script-missing", NODE4), ("error", "skew-script", NODE3)],
            SCRIPT,
            id="scripts",
        ),
        pytest.param(
            [move("node2", "/opt/job/train.py")],
            [("error", "script-missing", NODE2)],
            SCRIPT,
            id="no-script",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            [move("node2", "/opt/job")],
            [("error", "working-directory-missing", NODE2)],
            {"launch_working_directory": "/opt/job", "launch_script": "train.py"},
            id="no-directory",
        ),
        pytest.param(
            [
                shell(
                    "node4",
                    "rm /opt/job/bin/python; printf '#!/bin/sh\\necho broken >&2; exit 1\\n' > /opt/job/bin/python;"
                    " chmod 755 /opt/job/bin/python",
                    "ln -sfn /usr/bin/python3 /opt/job/bin/python",
                ),
                move("node3", "/opt/job/bin/python"),
            ],
            [("error", "interpreter-broken", NODE4), ("error", "interpreter-missing", NODE3)],
            PYTHON,
            id="interpreters",
        ),
        # --- storage, limits, clocks, and leftovers
        pytest.param(
            [
                shell(
                    "node2",
                    "mkdir -p /home/muster/.muster; chown muster: /home/muster/.muster;"
                    " mount -t tmpfs -o size=100m,mode=777 tmpfs /home/muster/.muster",
                    "umount /home/muster/.muster",
                ),
                shell(
                    "node1",
                    "mkdir -p /home/muster/.muster/runs; chown -R muster: /home/muster/.muster;"
                    " chown root: /home/muster/.muster/runs",
                    "chown muster: /home/muster/.muster/runs",
                ),
                shell("node3", "mount -o remount,size=64m /dev/shm", "mount -o remount,size=2g /dev/shm"),
                shell(
                    "node4",
                    "echo '10.255.255.1:/x /mnt/data nfs defaults 0 0' >> /etc/fstab",
                    "sed -i '/mnt.data/d' /etc/fstab",
                ),
                fuse("node1", "hangs"),
                fuse("node2", "stale"),
                fuse("node3", "private"),
                systemd_limit("node3", "DefaultLimitMEMLOCK=64K"),
                systemd_limit("node4", "DefaultLimitNOFILE=256"),
            ],
            [
                ("error", "disk-full", NODE2),
                ("error", "mount-missing", NODE4),
                ("error", "mount-stale", NODE1),
                ("error", "mount-stale", NODE2),
                ("error", "mount-unreadable", NODE3),
                ("error", "runs-directory", NODE1),
                ("warning", "memlock-small", NODE3),
                ("warning", "nofile-small", NODE4),
                ("warning", "shm-small", NODE3),
            ],
            {"preflight_mounts": ["/mnt/data"]},
            id="storage-and-limits",
        ),
        pytest.param(
            [
                login_variable("node2", "MUSTER_CLOCK_SHIFT=-30"),
                login_variable("node3", "MUSTER_CLOCK_SHIFT=7"),
                login_variable("node4", "PET_NNODES=2"),
                login_variable("node1", "NCCL_SOCKET_IFNAME=ens5"),
                shell("node2", "echo export RANK=0 >> /home/muster/.profile", "sed -i /RANK/d /home/muster/.profile"),
            ],
            [
                ("error", "clock-skew", NODE2),
                ("warning", "clock-skew", NODE3),
                ("warning", "environment-left-over", NODE2),
                ("warning", "environment-left-over", NODE4),
                ("warning", "interface-variable", NODE1),
            ],
            {},
            id="clocks-and-left-over",
        ),
        # a node that is not responding is reported as missing, without the consequences
        pytest.param(
            [shell("node3", "systemctl stop ssh", "systemctl start ssh"), lambda cluster: cluster.log_in_anew("node3")],
            [("error", "unreachable", NODE3)],
            {},
            id="unreachable",
        ),
    ],
)
def test_each_problem_is_named_on_its_node(
    cluster: Cluster,
    tmp_path: Path,
    faults: list[Injector],
    expected: list[tuple[str, str, list[str]]],
    extra: dict[str, Any],
) -> None:
    for inject in faults:
        inject(cluster)
    play, result = preflight(cluster, tmp_path, **extra)
    assert sorted(result) == expected, play.output
    severities = [severity for severity, _id, _nodes in result]
    assert severities == sorted(severities)
    assert play.rc == (2 if "error" in severities else 0), play.output


@pytest.mark.parametrize(
    "user", ["muster", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("nobody", "root"))]
)
def test_process_holding_a_port_is_named_for_any_user(cluster: Cluster, tmp_path: Path, user: str) -> None:
    cluster.fault("node1", SQUATTER.format(user=user, node1=cluster.address("node1")), "systemctl stop squatter")
    pid = cluster.sh("node1", "systemctl show --property=MainPID --value squatter").strip()
    play, result = preflight(cluster, tmp_path)
    assert result == [("error", "port-in-use", ["node1"])], play.output
    assert f"is in use by process {pid} (" in " ".join(play.output.split()), play.output


# --- settings of the run ---------------------------------------------------------------------------------------------


def test_wrong_node_address_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    inventory = tmp_path / "wrong.yml"
    address = cluster.address("node2").rpartition(".")[0] + ".99"
    inventory.write_text(f"training: {{hosts: {{node2: {{node_address: {address}}}}}}}\n")
    play, result = preflight(cluster, tmp_path, options=("-i", str(inventory)))
    assert result == [("error", "address-not-here", ["node2"])], play.output


def test_node_without_slots_is_noted_if_no_node_has_a_gpu(cluster: Cluster, tmp_path: Path) -> None:
    inventory = tmp_path / "unsaid.yml"
    inventory.write_text("training: {hosts: {node2: {node_slots: ''}}}\n")
    play, result = preflight(cluster, tmp_path, options=("-i", str(inventory)))
    assert result == [("note", "no-gpu", ["node2"])], play.output


def test_different_kernel_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    """All test hosts have this machine's kernel; setarch makes one of them report version 2.6."""
    wrapper = "printf '#!/bin/sh\\nexec setarch --uname-2.6 /usr/bin/python3 \"$@\"\\n'"
    cluster.fault("node3", f"{wrapper} > /opt/python; chmod 755 /opt/python", "rm /opt/python")
    inventory = tmp_path / "other.yml"
    inventory.write_text("training: {hosts: {node3: {ansible_python_interpreter: /opt/python}}}\n")
    play, result = preflight(cluster, tmp_path, options=("-i", str(inventory)))
    assert result == [("warning", "skew-kernel", ["node3"])], play.output
    assert "2.6." in play.output


def test_unequal_slots_are_reported_for_launcher_that_refuses_them(cluster: Cluster, tmp_path: Path) -> None:
    inventory = tmp_path / "unequal.yml"
    inventory.write_text("training: {hosts: {node2: {node_slots: 3}}}\n")
    play, result = preflight(cluster, tmp_path, options=("-i", str(inventory)), launch_launcher="env")
    assert result == [("error", "launcher", [])], play.output


@pytest.mark.thorough
def test_missing_mount_that_the_job_needs_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    play, result = preflight(cluster, tmp_path, preflight_mounts=["/mnt/data"])
    assert result == [("error", "mount-missing", cluster.names)], play.output


def test_unreadable_mount_matters_only_if_the_job_uses_it(cluster: Cluster, tmp_path: Path) -> None:
    fuse("node3", "private")(cluster)
    play, result = preflight(cluster, tmp_path)
    assert (play.rc, result) == (0, []), play.output
    play, result = preflight(cluster, tmp_path, launch_args=["--data", "/mnt/data/train"])
    assert result == [("error", "mount-unreadable", ["node3"])], play.output


def test_job_on_a_hanging_mount_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    fuse("node2", "hangs")(cluster)
    for name in ("node1", "node3", "node4"):
        cluster.fault(name, "mkdir -p /mnt/data/job; cp /opt/job/train.py /mnt/data/job/", "rm -r /mnt/data")
    play, result = preflight(cluster, tmp_path, launch_working_directory="/mnt/data/job", launch_script="train.py")
    assert result == [("error", "mount-stale", ["node2"])], play.output


def test_missing_torch_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    for name in cluster.names:
        cluster.fault(
            name, "mv /opt/site/torch-2.7.1.dist-info /opt/away", "mv /opt/away /opt/site/torch-2.7.1.dist-info"
        )
    play, result = preflight(cluster, tmp_path, **PYTHON)
    assert result == [("error", "torch-missing", cluster.names)], play.output


# --- ssh -------------------------------------------------------------------------------------------------------------


def test_ssh_problems_between_nodes_are_reported(cluster: Cluster, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    known_hosts = "\n".join(
        f"{name} " + cluster.sh(name, "cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub").strip()
        for name in cluster.names
    )
    for name in cluster.names:
        cluster.fault(
            name,
            f"""cd /home/muster/.ssh; cp authorized_keys before; cat >> authorized_keys <<'END'
{key.with_suffix(".pub").read_text()}
END
cat > id_ed25519 <<'END'
{key.read_text()}
END
cat > known_hosts <<'END'
{known_hosts}
END
chmod 600 id_ed25519; chown muster: id_ed25519 known_hosts""",
            "cd /home/muster/.ssh; cat before > authorized_keys; rm before id_ed25519 known_hosts",
        )
    play, result = preflight(cluster, tmp_path, preflight_ssh=True)
    assert result == [], play.output
    cluster.fault(
        "node4",
        "cd /home/muster/.ssh; cp authorized_keys all; cat before > authorized_keys",
        "rm /home/muster/.ssh/all",
    )
    play, result = preflight(cluster, tmp_path, preflight_ssh=True)
    assert result == [("error", "ssh-between-nodes", ["node4"])], play.output
    cluster.sh("node4", "cd /home/muster/.ssh; cat all > authorized_keys")
    cluster.fault("node2", "sed -i '/^node3 /s/AAAA/AAAB/' /home/muster/.ssh/known_hosts", "true")
    play, result = preflight(cluster, tmp_path, preflight_ssh=True)
    assert result == [("error", "ssh-between-nodes", ["node3", "node2"])], play.output
    assert "verification failed" in play.output


# --- GPUs, from nvidia-smi's output ----------------------------------------------------------------------------------


def gpu(index: int, **values: str) -> str:
    """Return a line in the format of nvidia-smi."""
    fields = {"name": "NVIDIA L40S", "driver": "550.127.05", "used": "1 MiB", "ecc": "0", "pages": "[N/A]", **values}
    return (
        f"{index}, GPU-{index}, {fields['name']}, {fields['driver']}, 46068 MiB, {fields['used']}, Default, "
        f"{fields['ecc']}, {fields['pages']}"
    )


def smi(gpus: list[str], apps: str = "", capability: str = "8.9") -> str:
    """Return a stub of nvidia-smi that prints these GPUs and processes."""
    return f"""case "$1" in
--query-gpu=compute_cap) printf 'compute_cap\\n'; printf '%s\\n' {" ".join([capability] * len(gpus))} ;;
--query-gpu=*) cat <<'END'
{chr(10).join([GPU_HEADER, *gpus])}
END
;;
--query-compute-apps=*) cat <<END
gpu_uuid, pid, process_name, used_gpu_memory [MiB]
{apps}
END
;;
esac"""


def failing_smi(text: str, code: int) -> str:
    """Return a stub of nvidia-smi that prints this text and exits with this code."""
    return f"cat <<'END'\n{text}\nEND\nexit {code}"


TWO = [gpu(0), gpu(1)]
RECORDED = drive.CHECKOUT / "tests" / "unit" / "fixtures" / "nvidia_smi"


def with_gpus(cluster: Cluster, **stubs: str) -> dict[str, Any]:
    """Install a stub with two GPUs on each node, or the stub given for a node; return the variables for preflight."""
    for name in cluster.names:
        script = stubs.get(name, smi(TWO))
        path = "/usr/local/bin/nvidia-smi"
        cluster.fault(name, f"cat > {path} <<'STUB'\n#!/bin/sh\n{script}\nSTUB\nchmod 755 {path}", f"rm {path}")
    return {**PYTHON, "nproc_per_node": 2}


def test_healthy_gpus_have_no_finding(cluster: Cluster, tmp_path: Path) -> None:
    play, result = preflight(cluster, tmp_path, **with_gpus(cluster))
    assert result == [], play.output


@pytest.mark.parametrize(
    ("stubs", "expected"),
    [
        pytest.param(
            {
                "node1": smi([gpu(0)]),
                "node2": smi([*TWO, gpu(2)]),
                "node3": smi([gpu(0), gpu(1, ecc="[Unknown Error]")]),
                "node4": smi([gpu(0), gpu(1, ecc="4", pages="Yes")]),
            },
            [
                ("error", "gpu-broken", NODE3),
                ("error", "gpu-count", NODE1),
                ("warning", "gpu-idle", NODE2),
                ("warning", "gpu-memory-errors", NODE4),
            ],
            id="counts-and-health",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            {
                "node2": smi([gpu(0), gpu(1, used="30000 MiB")]),
                "node3": smi(TWO, "GPU-1, 4711, [Not Found], 3000 MiB"),
                "node4": smi([gpu(0), gpu(1, ecc="[GPU requires reset]")]),
            },
            [("error", "gpu-broken", NODE4), ("error", "gpu-busy", NODE2), ("error", "gpu-busy", NODE3)],
            id="busy",
        ),
        pytest.param(
            {
                "node2": smi([gpu(0, name="NVIDIA A40"), gpu(1, name="NVIDIA A40")]),
                "node3": smi([gpu(0, driver="575.57.08"), gpu(1, driver="575.57.08")]),
                "node4": smi(TWO, capability="6.1"),
            },
            [("error", "torch-no-kernels", NODE4), ("warning", "skew-driver", NODE3), ("warning", "skew-gpu", NODE2)],
            id="skew",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            {
                "node1": failing_smi((RECORDED / "mismatch.txt").read_text(), 18),
                "node2": failing_smi((RECORDED / "no_driver.txt").read_text(), 9),
                "node3": failing_smi((RECORDED / "lost_535.txt").read_text(), 255),
                "node4": "exec sleep 1000",
            },
            [
                ("error", "driver-mismatch", NODE1),
                ("error", "driver-not-loaded", NODE2),
                ("error", "gpu-broken", NODE3),
                ("error", "nvidia-smi-hangs", NODE4),
            ],
            id="drivers",
        ),
    ],
)
def test_each_gpu_problem_is_named_on_its_node(
    cluster: Cluster, tmp_path: Path, stubs: dict[str, str], expected: list[tuple[str, str, list[str]]]
) -> None:
    play, result = preflight(cluster, tmp_path, **with_gpus(cluster, **stubs))
    assert sorted(result) == expected, play.output


@pytest.mark.thorough
def test_driver_too_old_for_torch_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    old = smi([gpu(0, driver="515.105.01"), gpu(1, driver="515.105.01")])
    play, result = preflight(cluster, tmp_path, **with_gpus(cluster, **dict.fromkeys(cluster.names, old)))
    assert result == [("error", "driver-too-old", cluster.names)], play.output


def test_driver_waiting_for_a_reboot_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    extra = with_gpus(cluster)
    cluster.fault(
        "node2",
        "mount -t tmpfs tmpfs /sys/module; mkdir /sys/module/nvidia; echo 550.127.05 > /sys/module/nvidia/version;"
        " printf '#!/bin/sh\\necho 575.57.08\\n' > /usr/local/bin/modinfo; chmod 755 /usr/local/bin/modinfo",
        "umount /sys/module; rm /usr/local/bin/modinfo",
    )
    play, result = preflight(cluster, tmp_path, **extra)
    assert result == [("warning", "driver-pending", ["node2"])], play.output


@pytest.mark.thorough
def test_cpu_build_of_torch_on_gpu_nodes_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    for name in cluster.names:
        cluster.fault(
            name,
            "sed -i \"s/'12.8'/None/\" /opt/site/torch/version.py",
            "sed -i \"s/None/'12.8'/\" /opt/site/torch/version.py",
        )
    play, result = preflight(cluster, tmp_path, **with_gpus(cluster))
    assert result == [("warning", "torch-without-cuda", cluster.names)], play.output


def test_leftover_process_holding_a_gpu_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    """The process is detected by its open device file, although nvidia-smi no longer lists it."""
    extra = with_gpus(cluster)
    cluster.fault(
        "node2",
        "touch /dev/nvidia0; chmod 666 /dev/nvidia0;"
        " systemd-run --quiet --unit=leftover --uid=muster --setenv=MUSTER_RUN_ID=old-run"
        " bash -c 'exec 9</dev/nvidia0; sleep 1000 & wait'",
        "systemctl stop leftover; rm /dev/nvidia0",
    )
    drive.eventually("it holds the GPU", lambda: "nvidia0" in cluster.sh("node2", "ls -l /proc/[0-9]*/fd; true"), 120)
    play, result = preflight(cluster, tmp_path, **extra)
    assert result == [("error", "gpu-busy", ["node2"])], play.output
    assert "run old-run" in play.output
