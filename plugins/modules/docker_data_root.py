# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: docker_data_root
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Move the data of a Docker engine to another directory
description:
  - Stops the engine, copies its images, containers and volumes, compares the copy, sets C(data-root) and starts the
    engine there. If a step fails, restores the previous settings and data.
  - Fails while containers are running or if the disk is too small. Needs root.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.all
attributes:
  check_mode: {support: full}
  diff_mode: {support: full, details: The directory.}
  platform: {platforms: linux}
options:
  path:
    description: Absolute path of a directory that is empty or does not exist yet.
    type: str
    required: true
  spare_gib:
    description: Space that must remain free on the disk of O(path), in GiB.
    type: int
    default: 5
  delete_old:
    description: Delete the old data once the engine runs with the copy.
    type: bool
    default: false
  engine_expected:
    description: In check mode without an engine, report a change, not a failure, since it will be installed first.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Move Docker's data to the large disk
  muster.training.docker_data_root:
    path: /data/docker
  become: true
"""

RETURN = r"""
previous:
  description: The previous data directory of the engine.
  returned: success
  type: str
  sample: /var/lib/docker
"""

import shutil
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils._containers import data_root

ARGUMENT_SPEC: dict[str, Any] = {
    "path": {"type": "str", "required": True},
    "spare_gib": {"type": "int", "default": 5},
    "delete_old": {"type": "bool", "default": False},
    "engine_expected": {"type": "bool", "default": False},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    path, spare, delete = (module.params[name] for name in ("path", "spare_gib", "delete_old"))
    if module.check_mode and module.params["engine_expected"] and not shutil.which("docker"):
        module.exit_json(changed=True, previous="", diff={"before": "", "after": f"data-root {path}\n"})
    try:
        changed, former = data_root.ensure(path, spare, delete, module.check_mode)
    except (data_root.DataRootError, OSError) as error:
        module.fail_json(msg=f"Docker's data was not moved: {error}.")
    except data_root.OldDataError as error:
        module.fail_json(msg=f"{error}.")
    diff = {"before": f"data-root {former}\n", "after": f"data-root {path}\n"}
    module.exit_json(changed=changed, previous=former, diff=diff)


if __name__ == "__main__":
    main()
