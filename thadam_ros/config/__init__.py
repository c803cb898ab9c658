# SPDX-License-Identifier: Apache-2.0
"""Configuration: one schema, two spellings (YAML and ROS parameters), one loader (spec 3.7)."""
