# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of launchers, and of scripts that expect another one."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Launchers"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="ssh-refused",
        title="A launcher cannot log in to a node by SSH",
        example="host=... was not reachable via ssh. If you are running with a single node please remove ... or "
        "setup passwordless ssh",
        texts=(
            r"was not reachable via ssh",
            r"ssh: connect to host \S{1,255} port \d{1,5}: ",
            r"Permission denied \((?:password|keyboard-interactive|gssapi)",
            r"ssh exited with exit code 255",
            r"(?<!git@github\.com: )(?<!git@gitlab\.com: )Permission denied \(publickey",
            r"Host key verification failed",
        ),
        cause="This launcher starts ranks over SSH, and the first node cannot log in to another node, or to "
        "itself, with a key.",
        remedy="ansible-playbook site.yml --tags ssh_mesh gives the nodes keys for each other and for "
        "themselves; or use torchrun (leave launch_launcher out), which needs no SSH between nodes",
        source="hpcac/2023-APAC-HPC-AI#1",
    ),
    CatalogueEntry(
        id="remote-path-missing",
        title="Another node has Python or the code at another path",
        example="bash: /home/user/env/bin/python: No such file or directory",
        texts=(
            r"bash: line \d{1,4}: cd: [^\n]{1,200}: No such file or directory",
            r"bash: [^\n]{1,200}/python[\d.]{0,5}: (?:bad interpreter: )?No such file or directory",
            r"bad interpreter: No such file or directory",
            r"ssh exited with exit code 127",
            r"execvp error on file [^\n]{1,255} \(No such file or directory\)",
        ),
        cause="The launcher uses the paths of the first node on every node, but another node does not have this"
        " directory or this Python at the same path.",
        remedy="use the same paths on all nodes: ansible-playbook site.yml --tags code,python_env installs both "
        "at the same place on every node; or use torchrun (leave launch_launcher out), which muster "
        "starts on each node with its own paths",
        source="deepspeedai/DeepSpeed#4254",
    ),
    CatalogueEntry(
        id="mpi-daemon-missing",
        title="Open MPI does not start on another node",
        example="bash: orted: command not found",
        texts=(
            r"orted: (?:command not found|not found|No such file or directory)",
            r"prted: (?:command not found|not found|No such file or directory)",
            r"(?:ORTE|PRTE) was unable to reliably start one or more daemons",
            r"An? (?:ORTE|PRTE) daemon has unexpectedly failed after launch",
        ),
        cause="The first node reaches the other one, but Open MPI's daemon does not start there: it is not "
        "installed, is another version, or is not in the PATH of a non-interactive login.",
        remedy="ansible-playbook site.yml --tags open_mpi installs the same Open MPI at the same path on all "
        "nodes. With your own installation: mpirun --prefix DIRECTORY, or set PATH before the line of "
        "~/.bashrc that ends non-interactive shells",
        source="open-mpi/ompi#8870",
    ),
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
            r"mpirun noticed that process rank \d",
            r"MPI_ABORT was invoked on rank \d",
        ),
        cause="A rank on this node failed. Its own output says why.",
        remedy="read the log of the rank named under 'Root Cause': ansible-playbook logs.yml -e rank=N",
        source="Facico/Chinese-Vicuna#113",
        kind="consequence",
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
        id="deepspeed-slot-unknown",
        title="DeepSpeed is told to use a GPU that a host does not have",
        example="ValueError: No slot '1' specified on host 'localhost'",
        texts=(r"No slot '\d{1,4}' specified on host '", r"Hostname '[^'\n]{1,255}' not found in hostfile"),
        cause="CUDA_VISIBLE_DEVICES, --include or --exclude names a GPU or a host that the hostfile, or the first node "
        "alone, does not have.",
        remedy="remove CUDA_VISIBLE_DEVICES and --include; -e nodes=... says which nodes to use, and "
        "-e nproc_per_node=N how many GPUs of each",
        source="01-ai/Yi#392",
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
        id="slurm-cancelled",
        title="Slurm ended the job",
        example="slurmstepd: error: *** JOB 168885 ON node1 CANCELLED AT 2023-08-31T18:04:42 ***",
        texts=(r"slurmstepd: error: \*\*\* (?:JOB|STEP) \S{1,60} ON \S{1,255} CANCELLED AT",),
        cause="Slurm stopped the processes: at the job's time limit (DUE TO TIME LIMIT), for a job of higher "
        "priority (PREEMPTION), because somebody cancelled it, or because another task of it failed.",
        remedy="`sacct -j JOB -o State,Elapsed,Timelimit,ExitCode` says which. For the time limit, raise "
        "#SBATCH --time or resume from the last checkpoint; if a task failed, its own log says why",
        source="Lightning-AI/torchmetrics#2300",
        kind="consequence",
    ),
    CatalogueEntry(
        id="program-not-found",
        title="The launcher is not installed in the job's environment",
        example="bash: torchrun: command not found",
        texts=(
            r"torchrun: (?:command )?not found",
            r"accelerate: (?:command )?not found",
            r"deepspeed: (?:command )?not found",
            r"python3?: (?:command )?not found",
            r"exec: \"[^\"\n]{1,200}\": executable file not found in \$PATH",
        ),
        cause="The command is not in the PATH of the job on that node: its Python environment is not "
        "activated, torch is not installed in it, or the image has neither.",
        remedy="let muster install the environment on all nodes (ansible-playbook site.yml --tags "
        "python_env,pytorch), or name your own: launch_python=/path/to/env/bin/python. In a script of "
        "your own use python -m torch.distributed.run instead of torchrun",
        source="AndyJZhao/GLEM#11",
    ),
    CatalogueEntry(
        id="session-closed",
        title="The session that started torchrun was closed",
        example="torch.distributed.elastic.multiprocessing.api.SignalException: Process 8665 got signal: 1",
        texts=(r"SignalException: Process \d{1,10} got signal: 1\b(?!\d)",),
        cause="torchrun got SIGHUP: the terminal or SSH connection in which it was started has ended. nohup "
        "does not protect it, since torchrun handles the signal itself.",
        remedy="launch it with ansible-playbook launch.yml: muster's runs go on without a session; or start "
        "it inside tmux",
        source="zai-org/ChatGLM2-6B#238",
    ),
    CatalogueEntry(
        id="pdsh-without-ssh",
        title="pdsh uses rsh instead of SSH",
        example="pdsh@node1: node2: rcmd: socket: Permission denied",
        texts=(
            r"rcmd: (?:socket: Permission denied|poll: protocol failure)",
            r"xpoll: protocol failure in circuit setup",
        ),
        cause="pdsh, with which DeepSpeed starts the ranks, logs in by rsh as a default, which only root may use.",
        remedy="""-e '{"launch_environment": {"PDSH_RCMD_TYPE": "ssh"}}'; or leave launch_launcher out: """
        "torchrun starts the ranks without pdsh",
        source="chaos/pdsh#127",
    ),
    CatalogueEntry(
        id="mpi-network",
        title="Open MPI cannot connect between two nodes",
        example="A process or daemon was unable to complete a TCP connection",
        texts=(
            r"process or daemon was unable to complete a TCP connection",
            r"Open MPI failed to TCP connect to a peer MPI process",
            r"ORTE does not know how to route a message to the specified daemon",
        ),
        cause="A port between the nodes is closed, or Open MPI chose an interface that does not lead to the "
        "other node, such as docker0 or a second network.",
        remedy="choose the network by its range: "
        """-e '{"launch_environment": {"OMPI_MCA_btl_tcp_if_include": "10.0.0.0/24", """
        '"OMPI_MCA_oob_tcp_if_include": "10.0.0.0/24"}}\'; ansible-playbook preflight.yml tests the '
        "connections",
        source="open-mpi/ompi#4963",
        weak=True,
    ),
    CatalogueEntry(
        id="lightning-slurm-tasks",
        title="Lightning and Slurm disagree about the number of processes",
        example="You set `--ntasks=8` in your SLURM bash script, but this variable is not supported. HINT: Use "
        "`--ntasks-per-node=8` instead.",
        texts=(
            r"in your SLURM bash script, but this variable is not supported",
            r"number of (?:tasks per node|nodes) configured in SLURM [^\n]{1,60} does not match",
        ),
        cause="Lightning takes the number of processes from Slurm's variables, and they differ from "
        "Trainer(devices=..., num_nodes=...).",
        remedy="#SBATCH --nodes must be num_nodes, and --ntasks-per-node the number of devices, without "
        "--ntasks; or launch with torchrun, which needs --ntasks-per-node=1",
        source="Lightning-AI/pytorch-lightning#15011",
    ),
)
