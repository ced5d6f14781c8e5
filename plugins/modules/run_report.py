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
  - Creates C(report.html) from the record of a run, a page without scripts that opens from disk, with C(report.json)
    (all its numbers), C(curves.json), and in C(plots) each plot as C(.svg), C(.png) and a Vega-Lite specification.
  - Writes a page about the run and the table of all runs into the logbook. Anything below the line C(<!-- notes -->)
    of such a page is kept.
  - For several runs, creates a page that compares them, differing settings first. Also creates missing reports.
  - Plots need the Python package C(vl-convert-python) on the controller. Without it, the report has no plots and
    explains how to install it.
  - The nodes' measurements are read from C(logs) in the record, into which M(muster.training.run_logs) fetches them.
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
      - The run, or the runs to compare, 20 at most. A unique prefix of a name is enough.
      - If empty, defaults to the most recently launched run.
    type: list
    elements: str
    default: []
  directory:
    description:
      - Directory of the records on the controller.
      - If empty, defaults to C(launch_runs_directory) of the first host of O(group), otherwise C(runs).
      - A relative path is resolved against the directory of this host's inventory.
    type: path
    default: ""
  logbook:
    description:
      - Directory of the logbook.
      - If empty, defaults to C(logbook) next to the directory of the records.
    type: path
    default: ""
  report_directory:
    description:
      - Directory for a comparison.
      - If empty, defaults to one in the logbook that is named after the runs.
    type: path
    default: ""
  required:
    description: Fail if the report cannot be created. Otherwise only warn.
    type: bool
    default: true
  bundle:
    description:
      - Also write C(NAME.tar.gz) into the record, an archive to share when you ask for help. It holds the verdict, the
        plan, how each rank ended, and the last lines of each fetched log, without secrets.
    type: bool
    default: false
seealso:
  - module: muster.training.run_record
  - module: muster.training.run_logs
"""

EXAMPLES = r"""
- name: Ensure the most recent run has a report
  muster.training.run_report:
  run_once: true

- name: Compare two runs
  muster.training.run_report:
    runs: [batch-32, batch-64]
  run_once: true
"""

RETURN = r"""
report:
  description: Path of the page. Empty if it could not be created and O(required) is V(false).
  returned: success
  type: str
  sample: /home/me/cluster/runs/first-try/report.html
bundle:
  description: Path of the archive. Empty without O(bundle).
  returned: when the page was created
  type: str
  sample: /home/me/cluster/runs/first-try/first-try.tar.gz
findings:
  description:
    - The findings about the run, each with C(id), C(severity) (V(problem) or V(hint)), C(about), C(problem), C(remedy)
      and C(numbers). Empty for a comparison.
  returned: when the page was created
  type: list
  elements: dict
plot_error:
  description: Why there are no plots. Empty if there are.
  returned: when the page was created
  type: str
  sample: ""
"""
