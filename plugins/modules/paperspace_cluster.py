# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: paperspace_cluster
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Make, stop and remove the machines of a cluster at Paperspace
description:
  - Makes a private network, on request a network drive, and as many machines as are missing, and waits until all are
    ready. What is there is left as it is. Surplus is never removed, and no machine is given another type.
  - All or nothing. Where capacity lacks for one of the machines, those that were made for the cluster are removed
    again, and the next of O(machine_types) is tried.
  - Nothing is made before all is checked and the price is known to be at most O(max_usd_per_hour).
  - Paperspace has no tags. The private network C(muster-CLUSTER) is one. A machine is the cluster's where it lies in
    this network and is called C(CLUSTER-0), C(CLUSTER-1) and so on. All else is left alone, whatever it is called.
  - What is asked for is recorded before the request in C(.muster/clusters/CLUSTER.json), and looked for where the
    answer is lost. Interrupted at any moment and run again, it goes on, and makes nothing twice.
  - In check mode only requests are sent that read. The plan is exact but for capacity.
  - Was tested against a server that does as the API's document says, and never against Paperspace itself.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller_diff
  - muster.training._paperspace
  - muster.training._cluster_record
  - muster.training._idle_watch
options:
  cluster:
    description:
      - Name of the cluster. A lower-case letter, then up to 30 lower-case letters, digits and hyphens.
    type: str
    required: true
  state:
    description:
      - V(present), all O(nnodes) machines are there and ready. Those that are off are started.
      - V(stopped), all machines are off. Their disks, and fixed addresses, go on costing.
      - V(absent), nothing of the cluster is left, which is looked at twice. The drive stays, and the network with it,
        unless O(remove_drive) is set.
    type: str
    choices: [present, stopped, absent]
    default: present
  nnodes:
    description: Number of machines. Needed for O(state=present).
    type: int
    default: 0
  machine_types:
    description:
      - Types of machine in the order of preference, for example V([A6000x2, A5000x2]). All machines are of one type.
        Needed for O(state=present).
    type: list
    elements: str
    default: []
  region:
    description: Region, V(ny2), V(ca1) or V(ams1). Needed for O(state=present).
    type: str
    default: ""
  template:
    description:
      - What the disks begin with. Id of a template, name of one of the team's own, or a part of the name or of the
        system of one of Paperspace's, of which the newest is taken from which the type can be made.
    type: str
    default: ML-in-a-Box
  disk_gb:
    description: Size of each machine's disk in GB. Paperspace has 50, 100, 250, 500, 1000 and 2000.
    type: int
    default: 250
  drive_gb:
    description: Size in GB of a network drive for all machines. V(0), none. Its size cannot be changed later.
    type: int
    default: 0
  public_ip:
    description:
      - V(dynamic), a machine has a public address while it is on, another one after each start.
      - V(static), it keeps its address, which costs as long as it is kept. It is given back with the machine.
      - V(none), machines can be reached from their private network only.
    type: str
    choices: [dynamic, static, none]
    default: dynamic
  max_usd_per_hour:
    description: What the cluster may cost an hour, in US dollars. Needed for O(state=present), except in check mode.
    type: float
  price_per_hour:
    description: What one machine costs an hour, in US dollars, where its price is not known here.
    type: float
  on_shortage:
    description:
      - What to do where capacity lacks for some machines. V(rollback), remove those that were made.
      - V(wait), keep them off, which costs their disks alone, and start all again each minute, O(wait_minutes) long.
    type: str
    choices: [rollback, wait]
    default: rollback
  wait_minutes:
    description: Minutes to wait for capacity.
    type: float
    default: 20.0
  ssh_public_key:
    description:
      - Public key that is let in as user C(paperspace), or the path of its file. Paperspace keeps a script with it.
      - If empty, the keys of the account are let in, which cannot be read from here.
    type: str
    default: ""
  power_off:
    description:
      - Whether machines power themselves off when nobody uses them, from their first boot on, and never during a run.
        That is what the role C(idle_watch) does, which keeps it up to date. No key of the API is on a machine.
      - That a C(poweroff) in a machine ends its hourly fee was never tried. Its disk goes on costing.
    type: bool
    default: false
  network_id:
    description: Id of the cluster's network, where several have its name.
    type: str
    default: ""
  remove_drive:
    description: Whether O(state=absent) removes the network drive, too, and with it what is on it.
    type: bool
    default: false
  remove_templates:
    description:
      - Whether O(state=absent) removes the templates, too, that were made of the cluster's machines. They are named in
        any case.
    type: bool
    default: false
  force:
    description: >-
      Whether machines may be stopped or removed while a run may be alive on them, which is one whose record in
      O(runs_directory) has no end.
    type: bool
    default: false
  retries:
    description: How often a request is sent again after a passing failure that leaves nothing in doubt.
    type: int
    default: 4
seealso:
  - module: muster.training.paperspace_cluster_info
  - plugin: muster.training.paperspace
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Ensure four machines
  muster.training.paperspace_cluster:
    cluster: bert
    nnodes: 4
    machine_types: [A6000x2, A5000x2]
    region: ny2
    ssh_public_key: ~/.ssh/id_ed25519.pub
    max_usd_per_hour: 16

- name: Stop them over the weekend
  muster.training.paperspace_cluster:
    cluster: bert
    state: stopped

- name: Remove all of them
  muster.training.paperspace_cluster:
    cluster: bert
    state: absent
"""

RETURN = r"""
cluster:
  description: Name of the cluster.
  returned: success
  type: str
  sample: bert
network:
  description: Id of its private network, empty where there is none.
  returned: success
  type: str
  sample: nwhoe4ox
nodes:
  description:
    - The machines that are there, with C(name), C(id), C(state) (V(ready), V(coming), V(going), V(off)), C(private_ip),
      C(public_ip) and C(machine_type).
  returned: success
  type: list
  elements: dict
drive:
  description: The network drive with C(name), C(id), C(size_gb), C(share) and C(username); V(null) where there is none.
  returned: success
  type: dict
steps:
  description: What was done; in check mode, what would be.
  returned: success
  type: list
  elements: str
  sample: [make network muster-bert, make machine bert-0]
cost:
  description:
    - What the cluster costs in US dollars, with C(per_hour), C(per_day), C(disks_per_month) (on or off; V(null) where a
      price is not known), C(unknown) (what has no known price), C(source) and C(date) of the price of an hour, and
      C(disk_source).
  returned: success
  type: dict
left:
  description: What could not be removed, and why.
  returned: success
  type: list
  elements: str
msg:
  description: What is left of the cluster.
  returned: when O(state) is V(stopped) or V(absent)
  type: str
  sample: nothing of bert is left, 0 USD an hour
"""
