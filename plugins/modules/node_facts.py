# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: node_facts
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read what a launch or a preflight has to know about a node
description:
  - Reads in one call, and without a change to the node, what M(muster.training.launch_plan) and
    M(muster.training.check_cluster) judge, such as addresses and routes, names, GPUs and drivers, versions of the job's
    packages, mounts and space, limits, and connections to the other nodes that are really opened.
  - Needs Python 3.8 or newer on the node, and nothing else there. What may hang, such as nvidia-smi or a mount whose
    server is gone, is given up after a time, and that is then a fact.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
  - muster.training._runs
options:
  address:
    description: The node's own address among the nodes. If empty, nothing that depends on it is read.
    type: str
    default: ""
  peers:
    description: Addresses of all nodes by their names in the inventory. This node may be among them.
    type: dict
    default: {}
  ports:
    description: TCP ports that a run is going to listen on.
    type: list
    elements: int
    default: []
  interpreter:
    description: Name or path of the Python interpreter of the job. With colons between, the first one that is there.
    type: str
    default: ""
  script:
    description: Path of the job's script. A relative one is below O(working_directory).
    type: str
    default: ""
  args:
    description:
      - Arguments of the job, as O(muster.training.launch_plan#module:args). The DeepSpeed configuration that they name
        is read with the part V(software).
    type: raw
    default: []
  working_directory:
    description: Directory in which the job is to start. If empty, the user's home.
    type: str
    default: ""
  run_id:
    description: Name of the run that is about to start, to see whether it is taken.
    type: str
    default: ""
  user:
    description: User who is to run the job. If empty, the one who is logged in.
  mounts:
    description: Directories that must be mounted, to be looked at besides what C(/etc/fstab) has.
    type: list
    elements: str
    default: []
  code:
    description:
      - The tree of code to compare with the node's, as RV(muster.training.list_code#module:code) gives it. Files that
        are not in it are not looked at.
    type: dict
    default: {}
  image:
    description: The image in which the job runs, to be looked for. One with an empty name is not.
    type: dict
    suboptions:
      name:
        description: Its name.
        type: str
        required: true
      engine:
        description: What is to have it.
        type: str
        choices: [docker, podman]
        default: docker
  parts:
    description:
      - What to read besides what costs next to nothing.
      - V(gpus) asks nvidia-smi, where there is one, and looks for processes that hold a GPU.
      - V(driver) reads what is installed and could be installed of the NVIDIA driver, on Debian and Ubuntu. It takes
        some seconds.
      - V(software) asks O(interpreter) where its packages lie, and reads their versions there. Nothing is imported.
      - V(checkout) reads which commit is checked out where O(working_directory) lies in a git checkout.
      - V(storage) touches mounts that depend on another machine, and reads how much room there is.
      - V(system) reads memory, limits, and variables that an earlier set-up has left.
      - V(names) reads what the node's own name means, and what C(/etc/hosts) says of its peers.
      - V(resolver) besides asks the resolver for the peers' names. Where they are known to no name server this may take
        3 s.
      - V(connections) opens TCP connections between this node and all of O(peers), both ways. Needs O(probe).
      - V(ssh) tries C(ssh PEER true) as the user of the job at each of O(peers).
    type: list
    elements: str
    choices: [gpus, driver, software, storage, system, checkout, names, resolver, connections, ssh]
    default: [gpus, software, storage, system, names]
  probe:
    description:
      - How the nodes find each other for the part V(connections) of O(parts), equal on all nodes, as
        RV(muster.training.choose_nodes#module:probe) gives it.
      - A node first listens and then greets its peers, who connect back. A small process goes on listening until each
        peer has been there, so that the nodes can be asked at once or in turns.
    type: dict
    suboptions:
      token_file:
        description: File of this machine with a secret by which a node tells a peer from a stranger.
        type: path
        required: true
      candidates:
        description: Ephemeral TCP ports, of which the node listens on the first that is free.
        type: list
        elements: int
        required: true
      lifetime:
        description:
          - Seconds for which peers are awaited. If omitted, 30, one more for every four of O(peers), and 15 more for
            each turn but the first in which Ansible asks them, as many at a time as it has forks.
        type: int
seealso:
  - module: muster.training.choose_nodes
  - module: muster.training.list_code
  - module: muster.training.launch_plan
  - module: muster.training.check_cluster
"""

EXAMPLES = r"""
- name: Read what a launch has to know about each node
  muster.training.node_facts:
    address: "{{ node_address }}"
    ports: [29499, 29500]
    interpreter: python3
    script: train.py
    working_directory: ~/project
  register: node

- name: Read which GPUs there are
  muster.training.node_facts:
    parts: [gpus]
  register: node
"""

RETURN = r"""
msg:
  description: Why there are no facts.
  returned: when RV(facts) is V(null)
  type: str
facts:
  description:
    - What was found. V(null) where the node gave none; in a task with C(ignore_unreachable) the node may not have been
      reached, and the task does not fail for that.
  returned: success
  type: dict
  contains:
    hostname:
      description: What the node calls itself.
      type: str
      sample: node0
    user:
      description: The user of the job.
      type: str
      sample: ubuntu
    home:
      description: That user's home, empty where there is no such user.
      type: str
      sample: /home/ubuntu
    systemd:
      description: Whether systemd runs the node.
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
    machine:
      description:
        - What nodes have in common that are one machine, boot id of the kernel and network namespace. Empty where it
          cannot be read.
      type: str
      sample: be92cfc0-7dd6-4d1c-ad77-e0e9f74d9de7 net:[4026531840]
    glibc:
      description: Version of the C library, empty where it is another one than glibc.
      type: str
      sample: "2.35"
    interfaces:
      description: By the name of an interface its C(mtu), C(up), C(loopback) and C(addresses).
      type: dict
      sample: {ens5: {mtu: 9001, up: true, loopback: false, addresses: [10.0.0.10/24]}}
    addresses:
      description: All addresses of the node, each with the name of its interface.
      type: dict
      sample: {10.0.0.10: ens5, 127.0.0.1: lo}
    interface:
      description: The interface that carries O(address), V(null) where none does.
      type: str
      sample: ens5
    routes:
      description:
        - For each address of O(peers) the C(interface), C(source), C(gateway) and C(mtu) of the way there, V(null)
          where no route leads there. An C(mtu) of 0 is the interface's.
      type: dict
      sample: {10.0.0.11: {interface: ens5, source: 10.0.0.10, gateway: null, mtu: 0}}
    runs:
      description: Runs of this collection that are alive on the machine, whoever started them.
      type: list
      elements: dict
      sample: [{run_id: bert-1, address: 10.0.0.10, directory: /home/ubuntu/.muster/runs/bert-1/node0, pid: 4711}]
    ports:
      description:
        - For each of O(ports) on which something listens, who does. Another user's process is looked for by C(sudo
          -n). The pid is V(null) where it is not to be seen.
      type: dict
      sample: {"29500": {pid: 4711, command: python3 serve.py}}
    binds:
      description: For each of O(ports) why it cannot be listened on at O(address), empty where it can.
      type: dict
      sample: {"29499": "", "29500": Address already in use}
    interpreter:
      description: Absolute path of O(interpreter), empty where there is none, V(null) where none was asked for.
      type: str
      sample: /usr/bin/python3
    working_directory:
      description:
        - The working directory, with C(path), C(exists), C(is_file), C(is_directory), C(readable) and C(executable).
        - A path below a mount that does not answer is not touched. C(dead_mount) names that mount.
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
        - The script, as RV(facts.working_directory), and its C(sha256) with the part V(software). V(null) where none
          was asked for.
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
        - The node's copy of O(code), its C(path), whether it is the C(same), and else in how many files and in which it
          differs, by kind (C(counts), C(names)). Of a tree with thousands of files no names are told.
        - Whether the tree has O(script), and the hash of the project's requirements that the role python_env has
          installed beside O(interpreter) (C(required), V(null) where that is in no environment of the role).
      returned: with O(code)
      type: dict
      sample:
        path: /home/ubuntu/project
        same: false
        counts: {older: 1}
        names: {older: [train.py]}
        script: true
        required: null
    runs_directory:
      description: Where the runs of the user lie, as an absolute path.
      type: str
      sample: /home/ubuntu/.muster/runs
    runs_writable:
      description: Whether the user may write there, or make it.
      type: bool
      sample: true
    run_taken:
      description: Directory of an earlier run of the name O(run_id) on this node, empty where there is none.
      type: str
      sample: ""
    clock:
      description:
        - The node's clock at the C(start) and the C(end), and the controller's C(before) and C(after), in
          seconds since 1970.
      type: dict
      sample: {before: 1795234086.2, start: 1795234086.4, end: 1795234086.5, after: 1795234086.6}
    gpu_count:
      description: How many GPUs there are. V(null) without the part V(gpus).
      type: int
      sample: 8
    gpus:
      description:
        - What nvidia-smi says (C(smi)), its GPUs (C(devices), C(count)), how many are on the bus (C(pci)), the
          versions of the driver that are loaded, in its library and on the disk (C(driver)), and who holds a GPU
          (C(processes)).
      returned: with the part V(gpus)
      type: dict
      sample:
        smi: {state: ok, said: "", path: /usr/bin/nvidia-smi}
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
            fault: ""
            compute_capability: [9, 0]
        processes: []
    driver:
      description:
        - The C(system), its C(kernel) and the C(newest_kernel), the version of the module for each (C(modules)), the
          state of the driver's and the kernel's C(packages), what C(dkms) has built, and which drivers the package
          sources have (C(available)).
      returned: with the part V(driver)
      type: dict
      sample:
        system: ubuntu
        system_version: "22.04"
        kernel: 5.15.0-91-generic
        newest_kernel: 5.15.0-91-generic
        modules: {5.15.0-91-generic: 535.183.01}
        packages: [{name: nvidia-driver-535, version: 535.183.01-1, wanted: install, status: installed, flag: ok}]
        dkms: [{version: 535.183.01, kernel: 5.15.0-91-generic, state: installed}]
        has_dkms: true
        available: {nvidia-driver-535: 535.183.01-0ubuntu1}
    checkout:
      description:
        - The git checkout in which O(working_directory) lies, C(commit), and whether a file that git knows has been
          changed since (C(dirty), V(null) where there is no git to ask). V(null) where it lies in none.
      returned: with the part V(checkout) and a directory that can be looked into
      type: dict
      sample: {commit: 3f786850e387550fdab836ed7e6dc881de23001b, dirty: false}
    software:
      description:
        - Version of the interpreter (C(python)), of packages that matter between nodes (C(packages)), and of the CUDA
          or ROCm that torch was built for. With the part V(gpus) also the GPUs that it was built for (C(archs)), as
          torch.cuda.get_arch_list() has them.
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
    programs:
      description: The paths of programs that launchers call, as far as they are there.
      returned: with the part V(software)
      type: dict
      sample: {mpirun: /usr/bin/mpirun, orted: /usr/bin/orted}
    deepspeed_config:
      description:
        - The DeepSpeed configuration that O(args) name, with its C(path), its content (C(config), V(null) where it
          cannot be read) and the C(error).
      returned: with the part V(software) where O(args) name one
      type: dict
      sample: {path: /home/ubuntu/project/ds.json, config: {train_batch_size: 64}, error: ""}
    image:
      description:
        - Of the image in which the job runs its C(id) in hex, empty where it is not there, and its C(size) in bytes.
        - Of the engine the directory in which it keeps images (C(root)), how many bytes are C(free) there, whether it
          can hand GPUs of NVIDIA's to a container (C(toolkit)), and the C(error) where it does not answer this user.
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
        - Mounts that depend on another machine, or that are to be there, each with its C(state) and who needs it
          (C(needed)), that is V(wanted) by O(mounts) or M(muster.training.data_mount), V(boot) by C(/etc/fstab),
          V(optional) for a local disk with C(nofail) there, or empty for what was only found mounted.
        - The room where runs, the job and temporary files lie (C(disks)) and in C(/dev/shm) (C(shm)).
      returned: with the part V(storage)
      type: dict
      sample:
        mounts: [{point: /data, type: nfs4, source: "10.0.0.5:/data", state: ok, error: "", needed: boot}]
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
        - The distribution, C(memory), C(rdma) devices, the C(limits) of a run (-1, none), and launchers' variables
          that an earlier set-up has C(left_over).
      returned: with the part V(system)
      type: dict
      sample:
        operating_system: Ubuntu 22.04.5 LTS
        memory: {total_bytes: 135072497664, available_bytes: 131080507392}
        rdma: []
        limits: {nofile: 1048576, memlock: -1, from: the run's unit}
        left_over: [{name: RANK, value: "0", where: /etc/environment line 3}]
    names:
      description:
        - What the node's own name means (C(own)) and the peers' names, to C(/etc/hosts) and, with the part
          V(resolver), to the C(resolver), and the names that got no answer in time (C(unanswered)).
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
        - The ephemeral port (C(port)) and the C(fixed) ports on which the node listened, for how many seconds at most
          (C(lifetime)), and for each peer how it went.
        - Of a peer C(to) is empty or says why no connection opened to it, C(back) the same of its connections to this
          node's ports, and C(ports) of this node's to its fixed ones. C(sent) and C(received) are bytes in packets of
          full size, of 65536, that came through.
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
      description: For each of O(peers) why C(ssh) does not log in there, empty where it does.
      returned: with the part V(ssh)
      type: dict
      sample: {node1: ""}
"""
