# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration files of a Slurm cluster.

Configless: only the controller has slurm.conf, gres.conf and cgroup.conf; the others fetch them when slurmd starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._slurm import gpu_resources, health
from ansible_collections.muster.training.plugins.plugin_utils._slurm.cluster import Cluster, SlurmNode

PORT = 6817  # Slurm's default for slurmctld
KILL_WAIT = 60
"""Seconds between SIGTERM and SIGKILL: longer than a supervisor needs to end a run and write its result."""
GROUP_UPDATE_TIME = 5
"""Seconds until new jobs recognize that a user has been added to a group; 600 by default."""
KNOWS_DISABLED_CGROUPS = (23, 0)


def files_of(cluster: Cluster, node: SlurmNode) -> list[dict[str, Any]]:
    """Return the files for a node, in the format of muster.training.user_files."""
    files = [
        file("/etc/default/slurmd", cluster, slurmd_options(cluster, node)),
        file("/etc/systemd/system/slurmd.service.d/50-muster.conf", cluster, slurmd_unit(node)),
        *health.health_files(node, cluster.options),
    ]
    if node is cluster.controller:
        files += [
            file("/etc/slurm/slurm.conf", cluster, slurm_conf(cluster)),
            file("/etc/slurm/gres.conf", cluster, gres_conf(cluster)),
            file("/etc/slurm/cgroup.conf", cluster, cgroup_conf(cluster)),
            file("/etc/systemd/system/slurmctld.service.d/50-muster.conf", cluster, slurmctld_unit(cluster)),
        ]
        if cluster.options.accounting:
            files += accounting_files(cluster)
    return files


def file(path: str, cluster: Cluster, text: str, mode: str = "0644") -> dict[str, Any]:
    """Return a file with this text that is owned by root."""
    return {"path": path, "content": f"# {cluster.options.managed}\n{text}", "mode": mode}


def slurmd_options(cluster: Cluster, node: SlurmNode) -> str:
    """Return the arguments for slurmd: its name in Slurm, regardless of the machine's hostname, and the controller."""
    server = "" if node is cluster.controller else f"--conf-server {cluster.controller.address}:{PORT} "
    return f'SLURMD_OPTIONS="{server}-N {node.name}"\n'


def slurmd_unit(node: SlurmNode) -> str:
    """Return the drop-in for slurmd, which starts it even if its own conditions or a GPU that appears late would
    prevent that.
    """
    nvidia = any(path.startswith("/dev/nvidia") for path in node.gpus.files)
    create_devices = "# creates the device files that slurmd requires\nExecStartPre=-/usr/bin/nvidia-modprobe -u -c=0\n"
    return (
        "[Unit]\n"
        "# Debian 12 skips slurmd without a local slurm.conf.\n"
        "ConditionPathExists=\n"
        "Wants=network-online.target\n"
        "After=munge.service network-online.target remote-fs.target nvidia-persistenced.service\n"
        "StartLimitIntervalSec=0\n"
        "\n"
        "[Service]\n"
        f"{create_devices if nvidia else ''}"
        "# until the controller, or a GPU, is available\n"
        "Restart=on-failure\n"
        "RestartSec=10\n"
    )


def slurmctld_unit(cluster: Cluster) -> str:
    """Return the drop-in for slurmctld."""
    database = " slurmdbd.service" if cluster.options.accounting else ""
    return (
        "[Unit]\n"
        "Wants=network-online.target\n"
        f"After=munge.service network-online.target{database}\n"
        "StartLimitIntervalSec=0\n"
        "\n"
        "[Service]\n"
        "Restart=on-failure\n"
        "RestartSec=10\n"
    )


def settings(cluster: Cluster) -> dict[str, Any]:
    """Return the settings in slurm.conf, by name."""
    controller, options = cluster.controller, cluster.options
    result: dict[str, Any] = {
        "ClusterName": options.cluster_name,
        "SlurmctldHost": f"{controller.hostname}({controller.address})",
        # a job that is preempted may save first
        "SlurmctldParameters": "enable_configless,preempt_send_user_signal",
        "SlurmUser": "slurm",
        "AuthType": "auth/munge",
        "StateSaveLocation": "/var/lib/slurm/slurmctld",
        "SlurmdSpoolDir": "/var/lib/slurm/slurmd",
        "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
        "SlurmdLogFile": "/var/log/slurm/slurmd.log",
        "SlurmctldPidFile": "/run/slurmctld.pid",
        "SlurmdPidFile": "/run/slurmd.pid",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        # By default, a job waits up to three seconds after the start of another, even on idle nodes.
        "SchedulerParameters": ",".join(["batch_sched_delay=0", *health.scheduler_parameters(options)]),
        "ReturnToService": 2,
        "KillOnBadExit": 1,
        "KillWait": KILL_WAIT,
        "SlurmdTimeout": options.node_timeout,
        "MpiDefault": "none",
        # Groups such as docker belong to each node, where their numbers may differ, and are not cached for long.
        "LaunchParameters": "disable_send_gids",
        "GroupUpdateTime": GROUP_UPDATE_TIME,
        # the login shell's limit would break RDMA
        "PropagateResourceLimitsExcept": "MEMLOCK",
        **process_settings(cluster),
        **accounting_settings(cluster),
        **health.health_settings(options),
    }
    # Alloc: the prolog runs on all nodes of a job, before any of its steps. Contain: a cgroup for logins exists.
    flags = ["Alloc"] * health.is_enabled(options) + ["Contain"] * options.adopt_logins
    if flags:
        result["PrologFlags"] = ",".join(flags)
    if any(node.gpus.files for node in cluster.nodes):
        result["GresTypes"] = "gpu"
    return {**result, **options.settings}


def process_settings(cluster: Cluster) -> Mapping[str, str]:
    """Return the settings by which Slurm tracks and limits the processes of a job."""
    if cluster.cgroups:
        return {
            "ProctrackType": "proctrack/cgroup",
            "TaskPlugin": "task/affinity,task/cgroup",
            "JobAcctGatherType": "jobacct_gather/cgroup",
        }
    return {
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/affinity",
        "JobAcctGatherType": "jobacct_gather/none",
    }


def accounting_settings(cluster: Cluster) -> Mapping[str, str]:
    """Return the settings for the records of finished jobs."""
    if not cluster.options.accounting:
        return {"JobCompType": "jobcomp/filetxt", "JobCompLoc": "/var/log/slurm/jobcomp.log"}
    resources = {"AccountingStorageTRES": "gres/gpu"} if any(node.gpus.files for node in cluster.nodes) else {}
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": cluster.controller.address,
        **resources,
    }


def slurm_conf(cluster: Cluster) -> str:
    """Return slurm.conf."""
    lines = [f"{name}={value}" for name, value in settings(cluster).items()]
    lines += [node_line(node) for node in cluster.nodes]
    share = "EXCLUSIVE" if cluster.options.exclusive else "NO"
    lines.append(
        f"PartitionName={cluster.options.partition} Nodes=ALL Default=YES State=UP "
        f"MaxTime={cluster.options.max_time} OverSubscribe={share}"
    )
    return "\n".join(lines) + "\n"


def node_line(node: SlurmNode) -> str:
    """Return a node's line in slurm.conf. Its address is the one in the inventory, so that no name has to be
    resolved.
    """
    cpus = node.cpus
    resources = gpu_resources.format_gres(node)
    return (
        f"NodeName={node.name} NodeAddr={node.address} Sockets={cpus['sockets']} CoresPerSocket={cpus['cores']} "
        f"ThreadsPerCore={cpus['threads']} RealMemory={node.usable_memory}"
        f"{f' Gres={resources}' if resources else ''} State=UNKNOWN"
    )


def gres_conf(cluster: Cluster) -> str:
    """Return gres.conf."""
    return "".join(f"{line}\n" for node in cluster.nodes for line in gpu_resources.format_gres_lines(node))


def cgroup_conf(cluster: Cluster) -> str:
    """Return cgroup.conf."""
    if cluster.cgroups:
        return "CgroupPlugin=autodetect\nConstrainCores=yes\nConstrainDevices=yes\nConstrainRAMSpace=yes\n"
    known = not cluster.release or cluster.release >= KNOWS_DISABLED_CGROUPS
    return f"CgroupPlugin={'disabled' if known else 'cgroup/v1'}\n"


def accounting_files(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the files for the accounting database. slurmdbd logs in to it as its own user, without a password."""
    slurmdbd_conf = (
        "AuthType=auth/munge\n"
        "DbdHost=localhost\n"
        "SlurmUser=slurm\n"
        "LogFile=/var/log/slurm/slurmdbd.log\n"
        "PidFile=/run/slurmdbd.pid\n"
        "StorageType=accounting_storage/mysql\n"
        "StorageHost=localhost\n"
        "StorageUser=slurm\n"
        "StorageLoc=slurm_acct_db\n"
    )
    database = (
        "[mariadbd]\n"
        f"innodb_buffer_pool_size={cluster.options.database_memory}M\n"
        "innodb_log_file_size=64M\n"
        "innodb_lock_wait_timeout=900\n"
    )
    unit = (
        "[Unit]\nWants=network-online.target\nAfter=munge.service mariadb.service network-online.target\n"
        "StartLimitIntervalSec=0\n\n[Service]\nRestart=on-failure\nRestartSec=10\n"
    )
    return [
        {**file("/etc/slurm/slurmdbd.conf", cluster, slurmdbd_conf, "0600"), "user": "slurm"},
        file("/etc/mysql/mariadb.conf.d/60-muster-slurm.cnf", cluster, database),
        file("/etc/systemd/system/slurmdbd.service.d/50-muster.conf", cluster, unit),
    ]
