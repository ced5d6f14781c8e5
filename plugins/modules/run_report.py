# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_report
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Write the report of a run, or compare several
description:
  - Makes C(report.html) of what the record of a run holds, a page without scripts that opens from a disk, with
    C(report.json) (all its numbers), C(curves.json), and in C(plots) each plot as C(.svg), C(.png) and Vega-Lite
    specification.
  - Writes a page of the run into the log book, and the table of all runs there. What stands below the line
    C(<!-- notes -->) of such a page is kept.
  - Of several runs it makes a page that compares them, settings that differ first. Reports that they do not have yet
    are made, too.
  - Plots need the Python package C(vl-convert-python) on the controller. Without it the rest is there, and says how to
    get it.
  - What nodes have measured is read from C(logs) of the record, into which M(muster.training.run_logs) fetches it.
  - Connects to nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._group
options:
  runs:
    description:
      - The run, or the runs that are compared, 20 at most. The beginning of a name will do where it is that of one run.
      - If empty, the run that was launched last.
    type: list
    elements: str
    default: []
  directory:
    description:
      - Where the records lie on the controller.
      - If empty, what C(launch_runs_directory) of the first host of O(group) says, else C(runs).
      - A relative path begins beside the inventory of this host.
    type: path
    default: ""
  logbook:
    description:
      - Directory of the log book.
      - If empty, C(logbook) beside the directory of the records.
    type: path
    default: ""
  report_directory:
    description:
      - Directory that takes a comparison.
      - If empty, one in the log book that is named after the runs.
    type: path
    default: ""
  required:
    description: Whether the task fails where the report cannot be made. Otherwise there is a warning.
    type: bool
    default: true
seealso:
  - module: muster.training.run_record
  - module: muster.training.run_logs
"""

EXAMPLES = r"""
- name: Make the report of the run that was launched last
  muster.training.run_report:
  run_once: true

- name: Compare two runs
  muster.training.run_report:
    runs: [batch-32, batch-64]
  run_once: true
"""

RETURN = r"""
report:
  description: The page, empty where it could not be made and was not O(required).
  returned: success
  type: str
  sample: /home/me/cluster/runs/first-try/report.html
findings:
  description:
    - What is worth knowing of the run, each with C(id), C(severity) (V(problem) or V(hint)), C(about), C(found),
      C(remedy) and C(numbers). Empty for a comparison.
  returned: when the page was made
  type: list
  elements: dict
without_pictures:
  description: Why there are no plots, empty where there are.
  returned: when the page was made
  type: str
  sample: ""
"""
