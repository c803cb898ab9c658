# SPDX-License-Identifier: Apache-2.0
"""The command ``thadam``: one verb per file, no ROS needed (spec 7.5)."""
