# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_authority
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Sign the SSH keys of a cluster's nodes, renew and revoke certificates
description:
  - Manages an SSH certificate authority in a directory on the controller. Signs a host key and a user key for each of
    O(nodes), and stores the certificates. One call handles all nodes.
  - A certificate is renewed when it is about to expire, when the node has other names or another key, and when the
    authority has a new key.
  - Certificates of nodes that are not in O(members), and of keys and names that a node no longer has, are put on a
    revocation list. A node that returns with the same key and names is taken off the list.
  - Concurrent calls for the same directory wait for each other.
  - The authority's key is created without a passphrase. Set one with C(ssh-keygen -p -f DIRECTORY/ca), and add the key
    to C(ssh-agent) with C(ssh-add DIRECTORY/ca), through which it is then used.
  - Private keys of nodes are not needed.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.all
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  platform: {platforms: posix}
options:
  directory:
    description:
      - Directory of the authority. Created with access for its owner only, and with a C(.gitignore) for all its files.
    type: path
    required: true
  members:
    description: Names of all nodes of the cluster, including those that are not in O(nodes).
    type: list
    elements: str
    required: true
  nodes:
    description: The nodes whose keys to sign.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the node, one of O(members).
        type: str
        required: true
      user:
        description:
          - Name of the user for whom the certificate of O(nodes[].user_key) is valid. The certificate allows terminals,
            but no forwarding.
        type: str
        required: true
      user_key:
        description: Public key of the user on this node. May be empty in check mode if it does not exist yet.
        type: str
        required: true
      host_key:
        description: Public host key of the node.
        type: str
        required: true
      names:
        description: Names and addresses of the node, for which its host certificate is valid.
        type: list
        elements: str
        required: true
  source_addresses:
    description:
      - IP addresses from which the user certificates are valid, such as the nodes'. Empty means from everywhere.
    type: list
    elements: str
    default: []
  valid_for:
    description: Validity period of a certificate, such as V(52w) or V(1d12h).
    type: str
    default: 52w
  renew_before:
    description: How long before its expiry a certificate is renewed, in the format of O(valid_for).
    type: str
    default: 12w
requirements:
  - C(ssh-keygen) on the controller
"""

EXAMPLES = r"""
- name: Sign the keys of two nodes
  muster.training.ssh_authority:
    directory: ~/cluster/ssh_mesh
    members: [node0, node1]
    source_addresses: [10.0.0.10, 10.0.0.11]
    nodes:
      - name: node0
        user: ubuntu
        user_key: "{{ user_keys.node0 }}"
        host_key: "{{ host_keys.node0 }}"
        names: [node0, 10.0.0.10]
      - name: node1
        user: ubuntu
        user_key: "{{ user_keys.node1 }}"
        host_key: "{{ host_keys.node1 }}"
        names: [node1, 10.0.0.11]
  delegate_to: localhost
  run_once: true
  register: authority
  vars:
    host_keys:
      node0: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEpJ4uN0aWZ1bGx5IG1hZGUgdXAsIG5vIGtleSBhdCBh
      node1: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFub3RoZXIga2V5IHRoYXQgaXMgbm8ga2V5IGF0IGFs
    user_keys: "{{ host_keys }}"
"""

RETURN = r"""
public_key:
  description: Public key of the authority. Empty in check mode if it does not exist yet.
  returned: success
  type: str
  sample: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIO4
certificates:
  description: For each node by name, its certificates. Empty in check mode if they do not exist yet.
  returned: success
  type: dict
  sample: {node0: {user: ssh-ed25519-cert-v01@openssh.com AAAA, host: ssh-ed25519-cert-v01@openssh.com AAAA}}
revoked:
  description: IDs of the revoked certificates.
  returned: success
  type: list
  elements: str
  sample: [node3/user-2c26b46b68ffc68f]
revoked_list:
  description:
    - The revocation list in Base64, as C(RevokedKeys) and C(RevokedHostKeys) accept it. Empty in check mode if it does
      not exist yet.
  returned: success
  type: str
  sample: U1NIS1JMCgA=
"""

import base64
import copy
import json
import os
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils._ssh.authority import (
    AuthorityError,
    create_authority,
    desired_certificates,
    is_valid,
    locked,
    parse_duration,
    public_key,
    read_records,
    read_revoked,
    revoked_ids,
    sign,
    signing_options,
    summary,
    write,
    write_revoked,
)

ARGUMENT_SPEC = {
    "directory": {"type": "path", "required": True},
    "members": {"type": "list", "elements": "str", "required": True},
    "nodes": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "user_key": {"type": "str", "required": True, "no_log": False},
            "host_key": {"type": "str", "required": True, "no_log": False},
            "names": {"type": "list", "elements": "str", "required": True},
        },
    },
    "source_addresses": {"type": "list", "elements": "str", "default": []},
    "valid_for": {"type": "str", "default": "52w"},
    "renew_before": {"type": "str", "default": "12w"},
}


def update_authority(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Bring the authority up to date or, in check mode, report what would change."""
    directory = Path(params["directory"])
    valid_for, renew_before = parse_duration(params["valid_for"]), parse_duration(params["renew_before"])
    if renew_before >= valid_for:
        raise AuthorityError(
            f"valid_for is {params['valid_for']}. Set it higher than renew_before, {params['renew_before']}."
        )
    if check_mode:
        return update_files(params, directory, valid_for, renew_before, check_mode=True)
    os.umask(0o077)
    (directory / "nodes").mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    with locked(directory):
        (directory / ".gitignore").write_text("*\n")
        return update_files(params, directory, valid_for, renew_before, check_mode=False)


def update_files(
    params: dict[str, Any], directory: Path, valid_for: int, renew_before: int, *, check_mode: bool
) -> dict[str, Any]:
    """Update the files, or report what would change. The caller must hold the lock. Durations are in seconds."""
    authority = public_key(directory)
    is_new = not authority
    if is_new and not check_mode:
        authority = create_authority(directory)
    options: list[str] = []
    before, revoked_before = read_records(directory), read_revoked(directory)
    now = int(time.time())
    after, certificates = copy.deepcopy(before), {}
    for node in params["nodes"]:
        desired = desired_certificates(node, authority, params["source_addresses"])
        record = after.setdefault(node["name"], {"certificates": {}})
        record["current"] = list(desired)
        for certificate_id, entry in desired.items():
            if not is_valid(record["certificates"].get(certificate_id), entry, now + renew_before):
                if not check_mode:
                    options = options or signing_options(directory)
                text = "" if check_mode else sign(directory, certificate_id, entry, valid_for, options)
                dates = {"signed": now, "valid_until": now + valid_for}
                record["certificates"][certificate_id] = {**entry, **dates, "certificate": text}
        texts = {entry["kind"]: record["certificates"][key]["certificate"] for key, entry in desired.items()}
        certificates[node["name"]] = {"user": "", "host": "", **texts}
    revoked = revoked_ids(after, params["members"])

    if not check_mode:
        for name, record in after.items():
            if record != before.get(name):
                write(directory / "nodes" / f"{name}.json", f"{json.dumps(record, indent=1)}\n")
        if is_new or revoked != revoked_before or not (directory / "revoked.krl").exists():
            write_revoked(directory, revoked)
    krl = directory / "revoked.krl"
    return {
        "changed": is_new or after != before or revoked != revoked_before,
        "diff": {"before": summary(before, revoked_before), "after": summary(after, revoked)},
        "public_key": authority,
        "certificates": certificates,
        "revoked": revoked,
        "revoked_list": base64.b64encode(krl.read_bytes()).decode() if krl.exists() else "",
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = update_authority(module.params, module.check_mode)
    except AuthorityError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"Cannot update the authority in {module.params['directory']}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
