# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: bucket_move
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Copy a bucket of S3 into another region
description:
  - Makes a bucket in the region and has S3 copy all objects into it, in parallel. No object comes through the machine
    on which Ansible runs. Metadata, tags and storage classes are kept.
  - Run again after an interruption, it goes on where it was. Objects that are there with the same size and checksum
    are left.
  - Proves at the end that number, sizes and checksums of all objects are the same.
  - The source is never changed, and nothing is deleted. Only current versions of objects are copied, without
    access control lists.
  - In check mode it tells the number of objects, bytes and requests, and the price, and copies nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
requirements:
  - boto3 in the Python of C(ansible-playbook)
options:
  source:
    description: Name of the bucket to be copied.
    type: str
    required: true
  target:
    description: Name of the new bucket. It is made where it is not there.
    type: str
    required: true
  region:
    description: Region of the new bucket.
    type: str
    required: true
  endpoint_url:
    description: URL of an S3 that is not Amazon's.
    type: str
    default: ""
  access_key_id:
    description: >-
      description:
        - Access key. If empty, boto3 looks for credentials itself, as in C(AWS_ACCESS_KEY_ID), C(AWS_PROFILE) and
          C(~/.aws). They need to read the source and to write to the target.
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
      description:
        - Whether objects of the target that have another content than the source's are written over. Otherwise they are
          named, and nothing is copied.
    type: bool
    default: false
  workers:
    description: Requests at a time.
    type: int
    default: 16
  price_per_gb:
    description: >-
      description:
        - Price of 10^9 bytes from region to region, in USD. The default is that of most pairs of regions in the United
          States and Europe in January 2026, by U(https://repost.aws/articles/ARjzluyMS8RbeOOK4MGXRG6Q/). Look your
          regions up at U(https://aws.amazon.com/s3/pricing/). Within a region nothing is charged.
    type: float
    default: 0.02
  price_per_1000_requests:
    description: >-
      description:
        - Price of 1000 requests that copy or list, in USD. The default is that of the class Standard in us-east-1, by
          U(https://aws.amazon.com/s3/pricing/).
    type: float
    default: 0.005
  show_every:
    description: Seconds between two lines of progress.
    type: int
    default: 10
"""

EXAMPLES = r"""
- name: Move the training data to where the GPUs are
  muster.training.bucket_move:
    source: my-data-frankfurt
    target: my-data-virginia
    region: us-east-1
"""

RETURN = r"""
created:
  description: Whether the target was not there, and was made.
  returned: success
  type: bool
  sample: true
objects:
  description: Objects in the source.
  returned: success
  type: int
  sample: 120000
bytes:
  description: Their size.
  returned: success
  type: int
  sample: 2000000000000
copied:
  description: Objects that were copied; in check mode, that would be.
  returned: success
  type: int
  sample: 120000
copied_bytes:
  description: Their size.
  returned: success
  type: int
  sample: 2000000000000
requests:
  description: Requests that are charged.
  returned: success
  type: int
  sample: 120360
price:
  description: What is charged for transfer and requests, in USD.
  returned: success
  type: float
  sample: 40.6
verified:
  description: Objects that were compared at the end.
  returned: when not in check mode
  type: int
  sample: 120000
verified_by_size:
  description: Those of them of which only the sizes could be compared, since they are encrypted with keys of KMS.
  returned: when not in check mode
  type: int
  sample: 0
extra:
  description: Objects that only the target has.
  returned: when not in check mode
  type: int
  sample: 0
"""
