# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_engine_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Look up an image in a container engine
description:
  - Looks up an image in Docker or Podman, as the user who runs the module, and inspects an archive and a build context
    from which it could be created. Changes nothing.
  - An archive or build context that does not exist on this machine is omitted from the result.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - muster.training._attributes.info
options:
  engine:
    description: Container engine. If empty, no engine is queried.
    type: str
    choices: ["", docker, podman]
    default: ""
  name:
    description: Name of the image. Empty means none.
    type: str
    default: ""
  archive:
    description: Path of an archive, as C(docker save) writes it. Empty means none.
    type: str
    default: ""
  context:
    description: Path of a build context, a directory with a Dockerfile. Empty means none.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Look up the image in the engine
  muster.training.container_engine_info:
    engine: docker
    name: pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime
  register: image

- name: Check that each node has the engine
  ansible.builtin.assert:
    that: image.engine_error | length == 0
    fail_msg: "{{ image.engine_error }}"
"""

RETURN = r"""
engine_error:
  description: Error of the engine or the archive. Empty if there is none.
  returned: success
  type: str
  sample: there is no docker
id:
  description: Digest of the image in hexadecimal. Empty if the engine does not have it.
  returned: success
  type: str
  sample: 6b2c9ad6d7b1c0ee0f3bd1a50c9b3a5b2f1c30fb2a28f02d7c8f1d5c2cf8e6a1
size:
  description: Size of the image in bytes.
  returned: success
  type: int
  sample: 7516192768
label:
  description: Hash of the build context, if the image was built on this machine.
  returned: success
  type: str
  sample: ""
root:
  description: Directory in which the engine stores images.
  returned: if an engine responds
  type: str
  sample: /var/lib/docker
free:
  description: Free space there, in bytes.
  returned: if an engine responds
  type: int
  sample: 64424509440
archive:
  description: Digests that an engine may report for the image in the archive.
  returned: success
  type: list
  elements: str
  sample: []
context:
  description: Hash of the files in the build context. Empty without one.
  returned: success
  type: str
  sample: ""
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.muster.training.plugins.module_utils._containers.image_transfer import inspect

ARGUMENT_SPEC: dict[str, Any] = {
    "engine": {"type": "str", "choices": ["", "docker", "podman"], "default": ""},
    "name": {"type": "str", "default": ""},
    "archive": {"type": "str", "default": ""},
    "context": {"type": "str", "default": ""},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.exit_json(changed=False, **inspect(module.params))


if __name__ == "__main__":
    main()
