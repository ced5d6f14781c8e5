# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of launchers, and of scripts that expect another one."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Launchers"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="mpi-slots",
        title="Open MPI counts fewer slots than processes",
        example="There are not enough slots available in the system to satisfy the 2 slots that were requested",
        texts=(r"There are not enough slots available in the system",),
        cause="More processes were requested than the hostfile has slots.",
        remedy="leave nproc_per_node out, or set node_slots in the inventory; do not add -np or --hostfile yourself",
        source="h5py/h5py#2627",
    ),
    CatalogueEntry(
        id="rank-variables-missing",
        title="The script expects a launcher that starts its ranks",
        example="KeyError: 'LOCAL_RANK'",
        texts=(
            r"KeyError: '(?:RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'",
            r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set",
        ),
        cause="launch_launcher: env starts one process per node, without RANK and LOCAL_RANK. Lightning starts the "
        "others itself; most scripts do not.",
        remedy="leave launch_launcher out: torchrun starts one process per GPU and sets these variables",
        source="a run on one H200",
    ),
    CatalogueEntry(
        id="debugger-without-terminal",
        title="A breakpoint was reached",
        example="bdb.BdbQuit",
        texts=(r"\bbdb\.BdbQuit\b",),
        cause="breakpoint() or pdb.set_trace() reads commands from a terminal, and the ranks of a run have none.",
        remedy="remove it and print what you want to see. To debug by hand: ansible-playbook shell.yml -e nodes=NODE "
        "shows how to log in to a node with the job's environment; run the script there with one process (WORLD_SIZE=1 "
        "RANK=0 python -m pdb train.py), or call torch.distributed.breakpoint() there",
        source="torch 2.13.0 on a CPU",
    ),
    CatalogueEntry(
        id="rank-failed",
        title="The launcher reports a failed rank",
        example="torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
        texts=(
            r"ChildFailedError\b",
            r"elastic\.multiprocessing\.api:failed \(exitcode",
            r"multiprocessing/api\.py:\d{1,5}\] failed \(exitcode",
        ),
        cause="A rank on this node failed. Its own output says why.",
        remedy="read the log of the rank named under 'Root Cause': ansible-playbook logs.yml -e rank=N",
        source="Facico/Chinese-Vicuna#113",
        kind="consequence",
    ),
    CatalogueEntry(
        id="mpi-daemon-missing",
        title="Open MPI is not found on another node",
        example="bash: orted: command not found",
        texts=(r"\b(?:orted|prted): (?:command not found|not found|No such file or directory)",),
        cause="mpirun starts its daemon on each node over SSH, and there it is not in the PATH of a "
        "non-interactive login: Open MPI is not installed on that node, or in another directory.",
        remedy="ansible-playbook site.yml --tags open_mpi installs the same Open MPI on all nodes. With your "
        "own, install it at the same path everywhere, and call mpirun by its full path or with "
        "--prefix DIRECTORY. Or do without MPI: leave launch_launcher out, and torchrun starts the "
        "ranks",
        source="kubeflow/mpi-operator#488",
    ),
    CatalogueEntry(
        id="mpi-daemon-failed",
        title="Open MPI cannot start its daemon on another node",
        example="ORTE was unable to reliably start one or more daemons.",
        texts=(
            r"ORTE (?:was unable to reliably start one or more daemons|has lost communication with a remote daemon)",
            r"PRTE (?:was unable to reliably start one or more daemons|has lost communication with a remote daemon)",
        ),
        cause="mpirun logs in to each node over SSH and starts its daemon there. The login failed, the "
        "daemon did not start, or it could not connect back.",
        remedy="the line above the banner says which: a login that is refused, or orted that is not found. "
        "ansible-playbook site.yml --tags ssh_mesh,open_mpi sets up both; ansible-playbook "
        "preflight.yml tests the connections",
        source="PoonLab/covizu#350",
        weak=True,
    ),
    CatalogueEntry(
        id="mpi-as-root",
        title="Open MPI refuses to run as root",
        example="mpirun has detected an attempt to run as root.",
        texts=(r"(?:mpirun|mpiexec|orterun|prterun|prted?|orted) has detected an attempt to run as root",),
        cause="The job runs as root, mostly in a container, and mpirun refuses that unless it is told otherwise.",
        remedy="""-e '{"launch_environment": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}}'"""
        " allows it; or run as another user (launch_user)",
        source="FedML-AI/FedML#456",
    ),
    CatalogueEntry(
        id="ssh-refused",
        title="A node refuses the SSH login of another",
        example="ssh: connect to host node2 port 22: Connection refused",
        texts=(
            r"ssh: connect to host \S{1,255} port \d{1,5}: ",
            r"Host key verification failed",
            r"(?<!git@github\.com: )Permission denied \((?:publickey|password|keyboard-interactive|gssapi)",
            r"was not reachable via ssh",
            r"Command 'ssh [^\n]{1,300} returned non-zero exit status 255",
            r"ssh exited with exit code 255",
        ),
        cause="The launcher (mpirun, deepspeed with pdsh) logs in to every node over SSH, to the first one "
        "as well, without a password. A node does not accept the key, is not known, or does not run "
        "SSH on that port.",
        remedy="ansible-playbook site.yml --tags ssh_mesh gives each node a key that all nodes accept, itself "
        "included. Or do without SSH: leave launch_launcher out, since torchrun needs none and works "
        "with DeepSpeed, too",
        source="NVIDIA/nccl-tests#299",
    ),
    CatalogueEntry(
        id="deepspeed-launcher-missing",
        title="The launcher of DeepSpeed is not installed",
        example="RuntimeError: launcher 'pdsh' not installed.",
        texts=(r"launcher '\w{1,20}' not installed",),
        cause="deepspeed starts the other nodes' processes with pdsh, which the first node lacks.",
        remedy="leave launch_launcher out: torchrun works with DeepSpeed and needs no pdsh. To keep it: "
        """ansible-playbook site.yml --tags base_packages -e '{"base_packages_extra": ["pdsh"]}'""",
        source="deepspeedai/DeepSpeedExamples#150",
    ),
    CatalogueEntry(
        id="deepspeed-no-gpu",
        title="DeepSpeed finds no GPU to start a process on",
        example="RuntimeError: Unable to proceed, no GPU resources available",
        texts=(r"Unable to proceed, no (?:GPU )?resources available",),
        cause="The first node shows no GPU to deepspeed: its driver is not loaded, torch is the CPU-only "
        "build, or the hostfile is empty.",
        remedy="ansible-playbook ping.yml shows the GPUs of each node. On nodes without GPUs leave "
        "launch_launcher out: torchrun starts the processes there as well",
        source="deepspeedai/DeepSpeed#535",
    ),
    CatalogueEntry(
        id="program-missing",
        title="A program or directory does not exist on another node",
        example="bash: /home/me/venv/bin/python: No such file or directory",
        texts=(
            r"ssh exited with exit code 12[67]",
            r"bash: (?:line \d{1,5}: )?(?:cd: )?/[^\n:]{1,255}: No such file or directory",
            r"execvp error on file [^\n]{1,255} \(No such file or directory\)",
        ),
        cause="The launcher starts the same command, in the same directory, on every node, and the Python "
        "environment or the code is missing there, or at another path.",
        remedy="use the same paths on every node: ansible-playbook site.yml --tags code,python_env installs "
        "code and environment alike. With your own, give absolute paths that exist everywhere "
        "(launch_python, launch_working_directory)",
        source="chaos/pdsh#109",
    ),
)
