# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: node_state
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read the state of a node that roles compare with the desired one
description:
  - Reads in one call, for each requested role, whether it has anything to do. Changes nothing. Needs root on the node
    and only Python 3.8 or newer.
  - C(site.yml) reads the state for all roles at once, so that a second run costs one round trip; a role that has
    something to do, or runs on its own, reads its state again.
  - If only one state is requested, the task fails if it cannot be read. If several are requested, those that cannot be
    read are omitted.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
options:
  base_packages:
    description:
      - Wait for cloud-init and other programs that hold the locks of apt and dpkg to finish, then read the faults of
        package management, and which packages, kernel settings and limits are missing and whether shared memory is too
        small.
      - Cannot be read if the system is neither Debian nor Ubuntu, or if other programs do not finish in time.
    type: dict
    suboptions:
      wait:
        description: Seconds to wait for cloud-init, and again for each lock.
        type: int
        default: 900
      packages:
        description: Names of the required packages, in apt's syntax.
        type: list
        elements: str
        default: []
      sources:
        description: Package source files that may be broken. The package lists of each existing file are requested.
        type: list
        elements: str
        default: []
      sysctl:
        description: Kernel settings, each with its minimum value.
        type: dict
        default: {}
      shm_size:
        description: Minimum size of C(/dev/shm), as a share of memory such as V(50%) or a size such as V(64G).
        type: str
        default: 50%
      files:
        description: Paths of root's files to describe.
        type: list
        elements: str
        default: []
  nvidia_driver:
    description: Read GPUs, and the installed and available NVIDIA drivers. With a GPU this takes a few seconds.
    type: bool
    default: false
  hosts_file:
    description:
      - Read C(/etc/hosts) and the machine's own name, check whether cloud-init would rewrite the file, and resolve all
        names of the block that P(muster.training.etc_hosts#filter) writes.
    type: bool
    default: false
  firewall:
    description: Read the ports on which sshd listens, and the state of the firewall.
    type: dict
    suboptions:
      program:
        description: Path of the role's program. If it exists, it reports the rules.
        type: path
        required: true
      files:
        description: Paths of root's files to describe.
        type: list
        elements: str
        default: []
  ssh_mesh:
    description: Read the state of sshd and, with the user's rights, the user's key.
    type: dict
    suboptions:
      user:
        description:
          - User who logs in from node to node. If empty, defaults to the login user of this task, before becoming root.
        type: str
        default: ""
      key:
        description: The user's private key, relative to the home directory.
        type: str
        default: .ssh/id_ed25519
      host_key:
        description: The private host key.
        type: path
        default: /etc/ssh/ssh_host_ed25519_key
      sshd_file:
        description: The sshd configuration file that the role writes.
        type: path
        required: true
      revoked_file:
        description: The revocation list that the role writes.
        type: path
        required: true
      verification_file:
        description: The file in which the role records which logins from this node succeeded.
        type: path
        required: true
      client_file:
        description: The ssh configuration file that the role writes.
        type: path
        required: true
      mark:
        description: Suffix of the role's lines in files that are not exclusively its own.
        type: str
        required: true
      log_in:
        description:
          - Name of a node to which the user logs in, if O(ssh_mesh.verification_file) exists. Empty means
            none.
        type: str
        default: ""
  ssh_logins:
    description: Log in to other nodes.
    type: dict
    suboptions:
      user:
        description: User who logs in.
        type: str
        required: true
      names:
        description: The nodes, in the order in which they are tried, four at a time.
        type: list
        elements: str
        required: true
  slurm:
    description:
      - Read what the configuration of Slurm depends on, and the state of its packages, files, key and services.
    type: dict
    suboptions:
      packages:
        description: Packages whose absence is reported.
        type: list
        elements: str
        required: true
      gpu_files:
        description: Pattern of the device files of GPUs.
        type: str
        default: /dev/nvidia[0-9]*
      verification_file:
        description: The file in which the role records which configuration was verified.
        type: path
        required: true
      files:
        description: Paths of files to describe.
        type: list
        elements: str
        default: []
seealso:
  - plugin: muster.training.outdated_files
    plugin_type: filter
  - plugin: muster.training.driver_decision
    plugin_type: filter
  - plugin: muster.training.etc_hosts
    plugin_type: filter
  - plugin: muster.training.slurm_plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Read missing packages, kernel settings, and how the node resolves names
  muster.training.node_state:
    base_packages:
      packages: [rsync, git]
      sysctl:
        net.core.somaxconn: 4096
    hosts_file: true
  register: node
  become: true

- name: Fail if names resolve to other addresses
  ansible.builtin.assert:
    that: node.hosts_file.differences | length == 0

- name: Read the state of the firewall and of sshd
  muster.training.node_state:
    firewall:
      program: /usr/local/lib/muster/firewall.py
    ssh_mesh:
      sshd_file: /etc/ssh/sshd_config.d/10-muster-ssh-mesh.conf
      client_file: /etc/ssh/ssh_config.d/10-muster-ssh-mesh.conf
      revoked_file: /etc/ssh/muster_ssh_mesh_revoked
      verification_file: /var/lib/muster/ssh_mesh.proved
      mark: muster-ssh-mesh
  become: true
"""

RETURN = r"""
base_packages:
  description: The state of package management, limits and kernel settings.
  returned: if O(base_packages) was requested and can be read
  type: dict
  contains:
    missing:
      description: Packages that are not installed. A package that is not requested by its plain name is always listed.
      type: list
      elements: str
      sample: [git]
    damaged:
      description: Installed packages whose file list dpkg cannot read, by name, with the path of that list.
      type: dict
      sample: {}
    interrupted:
      description: Whether dpkg was interrupted midway.
      type: bool
      sample: false
    has_lists:
      description: Whether apt has package lists.
      type: bool
      sample: true
    broken_sources:
      description: The O(base_packages.sources) that apt rejects, each with its error message.
      type: dict
      sample: {}
    clocks:
      description: Enabled services that set the clock.
      type: list
      elements: str
      sample: [systemd-timesyncd.service]
    low_sysctls:
      description: The O(base_packages.sysctl) settings that are too low, each with its minimum value.
      type: dict
      sample: {net.core.somaxconn: 4096}
    limits_pending:
      description: Whether systemd has yet to read the limits in C(/etc/systemd/system.conf.d/90-muster.conf).
      type: bool
      sample: false
    max_memlock:
      description: Maximum locked memory that root can allow, in KiB. -1 if unlimited.
      type: int
      sample: -1
    shm_is_small:
      description: Whether C(/dev/shm) is smaller than O(base_packages.shm_size).
      type: bool
      sample: false
    files:
      description:
        - Owner (C(user)), permissions (C(mode)) and C(sha256) of each of the files, by path. Missing files, links, and
          files in directories that others can write to are omitted.
      type: dict
      sample:
        /etc/security/limits.d/90-muster.conf:
          user: root
          mode: "0644"
          sha256: 2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806
nvidia_driver:
  description: State that P(muster.training.driver_decision#filter) evaluates.
  returned: if O(nvidia_driver)
  type: dict
  contains:
    gpus:
      description: The part C(gpus) of RV(muster.training.node_facts#module:facts).
      type: dict
    runs:
      description: The part C(runs) of RV(muster.training.node_facts#module:facts).
      type: list
      elements: dict
    driver:
      description:
        - On Debian and Ubuntu, the C(system), its C(kernel) and the C(newest_kernel), the version of the
          module for each (C(modules)), the state of the driver's and the kernel's C(packages), what C(dkms)
          has built, and which drivers the package sources offer (C(available)). Without a GPU, C(packages) is
          empty, and the rest is not read.
      type: dict
      sample:
        system: ubuntu
        system_version: "22.04"
        kernel: 5.15.0-91-generic
        newest_kernel: 5.15.0-91-generic
        modules: {5.15.0-91-generic: 535.183.01}
        packages: [{name: nvidia-driver-535, version: 535.183.01-1, selection: install, status: installed, flag: ok}]
        dkms: [{version: 535.183.01, kernel: 5.15.0-91-generic, state: installed}]
        has_dkms: true
        available: {nvidia-driver-535: 535.183.01-0ubuntu1}
hosts_file:
  description: How the node resolves its own name and those of the other nodes.
  returned: if O(hosts_file) and it can be read
  type: dict
  contains:
    hostname:
      description: Output of C(uname -n).
      type: str
      sample: psucgene4
    hosts:
      description: Text of C(/etc/hosts), in Base64, since it may not be UTF-8.
      type: str
      sample: MTI3LjAuMC4xIGxvY2FsaG9zdAo=
    permissions_ok:
      description: Whether the file belongs to root and has the permissions V(0644).
      type: bool
      sample: true
    cloud_init:
      description: How cloud-init treats the file.
      type: dict
      contains:
        present: {description: Whether cloud-init is installed., type: bool, sample: true}
        manages_hosts:
          description: Whether the machine's user data has cloud-init write the file.
          type: bool
          sample: false
        config:
          description: Text of C(/etc/cloud/cloud.cfg) in that case, in Base64.
          type: str
          sample: ""
        override:
          description:
            - Content of the file that tells cloud-init to leave C(/etc/hosts) alone, in Base64. Empty if its owner or
              permissions are wrong.
          type: str
          sample: ""
    differences:
      description: Differences between the resolver and the cluster's block, one line each.
      type: list
      elements: str
      sample: ["gethostbyname(node1) says 127.0.1.1, the block 10.0.0.11"]
firewall:
  description: The ports of sshd, and the state of the firewall.
  returned: if O(firewall) was requested
  type: dict
  contains:
    ssh_ports:
      description: Ports on which sshd listens. Empty if sshd does not report them.
      type: list
      elements: int
      sample: [22]
    sshd_output:
      description: Output of sshd if it does not report its settings.
      type: str
      sample: ""
    nftables:
      description: Whether C(nft) is installed.
      type: bool
      sample: true
    rules:
      description: The program's report on the rules. Empty without the program, or if it fails.
      type: dict
      contains:
        saved:
          description: The saved rules as text. Empty if there are none.
          type: str
        active:
          description: Whether they are active, and no other rules are on trial.
          type: bool
        at_boot:
          description: Whether systemd activates them at each boot, including the current one.
          type: bool
      sample: {saved: "{}", active: true, at_boot: true}
    files:
      description:
        - Owner (C(user)), permissions (C(mode)) and C(sha256) of each of the files, by path. Missing files, links, and
          files in directories that others can write to are omitted.
      type: dict
      sample:
        /usr/local/lib/muster/firewall.py:
          user: root
          mode: "0755"
          sha256: 2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806
ssh_mesh:
  description: The state of sshd, and of the user's key and files.
  returned: if O(ssh_mesh) was requested
  type: dict
  contains:
    user:
      description: User who logs in from node to node.
      type: str
      sample: ubuntu
    home:
      description: The user's home directory. Empty if the user does not exist.
      type: str
      sample: /home/ubuntu
    group:
      description: Group ID of the user.
      type: int
      sample: 1000
    has_key:
      description: Whether anything exists at the path of the user's key.
      type: bool
      sample: true
    user_key:
      description: The public key of the user's private key. Empty if the private key cannot be used without a prompt.
      type: str
      sample: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEpJ
    unusable:
      description: Why the private key cannot be used, as reported by ssh-keygen.
      type: str
      sample: ""
    host_key:
      description: The public host key.
      type: str
      sample: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKxq
    ports:
      description: Ports that files other than the role's set. Defaults to V(22).
      type: list
      elements: int
      sample: [22]
    has_port_line:
      description: Whether one of these files has a line C(Port).
      type: bool
      sample: false
    socket:
      description: Whether systemd's socket activation listens instead of sshd.
      type: bool
      sample: false
    up_to_date:
      description: Whether sshd has reloaded its files since their last change.
      type: bool
      sample: true
    verification:
      description: The role's record of which logins from this node succeeded.
      type: str
      sample: ""
    errors:
      description: Reasons why the node cannot take part, one sentence each.
      type: list
      elements: str
      sample: []
    closed:
      description: Whether only the user can write to the home directory, and access the directories of the keys.
      type: bool
      sample: true
    files:
      description:
        - Owner (C(user)), permissions (C(mode)) and C(sha256) of each of the files, by path. Missing files, links, and
          files in directories that others can write to are omitted. Of files that are not exclusively the role's,
          C(line) is the last line that ends with O(ssh_mesh.mark).
      type: dict
      sample:
        /etc/ssh/ssh_known_hosts:
          user: root
          mode: "0644"
          sha256: 2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806
    logins:
      description: For O(ssh_mesh.log_in), why the login fails. Empty if it succeeds.
      type: dict
      sample: {node2: ""}
ssh_logins:
  description: For each node by name, why the login fails. Empty if it succeeds.
  returned: if O(ssh_logins) was requested
  type: dict
  sample: {node2: "", node3: "Permission denied (publickey)."}
slurm:
  description: State that P(muster.training.slurm_plan#filter) evaluates.
  returned: if O(slurm) was requested
  type: dict
  contains:
    hostname:
      description: Output of C(uname -n), up to its first dot.
      type: str
      sample: psucgene4
    systemd:
      description: Whether systemd runs the services.
      type: bool
      sample: true
    debian:
      description: Whether the system has Debian packages.
      type: bool
      sample: true
    user:
      description: C(name), C(uid) and C(gid) of the user who has logged in.
      type: dict
      sample: {name: ubuntu, uid: 1000, gid: 1000}
    missing:
      description: The O(slurm.packages) that are not installed.
      type: list
      elements: str
      sample: []
    version:
      description: Version of slurmd, C(installed) or else C(available) from the package sources. Empty if unknown.
      type: dict
      sample: {installed: 22.05.8, available: ""}
    cpus:
      description: Number of C(sockets), of C(cores) per socket, and of C(threads) per core.
      type: dict
      sample: {sockets: 2, cores: 32, threads: 2}
    memory:
      description: Memory in MiB.
      type: int
      sample: 515000
    gpus:
      description: Device C(files) of the GPUs, and the C(model) of the first NVIDIA GPU.
      type: dict
      sample: {files: [/dev/nvidia0], model: NVIDIA H100 80GB HBM3}
    cgroups:
      description: V(v2) if Slurm can use the node's cgroups, otherwise V(hybrid).
      type: str
      sample: v2
    units:
      description: The C(active) and C(enabled) state of each unit, as systemd names it.
      type: dict
      sample: {slurmd: {active: active, enabled: enabled}}
    munge_key:
      description: Hash that identifies the key of MUNGE. Empty if there is none.
      type: str
      sample: 9b1f0e3c5d7a4b2e8c6d0f1a2b3c4d5e
    files:
      description:
        - Owner (C(user)), permissions (C(mode)) and C(sha256) of each of the files, by path. Missing files, links, and
          files in directories that others can write to are omitted.
      type: dict
      sample: {}
    pam:
      description: Last line of the role's section in sshd's PAM rules. Empty if there is none.
      type: str
      sample: ""
    verification:
      description: The role's record of which configuration was verified.
      type: str
      sample: ""
"""
