# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: paperspace_cluster
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Create, stop and remove the machines of a cluster at Paperspace
description:
  - Creates a private network, a network drive on request, and the missing machines, and waits until all are ready.
    Existing resources are left unchanged. Surplus machines are never removed, and no machine changes its type.
  - All or nothing. If there is no capacity for one of the machines, the newly created ones are removed again, and the
    next of O(machine_types) is tried.
  - Nothing is created until all checks have passed and the price is known not to exceed O(max_usd_per_hour).
  - Paperspace has no tags; the private network C(muster-CLUSTER) serves as one. A machine belongs to the cluster if it
    is in this network and is named C(CLUSTER-0), C(CLUSTER-1) and so on. All other resources are left alone, whatever
    their names.
  - Each request is first written to the journal C(.muster/clusters/CLUSTER.json), and its result is looked up if the
    response is lost. After an interruption at any point, the next run continues and creates nothing twice.
  - In check mode, only read requests are sent. The plan is exact except for capacity.
  - Tested against a server that follows the API's documentation, never against Paperspace itself.
extends_documentation_fragment:
  - muster.training._attributes.paperspace
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
      - Name of the cluster. A lower-case letter followed by up to 30 lower-case letters, digits and hyphens.
    type: str
    required: true
  state:
    description:
      - V(present) ensures that all O(nnodes) machines exist and are ready. Those that are off are started.
      - V(stopped) ensures that all machines are off. Their disks and static addresses still cost money.
      - V(absent) removes all resources of the cluster, and checks twice that none remain. The drive and its network are
        kept unless O(remove_drive) is set.
    type: str
    choices: [present, stopped, absent]
    default: present
  nnodes:
    description: Number of machines. Required for O(state=present).
    type: int
    default: 0
  machine_types:
    description:
      - Machine types in order of preference, for example V([A6000x2, A5000x2]). All machines have the same type.
        Required for O(state=present).
    type: list
    elements: str
    default: []
  region:
    description: Region of the machines, V(ny2), V(ca1) or V(ams1). Required for O(state=present).
    type: str
    default: ""
  template:
    description:
      - Initial content of the disks, as the ID of a template, the name of one of the team's templates, or part of the
        name or operating system of one of Paperspace's. Of several matches, the newest that supports the machine type
        is used.
    type: str
    default: ML-in-a-Box
  disk_gb:
    description: Size of each machine's disk in GB. Paperspace offers 50, 100, 250, 500, 1000 and 2000.
    type: int
    default: 250
  drive_gb:
    description: Size in GB of a network drive for all machines. V(0) means none. Its size cannot be changed later.
    type: int
    default: 0
  public_ip:
    description:
      - V(dynamic) gives a machine a public address while it is on, which changes with each start.
      - V(static) gives it a fixed address, which costs money as long as it is kept. It is released with the machine.
      - V(none) makes machines reachable from their private network only.
    type: str
    choices: [dynamic, static, none]
    default: dynamic
  max_usd_per_hour:
    description:
      - Maximum cost of the cluster per hour, in US dollars. Required for O(state=present), except in check mode.
    type: float
  price_per_hour:
    description: Cost of one machine per hour, in US dollars. Used if the price of its type is not known.
    type: float
  on_shortage:
    description:
      - Reaction to a lack of capacity for some of the machines. V(rollback) removes those that were created.
      - V(wait) keeps them off, so that only their disks cost money, and tries to start all machines each minute, for
        O(wait_minutes).
    type: str
    choices: [rollback, wait]
    default: rollback
  wait_minutes:
    description: Minutes to wait for capacity with O(on_shortage=wait).
    type: float
    default: 20.0
  ssh_public_key:
    description:
      - Public key authorized for the user C(paperspace), or the path of its file. Paperspace stores a startup script
        that contains it.
      - If empty, the keys of the account are authorized, which the API does not show.
    type: str
    default: ""
  power_off:
    description:
      - Let machines power themselves off when nobody uses them, from their first boot on, but never during a run. The
        role C(idle_watch) does the same and keeps it up to date. No API key is stored on a machine.
      - Whether a C(poweroff) inside a machine ends its hourly fee has not been tested. Its disk still costs money.
    type: bool
    default: false
  network_id:
    description: ID of the cluster's network. Required only if several have its name.
    type: str
    default: ""
  remove_drive:
    description: Also remove the network drive and its data with O(state=absent).
    type: bool
    default: false
  remove_templates:
    description:
      - Also remove the templates made from the cluster's machines with O(state=absent). They are always reported.
    type: bool
    default: false
  force:
    description: >-
      Stop or remove machines even if a run may still be running on them, that is, if its record in O(runs_directory)
      has no end.
    type: bool
    default: false
  retries:
    description:
      - Number of retries of a request after a temporary failure. Requests that may have taken effect are not repeated.
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
  description: ID of its private network. Empty if there is none.
  returned: success
  type: str
  sample: nwhoe4ox
nodes:
  description:
    - The existing machines, with C(name), C(id), C(state) (V(ready), V(coming), V(going), V(off)), C(private_ip),
      C(public_ip) and C(machine_type).
  returned: success
  type: list
  elements: dict
drive:
  description: The network drive with C(name), C(id), C(size_gb), C(share) and C(username). V(null) if there is none.
  returned: success
  type: dict
steps:
  description: The steps that were taken, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [make network muster-bert, make machine bert-0]
cost:
  description:
    - What the cluster costs in US dollars, with C(per_hour), C(per_day), C(disks_per_month) (on or off; V(null) if a
      price is not known), C(unknown) (items without a known price), C(source) and C(date) of the hourly price, and
      C(disk_source).
  returned: success
  type: dict
left:
  description: Resources that could not be removed, and the reasons.
  returned: success
  type: list
  elements: str
msg:
  description: Summary of the remaining resources and their cost.
  returned: when O(state) is V(stopped) or V(absent)
  type: str
  sample: nothing of bert is left, 0 USD an hour
"""
