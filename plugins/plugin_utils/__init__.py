# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Code shared by the controller's plugins. Python executes this file before the first import from this package."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._compiled_modules import use_compiled_modules

use_compiled_modules()
