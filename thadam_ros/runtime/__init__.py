# SPDX-License-Identifier: Apache-2.0
"""Wiring: a configuration becomes a WAL, chains, states and status files; no ROS, no terminal."""
