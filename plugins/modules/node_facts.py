# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: node_facts
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read the facts of a node for a launch or preflight
description:
  - Reads in one call, without changing the node, the facts that M(muster.training.launch_plan) and
    M(muster.training.check_cluster) evaluate, such as addresses and routes, names, GPUs and drivers, versions of the
    job's packages, mounts and space, limits, and test connections to the other nodes.
  - Needs only Python 3.8 or newer on the node. Calls that may hang, such as nvidia-smi or access to a mount whose
    server is unavailable, time out, which is reported as a fact.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
  - muster.training._runs
options:
  address:
    description: The node's address, at which the other nodes reach it. If empty, facts that depend on it are not read.
    type: str
    default: ""
  peers:
    description: Addresses of all nodes by inventory name. May include this node.
    type: dict
    default: {}
  ports:
    description: TCP ports that a run will listen on.
    type: list
    elements: int
    default: []
  interpreter:
    description:
      - Name or path of the job's Python interpreter. Of several separated by colons, the first that exists is used. If
        empty, none is examined.
    type: str
    default: ""
  script:
    description:
      - Path of the job's script. A relative path is resolved against O(working_directory). If empty, none is examined.
    type: str
    default: ""
  args:
    description:
      - Arguments of the job, as in O(muster.training.launch_plan#module:args). The part V(software) reads the DeepSpeed
        configuration that they refer to.
    type: raw
    default: []
  working_directory:
    description: Directory in which the job will start. If empty, defaults to the user's home directory.
    type: str
    default: ""
  run_id:
    description: Name of the run to start, to check whether it is taken. If empty, this is not checked.
    type: str
    default: ""
  user:
    description: User who will run the job. If empty, defaults to the login user.
  mounts:
    description: Directories that must be mounted, to check in addition to those in C(/etc/fstab).
    type: list
    elements: str
    default: []
  checkpoints:
    description:
      - Directory in which the job saves its checkpoints. If empty, O(args) and the configuration files that they name
        are searched for it.
    type: str
    default: ""
  code:
    description:
      - Code tree to compare with the node's copy, as RV(muster.training.list_code#module:code) returns it. Files that
        are not in the tree are ignored.
    type: dict
    default: {}
  image:
    description: Container image of the job to look up. An image with an empty name is skipped.
    type: dict
    suboptions:
      name:
        description: Name of the image.
        type: str
        required: true
      engine:
        description: Container engine in which to look it up.
        type: str
        choices: [docker, podman]
        default: docker
  job:
    description:
      - Job whose needs to read, such as its imports, caches, checkpoints and services. Without it, they are not read.
      - Only the names of its variables are sent to the node, and the values of those that cannot hold a secret.
    type: dict
    suboptions:
      module:
        description: Module of the job, if it has no O(script).
        type: str
        default: ""
      no_python:
        description: Whether the script is a program of its own, whose imports cannot be tested.
        type: bool
        default: false
      environment:
        description: Variables of the job.
        type: dict
        default: {}
      import_test:
        description:
          - Whether to import the libraries that the job imports when it starts, with O(interpreter) or in O(image), and
            to run a kernel on each GPU. Modules of the user are not imported. It may take 60 s.
          - A success is remembered for a day in C(~/.muster/import_tests) of the job's user, that of the GPUs for an
            hour, unless the packages or the sources change.
        type: bool
        default: true
      code:
        description: V(as_is) if O(code) will not be copied to a node whose copy differs.
        type: str
        default: synced
      container_mounts:
        description: Volumes of the job's container.
        type: list
        elements: str
        default: []
      container_options:
        description: More options for the engine.
        type: list
        elements: str
        default: []
  parts:
    description:
      - Parts to read in addition to the basic facts, which take almost no time.
      - V(gpus) queries nvidia-smi or amd-smi, if available, and finds processes that use a GPU.
      - V(links), with V(gpus), reads the links between GPUs, and the fabric manager of machines with NVSwitches.
      - V(health) reads what identifies the machine, GPU errors in the kernel log, the GPUs' memory rows, throttling,
        PCI express and NVLink, the ports of RDMA devices, and the memory.
      - V(software) reads the versions of the packages of O(interpreter), without importing them.
      - V(checkout) reads which commit is checked out, if O(working_directory) is in a git checkout.
      - V(storage) tests network mounts, and reads the free space.
      - V(system) reads memory, limits, and variables left over from an earlier setup.
      - V(names) resolves the node's own name, and looks up its peers in C(/etc/hosts).
      - V(resolver) also resolves the peers' names. This may take 3 s if no name server knows them.
      - V(connections) opens TCP connections between this node and all of O(peers), in both directions. Requires
        O(probe).
      - V(ssh) tries C(ssh PEER true) as the job's user with each of O(peers).
      - V(checkpoints) reads whether the job's checkpoints outlive the node, and which of the newest are complete.
      - V(provenance) reads the packages of O(interpreter) with the locks of its environment, and identifies the inputs
        that O(args) name, so that a run can be repeated.
    type: list
    elements: str
    choices: [gpus, links, health, software, storage, system, checkout, names, resolver, connections, ssh, checkpoints,
      provenance]
    default: [gpus, software, storage, system, names]
  probe:
    description:
      - Secret and ports for the part V(connections) of O(parts), the same on all nodes, as
        RV(muster.training.choose_nodes#module:probe) returns them.
      - A node first listens and then greets its peers, which connect back. A small process keeps listening until every
        peer has connected, so that the nodes can be queried simultaneously or one after another.
    type: dict
    suboptions:
      token_file:
        description: File on the controller with the secret that authenticates a peer.
        type: path
        required: true
      candidates:
        description: Ephemeral TCP ports. The node listens on the first free one.
        type: list
        elements: int
        required: true
      lifetime:
        description:
          - Seconds to wait for peers. Defaults to 30, plus one per four O(peers), plus 15, or 75 with an import test,
            for each batch after the first in which Ansible queries them. A batch has as many nodes as Ansible has
            forks.
        type: int
seealso:
  - module: muster.training.choose_nodes
  - module: muster.training.list_code
  - module: muster.training.launch_plan
  - module: muster.training.check_cluster
"""

EXAMPLES = r"""
- name: Read the facts of each node for a launch
  muster.training.node_facts:
    address: "{{ node_address }}"
    ports: [29499, 29500]
    interpreter: python3
    script: train.py
    working_directory: ~/project
  register: node

- name: Read the GPUs of each node
  muster.training.node_facts:
    parts: [gpus]
  register: node
"""

RETURN = r"""
msg:
  description: Why the facts could not be read.
  returned: if RV(facts) is V(null)
  type: str
facts:
  description:
    - Facts of the node. V(null) if they could not be read, for example because the node was unreachable in a task with
      C(ignore_unreachable).
  returned: success
  type: dict
  contains:
    hostname:
      description: Hostname of the node.
      type: str
      sample: node0
    user:
      description: The user of the job.
      type: str
      sample: ubuntu
    home:
      description: That user's home directory. Empty if the user does not exist.
      type: str
      sample: /home/ubuntu
    systemd:
      description: Whether the node runs systemd.
      type: bool
      sample: true
    node_python:
      description: Path and version of the Python that read the facts.
      type: dict
      sample: {path: /usr/bin/python3, version: 3.10.12}
    kernel:
      description: Release of the kernel.
      type: str
      sample: 6.8.0-45-generic
    architecture:
      description: Architecture of the processor.
      type: str
      sample: x86_64
    machine:
      description:
        - Identifier of the machine that nodes on it share, made of the kernel's boot ID and the network namespace.
          Empty if it cannot be read.
      type: str
      sample: be92cfc0-7dd6-4d1c-ad77-e0e9f74d9de7 net:[4026531840]
    glibc:
      description: Version of glibc. Empty if the node has another C library.
      type: str
      sample: "2.35"
    interfaces:
      description: For each interface, its C(mtu), C(up), C(loopback) and C(addresses).
      type: dict
      sample: {ens5: {mtu: 9001, up: true, loopback: false, addresses: [10.0.0.10/24]}}
    addresses:
      description: All addresses of the node, each with the name of its interface.
      type: dict
      sample: {10.0.0.10: ens5, 127.0.0.1: lo}
    interface:
      description: The interface with O(address). V(null) if there is none.
      type: str
      sample: ens5
    routes:
      description:
        - For each address of O(peers), the C(interface), C(source), C(gateway) and C(mtu) of the route, V(null) if
          there is no route. An C(mtu) of 0 means the interface's.
      type: dict
      sample: {10.0.0.11: {interface: ens5, source: 10.0.0.10, gateway: null, mtu: 0}}
    runs:
      description:
        - Runs of this collection that are running on the machine, whoever started them, with the GPUs they use.
          An empty list stands for all GPUs.
      type: list
      elements: dict
      sample: [{run_id: bert-1, address: 10.0.0.10, directory: /home/me/.muster/runs/bert-1/node0, gpus: [0, 1]}]
    hides_processes:
      description: Whether C(/proc) hides the processes, and so the runs, of other accounts from O(user).
      type: bool
      sample: false
    slurm_jobs:
      description: Numbers of the jobs that Slurm runs on the machine.
      type: list
      elements: str
      sample: ["12"]
    ports:
      description:
        - The listening process for each of O(ports) that is in use. Another user's process is looked up with C(sudo
          -n). The pid is V(null) if it is not visible.
      type: dict
      sample: {"29500": {pid: 4711, command: python3 serve.py}}
    binds:
      description: For each of O(ports), the error of binding it at O(address). Empty if it can be bound.
      type: dict
      sample: {"29499": "", "29500": Address already in use}
    interpreter:
      description: Absolute path of O(interpreter). Empty if it does not exist, V(null) if none was requested.
      type: str
      sample: /usr/bin/python3
    working_directory:
      description:
        - The working directory, with C(path), C(exists), C(is_file), C(is_directory), C(readable) and C(executable).
        - A path below a hung mount is not accessed. C(dead_mount) names that mount.
      type: dict
      sample:
        path: /home/ubuntu/project
        exists: true
        is_file: false
        is_directory: true
        readable: true
        executable: true
        dead_mount: ""
    script:
      description:
        - The script, with the keys of RV(facts.working_directory), and its C(sha256) with the part V(software). V(null)
          if none was requested.
      type: dict
      sample:
        path: /home/ubuntu/project/train.py
        exists: true
        is_file: true
        is_directory: false
        readable: true
        executable: false
        dead_mount: ""
    code:
      description:
        - The node's copy of O(code), its C(path), whether it is the C(same), and otherwise the number and names of
          differing files by kind (C(counts), C(names)). Names are omitted for a tree with thousands of files.
        - Whether the tree has O(script), and the hash of the project's requirements that the role python_env installed
          next to O(interpreter) (C(required), V(null) if the interpreter is not in an environment of the role), and the
          name of the project if it is another one (C(required_by)).
      returned: with O(code)
      type: dict
      sample:
        path: /home/ubuntu/project
        same: false
        counts: {older: 1}
        names: {older: [train.py]}
        script: true
        required: null
        required_by: ""
    runs_directory:
      description: Absolute path of the directory of the user's runs.
      type: str
      sample: /home/ubuntu/.muster/runs
    runs_writable:
      description: Whether the user may write to or create it.
      type: bool
      sample: true
    existing_run:
      description: Directory of an earlier run named O(run_id) on this node. Empty if there is none.
      type: str
      sample: ""
    clock:
      description:
        - The node's clock at the C(start) and the C(end), and the controller's C(before) and C(after), in
          seconds since 1970.
      type: dict
      sample: {before: 1795234086.2, start: 1795234086.4, end: 1795234086.5, after: 1795234086.6}
    gpu_count:
      description: Number of GPUs. V(null) without the part V(gpus).
      type: int
      sample: 8
    gpus:
      description:
        - Result of nvidia-smi (C(smi)), its GPUs (C(devices), C(count)), the number of GPUs on the PCI bus (C(pci)),
          the driver versions that are loaded, of its library and on disk (C(driver)), and the processes that use a GPU
          (C(processes)).
        - With AMD GPUs, C(vendor) is V(amd) and C(smi) is the result of amd-smi. Each device also has the C(target)
          of its kernels, such as V(gfx942), and its PCI address (C(pci)), instead of C(compute_capability). In
          addition, the installed ROCm version (C(rocm)) and the GIDs of the groups that may use the GPUs
          (C(groups)).
      returned: with the part V(gpus)
      type: dict
      sample:
        vendor: nvidia
        smi: {state: ok, output: "", path: /usr/bin/nvidia-smi}
        count: 1
        pci: 1
        nouveau: false
        driver: {loaded: 570.124.06, library: 570.124.06, on_disk: 570.124.06}
        devices:
          - index: 0
            uuid: GPU-6f1e9a52-2f0b-5a4e-9a62-1d2f3b4c5d6e
            name: H100 80GB HBM3
            driver: 570.124.06
            memory_mib: 81559
            memory_used_mib: 1
            compute_mode: Default
            ecc_uncorrected: 0
            page_retirement_pending: false
            error: ""
            compute_capability: [9, 0]
        processes: []
    health:
      description:
        - What identifies the machine (C(identity)); GPU errors since boot in the C(kernel_log), and whether this
          user may read it; for each of the C(gpus), its C(uuid), memory C(rows), ECC errors, C(throttling) and
          PCI express link; the C(nvlinks) of each GPU; the RDMA C(ports); the C(memory) and swap.
      returned: with the part V(health)
      type: dict
    links:
      description:
        - Number of NVSwitches (C(switches)), for each GPU the C(state) and C(status) of its C(fabric), version and
          service of the fabric C(manager), number of active C(nvlinks), PCI bridges that redirect traffic between
          devices (C(acs)), how the C(iommu) translates addresses, and what lets RDMA adapters access the memory of the
          GPUs (C(gpudirect)), a loaded module for peer memory (C(peermem)) or C(dma_buf). Unknown values are V(null).
      returned: with the part V(links) and nvidia-smi
      type: dict
      sample:
        switches: 4
        fabric: [{state: Completed, status: Success}]
        manager: {version: 570.124.06, service: active}
        nvlinks: 144
        acs: []
        iommu: ""
        gpudirect: {peermem: true, dma_buf: false}
    imports:
      description:
        - Whether the imports of the job were C(tested), the C(failures), GPUs without a working kernel (C(cuda)), the
          C(libraries) and C(features) that its sources use, and whether the interpreter has C(python_h).
      returned: with O(job), if its script can be read
      type: dict
      sample:
        tested: true
        cached: false
        ended: ""
        failures:
          - file: /home/ubuntu/project/train.py
            line: 3
            statement: import flash_attn
            error: "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"
            certain: true
        cuda: []
        libraries: [flash_attn, torch]
        features: [compile]
        files: 1
        python_h: true
    caches:
      description:
        - Home and caches of the job by their variables, each with C(path), the nearest C(existing) directory, whether
          it is C(writable), its free space and whether the job sets it (C(explicit)).
      returned: with O(job), without O(image)
      type: dict
      sample:
        HF_HOME:
          path: /home/ubuntu/.cache/huggingface
          existing: /home/ubuntu/.cache/huggingface
          writable: true
          free_bytes: 31138512896
          device: 66305
          explicit: false
    compilers:
      description: Paths of the C and C++ compilers and of nvcc. Empty for missing ones.
      returned: with O(job), without O(image)
      type: dict
      sample: {cc: /usr/bin/gcc, cxx: /usr/bin/g++, nvcc: ""}
    checkpoints:
      description:
        - Checkpoints in O(args) by their option, each with C(path), C(exists), C(readable), and the ranks of
          DeepSpeed's optimizer states in it (C(shards)).
      returned: with O(job)
      type: dict
      sample: {--resume: {path: /mnt/runs/last.pt, exists: true, readable: true, shards: []}}
    provenance:
      description:
        - C(environment) (C(python), C(packages), C(manager), C(home) and C(locks) of an environment that the role
          python_env created), C(inputs) that O(args) name, by option, and C(repositories) of the Hugging Face cache
          with their commits.
      returned: with the part V(provenance)
      type: dict
    services:
      description:
        - The error of connecting to each service that the job needs (C(hub), C(wandb), C(s3)), AWS C(credentials)
          of the node, and the C(models) and C(buckets) in O(args).
      returned: with O(job)
      type: dict
      sample:
        hub: {host: huggingface.co, error: ""}
        models: {--model_name_or_path: meta-llama/Llama-3.1-8B}
        buckets: []
    checkout:
      description:
        - The git checkout that contains O(working_directory), its C(commit), and whether a tracked file has been
          changed since (C(dirty), V(null) if git is not installed). V(null) outside a checkout.
      returned: with the part V(checkout) and a readable directory
      type: dict
      sample: {commit: 3f786850e387550fdab836ed7e6dc881de23001b, dirty: false}
    software:
      description:
        - Version of the interpreter (C(python)), of packages that must agree between nodes (C(packages)), and of the
          CUDA or ROCm that torch was built for. With the part V(gpus) also the GPU architectures it was built for
          (C(archs)), as torch.cuda.get_arch_list() returns them.
      returned: with the part V(software) and an interpreter
      type: dict
      sample:
        python: 3.11.9
        prefix: /home/ubuntu/venv
        packages: {torch: 2.7.1, nccl: 2.26.2, numpy: 2.2.6}
        cuda: "12.8"
        hip: null
        archs: [sm_75, sm_80, sm_86, sm_90, sm_100, sm_120, compute_120]
        error: ""
    environments:
      description:
        - Environments with torch of projects, and in the usual places of clouds' images, each with its C(interpreter),
          the version of C(torch), the C(cuda) that it was built for, and the name of the C(project).
      returned: with the part V(software)
      type: list
      elements: dict
      sample: [{interpreter: /opt/pytorch/bin/python, torch: 2.7.0, cuda: "12.8", project: ""}]
    programs:
      description: Paths of the programs that launchers call. Missing ones are omitted.
      returned: with the part V(software)
      type: dict
      sample: {mpirun: /usr/bin/mpirun, orted: /usr/bin/orted}
    deepspeed_config:
      description:
        - The DeepSpeed configuration that O(args) refer to, with its C(path), its content (C(config), V(null) if it
          cannot be read) and the C(error).
      returned: with the part V(software), if O(args) refer to one
      type: dict
      sample: {path: /home/ubuntu/project/ds.json, config: {train_batch_size: 64}, error: ""}
    image:
      description:
        - For the image of the job, its C(id) in hexadecimal, empty if it is missing, and its C(size) in bytes.
        - For the engine, the directory in which it stores images (C(root)), the C(free) bytes there, whether containers
          can use NVIDIA GPUs (C(toolkit)), and the C(error) if this user cannot use it.
      returned: with O(image) and its engine
      type: dict
      sample:
        id: 9f1b6cf1d2f7a1a0d5fb1d7f0d9f4cbe2f0a3e1a0c6b7d8e9f00112233445566
        size: 9663676416
        root: /var/lib/docker
        free: 52844687360
        toolkit: true
        error: ""
    storage:
      description:
        - Network mounts and expected mounts, each with its C(state) and its C(requirement). That is V(requested) for
          O(mounts) and M(muster.training.data_mount), V(boot) for C(/etc/fstab), V(optional) for a local disk with
          C(nofail) there, or empty if it is mounted for no known reason. One that responds has its C(free_bytes).
        - The space for runs, the job and temporary files (C(disks)) and in C(/dev/shm) (C(shm)).
      returned: with the part V(storage)
      type: dict
      sample:
        mounts: [{point: /data, type: nfs4, source: "10.0.0.5:/data", state: ok, error: "", free_bytes: 1099511627776,
          requirement: boot}]
        disks:
          runs:
            path: /home/ubuntu
            device: 66305
            total_bytes: 52844687360
            free_bytes: 31138512896
            free_inodes: 6160384
        shm: {path: /dev/shm, device: 26, total_bytes: 67536248832, free_bytes: 67536248832, free_inodes: 16488341}
    system:
      description:
        - The distribution, C(memory), C(rdma) devices and the ports of each (C(rdma_ports)), the NUMA node of each
          NVIDIA GPU and the CPUs of each NUMA node (C(numa)), the C(limits) of a run (-1 means unlimited), and
          launchers' variables C(left_over) from an earlier setup.
      returned: with the part V(system)
      type: dict
      sample:
        operating_system: Ubuntu 22.04.5 LTS
        memory: {total_bytes: 135072497664, available_bytes: 131080507392}
        rdma: []
        rdma_ports: []
        numa: {gpus: [0, 1], cpus: {"0": 0-31, "1": 32-63}}
        limits: {nofile: 1048576, memlock: -1, from: the run's unit}
        left_over: [{name: RANK, value: "0", where: /etc/environment line 3}]
    names:
      description:
        - What the node's own name (C(own)) and the peers' names resolve to, by C(/etc/hosts) and, with the part
          V(resolver), by the C(resolver), and the names whose lookup timed out (C(unanswered)).
      returned: with the part V(names)
      type: dict
      sample:
        hostname: node0
        own: {gethostbyname: 10.0.0.10, getaddrinfo: [10.0.0.10], getfqdn: node0}
        hosts_file: {node1: [10.0.0.11]}
        resolver: null
        unanswered: []
    connections:
      description:
        - The ephemeral port (C(port)) and the C(fixed) ports on which the node listened, the maximum duration in
          seconds (C(lifetime)), and the result for each peer.
        - For a peer, C(to) is the error of connecting to it, empty on success, C(back) the same for its connections to
          this node's ports, and C(ports) for this node's connections to its fixed ports. C(sent) and C(received) are
          the bytes, out of 65536, that were transferred in full-size packets.
      returned: with the part V(connections)
      type: dict
      sample:
        port: 41234
        fixed: [29500, 29499]
        lifetime: 31
        peers:
          node1:
            to: ""
            back: {"41234": "", "29500": "", "29499": ""}
            ports: {}
            sent: 65536
            received: 65536
            answered_by: node1
    ssh:
      description: For each of O(peers), why C(ssh) cannot log in there. Empty if it can.
      returned: with the part V(ssh)
      type: dict
      sample: {node1: ""}
"""
