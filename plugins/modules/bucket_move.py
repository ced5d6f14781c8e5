# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: bucket_move
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Copy an S3 bucket to another region
description:
  - Creates a bucket in the region and has S3 copy all objects into it, in parallel. No object passes through the
    machine that runs Ansible. Metadata, tags and storage classes are kept.
  - If run again after an interruption, it continues where it stopped. Objects that exist in the target with the same
    size
    and checksum are skipped.
  - Finally verifies that the number, sizes and checksums of the objects match.
  - The source is never changed, and nothing is deleted. Only current versions of objects are copied, without
    access control lists.
  - In check mode, shows the number of objects, bytes and requests, and the price, and copies nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
requirements:
  - boto3 in the Python of C(ansible-playbook)
options:
  source:
    description: Name of the bucket to copy.
    type: str
    required: true
  target:
    description: Name of the new bucket. Created if missing.
    type: str
    required: true
  region:
    description: Region of the new bucket.
    type: str
    required: true
  endpoint_url:
    description: URL of an S3 service other than Amazon's.
    type: str
    default: ""
  access_key_id:
    description: >-
      Access key. If empty, boto3 searches its usual sources, such as E(AWS_ACCESS_KEY_ID), E(AWS_PROFILE) and
      C(~/.aws). The credentials must allow reading the source and writing to the target.
    type: str
    default: ""
  secret_access_key:
    description: Secret that belongs to O(access_key_id).
    type: str
    default: ""
  session_token:
    description: Session token, for credentials that expire.
    type: str
    default: ""
  replace:
    description: >-
      Overwrite objects in the target whose content differs from the source's. Otherwise the module fails, names them
      and copies nothing.
    type: bool
    default: false
  workers:
    description: Number of concurrent requests.
    type: int
    default: 16
  price_per_gb:
    description: >-
      Price of transferring 10^9 bytes between regions, in USD. The default applies to most pairs of regions in the
      United States and Europe in January 2026, according to U(https://repost.aws/articles/ARjzluyMS8RbeOOK4MGXRG6Q/).
      Look up your regions at U(https://aws.amazon.com/s3/pricing/). Transfer within a region is free.
    type: float
    default: 0.02
  price_per_1000_requests:
    description: >-
      Price of 1000 copy or list requests, in USD. The default applies to the Standard class in us-east-1, according to
      U(https://aws.amazon.com/s3/pricing/).
    type: float
    default: 0.005
  show_every:
    description: Seconds between two progress lines.
    type: int
    default: 10
"""

EXAMPLES = r"""
- name: Copy the training data to the region of the GPUs
  muster.training.bucket_move:
    source: my-data-frankfurt
    target: my-data-virginia
    region: us-east-1
"""

RETURN = r"""
created:
  description: Whether the target was missing and has been created.
  returned: success
  type: bool
  sample: true
objects:
  description: Number of objects in the source.
  returned: success
  type: int
  sample: 120000
bytes:
  description: Their size.
  returned: success
  type: int
  sample: 2000000000000
copied:
  description: Number of objects that were copied, or in check mode would be.
  returned: success
  type: int
  sample: 120000
copied_bytes:
  description: Their size.
  returned: success
  type: int
  sample: 2000000000000
requests:
  description: Number of requests charged.
  returned: success
  type: int
  sample: 120360
price:
  description: Price of transfer and requests, in USD.
  returned: success
  type: float
  sample: 40.6
verified:
  description: Number of objects compared at the end.
  returned: when not in check mode
  type: int
  sample: 120000
verified_by_size:
  description: Number of these that could be compared by size only, since they are encrypted with KMS keys.
  returned: when not in check mode
  type: int
  sample: 0
extra:
  description: Number of objects that exist only in the target.
  returned: when not in check mode
  type: int
  sample: 0
"""
