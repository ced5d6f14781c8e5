"""The role makes a healthy machine (node1) and one with the faults of rented machines (node2) usable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab
from tests.support import drive
from tests.support.drive import root_shell, user_shell

CONVERGE = str(Path(__file__).parents[1] / "converge.yml")
NODES = ("node1", "node2")

USER_DATA = """#cloud-config
ssh_deletekeys: false
users: []
disable_root: false
preserve_hostname: true
runcmd:
  - sleep 12
  - systemd-run --unit=slow apt-get install --yes /root/slow.deb
  - date +%s > /var/tmp/cloud-init-done
"""
# A package that takes a while to install, as an unattended upgrade does.
SLOW = """
mkdir -p /root/slow/DEBIAN
cd /root/slow/DEBIAN
printf '%s\\n' 'Package: slow' 'Version: 1' 'Architecture: all' 'Maintainer: nobody' 'Description: slow' > control
printf '%s\\n' '#!/bin/sh' 'sleep 8; date +%s > /var/tmp/slow-done' > /root/slow/DEBIAN/postinst
chmod 755 /root/slow/DEBIAN/postinst
dpkg-deb --build /root/slow
"""


@pytest.mark.parametrize("node", NODES)
def test_package_database_is_consistent(lab: Lab, node: str) -> None:
    assert root_shell(lab, node, "dpkg --audit") == ""
    root_shell(lab, node, "apt-get update 2>&1 && apt-get check")
    # reads the file lists of all packages, and reports each unreadable one
    root_shell(lab, node, "dpkg-query --listfiles $(dpkg-query --show --showformat='${binary:Package} ') > /dev/null")


def test_damaged_file_lists_are_repaired(lab: Lab) -> None:
    assert "/usr/bin/seahorse" in root_shell(lab, "node2", "dpkg-query --listfiles seahorse").splitlines()
    assert "/usr/bin/which.debianutils" in root_shell(lab, "node2", "dpkg-query --listfiles debianutils").splitlines()


def test_interrupted_installation_is_finished(lab: Lab) -> None:
    assert root_shell(lab, "node2", "dpkg-query --show --showformat='${db:Status-Status}' halfway") == "installed"


def test_broken_package_source_is_disabled_but_kept(lab: Lab) -> None:
    assert root_shell(lab, "node2", "ls /etc/apt/sources.list.d") == "paperspace.list.disabled"


@pytest.mark.parametrize("node", NODES)
def test_installed_packages_work(lab: Lab, node: str) -> None:
    for command in ("netstat -i", "rsync --version", "git --version", "tmux -V", "curl --version", "tree --version"):
        root_shell(lab, node, command)
    program = "int main() { return 7; }"
    assert root_shell(lab, node, f"cd /tmp && echo '{program}' > t.c && make -s t 2>&1 && (./t; echo $?)") == "7"


@pytest.mark.parametrize("node", NODES)
def test_clock_synchronization_is_enabled(lab: Lab, node: str) -> None:
    assert root_shell(lab, node, "systemctl is-enabled systemd-timesyncd") == "enabled"
    # In a container, systemd does not start it; the test checks the request instead.
    assert (
        root_shell(lab, node, "systemctl show --property=ConditionTimestampMonotonic --value systemd-timesyncd") != "0"
    )


@pytest.mark.parametrize("node", NODES)
def test_limits_apply_to_new_logins_and_services(lab: Lab, node: str) -> None:
    most_files = int(root_shell(lab, node, "ulimit -Hn"))  # the limit of this machine
    most_memory = int(root_shell(lab, node, "ulimit -Hl"))
    assert user_shell(lab, node, "ulimit -Sn; ulimit -Hn").split() == [str(most_files)] * 2
    assert user_shell(lab, node, "ulimit -Sl; ulimit -Hl").split() == [str(most_memory)] * 2
    assert user_shell(lab, node, "sudo sh -c 'ulimit -Sn'") == str(most_files)
    unit = "systemd-run --wait --pipe --quiet --collect sh -c 'ulimit -Sn; ulimit -Sl'"
    assert root_shell(lab, node, unit).split() == [str(most_files), str(most_memory)]


def test_next_run_completes_an_interrupted_one(lab: Lab) -> None:
    """Apply the limits of services when they were written but systemd has not read them."""
    path = "/etc/systemd/system.conf.d/90-muster.conf"
    query = "systemctl show --property=DefaultLimitNOFILE"
    expected = root_shell(lab, "node1", query)
    root_shell(lab, "node1", f"mv {path} /root/kept && systemctl daemon-reexec && cp /root/kept {path}")
    assert root_shell(lab, "node1", query) != expected
    play = drive.run(CONVERGE, lab.inventory, options=("--limit", "node1"))
    assert play.rc == 0, play.output
    assert root_shell(lab, "node1", query) == expected


@pytest.mark.parametrize("node", NODES)
def test_kernel_settings_and_shared_memory_size_are_applied(lab: Lab, node: str) -> None:
    assert root_shell(lab, node, "cat /proc/sys/net/core/somaxconn") == "5000"
    assert root_shell(lab, node, "cat /etc/sysctl.d/90-muster.conf") == "net.core.somaxconn=5000"
    assert (
        root_shell(lab, node, "cat /proc/sys/vm/max_map_count")
        == Path("/proc/sys/vm/max_map_count").read_text().strip()
    )
    total = next(
        line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")
    )
    size = int(root_shell(lab, node, "findmnt --bytes --noheadings --output=SIZE /dev/shm"))
    assert size == pytest.approx(int(total) * 1024 / 2, rel=0.01)
    assert "/dev/shm" in root_shell(lab, node, "cat /etc/fstab")
    root_shell(lab, node, "findmnt --verify --tab-file /etc/fstab")


@pytest.fixture
def first_boot(lab: Lab) -> Iterator[str]:
    """Yield a node on which cloud-init has just started, and that starts a slow package installation."""
    root_shell(lab, "node1", SLOW)
    seed = "/var/lib/cloud/seed/nocloud"
    root_shell(
        lab, "node1", f"mkdir -p {seed} && printf 'instance-id: one\\nlocal-hostname: node1\\n' > {seed}/meta-data"
    )
    root_shell(lab, "node1", f"cat > {seed}/user-data << 'END'\n{USER_DATA}END")
    root_shell(
        lab, "node1", "DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends cloud-init"
    )
    root_shell(
        lab,
        "node1",
        "rm -f /run/cloud-init/disabled; systemctl daemon-reload; systemctl start --no-block cloud-init.target",
    )
    drive.eventually(
        "cloud-init runs",
        lambda: "running" in lab.exec("node1", ["cloud-init", "status"]).stdout,
        timeout=120,
        more=lambda: lab.exec("node1", ["cloud-init", "status", "--long"]).stdout,
    )
    yield "node1"
    units = "cloud-init.target cloud-config.target cloud-init-local cloud-init cloud-config cloud-final slow"
    root_shell(
        lab, "node1", f"systemctl stop {units}; apt-get purge --yes slow hello cloud-init; rm -rf /var/lib/cloud"
    )


def test_waits_for_cloud_init_and_other_package_installations(lab: Lab, first_boot: str) -> None:
    options = ("--limit", first_boot)
    timed_out = drive.run(CONVERGE, lab.inventory, options=options, base_packages_wait=1)
    assert timed_out.rc == 2
    output = " ".join(timed_out.output.split())
    assert f"fatal: [{first_boot}]" in output
    assert "cloud-init has not finished after 1 s (status: running" in output

    play = drive.run(CONVERGE, lab.inventory, options=options, base_packages_extra=["hello"])
    assert play.rc == 0, play.output
    end_times = {name: int(root_shell(lab, first_boot, f"cat /var/tmp/{name}-done")) for name in ("cloud-init", "slow")}
    install_time = int(root_shell(lab, first_boot, "stat --format=%Y /var/lib/dpkg/info/hello.list"))
    assert end_times["cloud-init"] < end_times["slow"] <= install_time
    assert root_shell(lab, first_boot, "hello") == "Hello, world!"


def test_process_holding_the_package_lock_is_named(lab: Lab) -> None:
    lock = "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX"
    root_shell(lab, "node2", f'systemd-run --quiet --unit=holder python3 -c "{lock}); time.sleep(300)"')
    try:
        attempt = ["python3", "-c", f"{lock} | fcntl.LOCK_NB)"]
        drive.eventually("the lock is held", lambda: lab.exec("node2", attempt).returncode != 0, timeout=120)
        play = drive.run(CONVERGE, lab.inventory, options=("--limit", "node2"), base_packages_wait=2)
    finally:
        root_shell(lab, "node2", "systemctl stop holder")
    assert play.rc == 2
    output = " ".join(play.output.split())
    assert "fatal: [node2]" in output and "/var/lib/dpkg/lock-frontend has been held by process " in output
    assert "import fcntl, time" in output and "for more than 2 s" in output
