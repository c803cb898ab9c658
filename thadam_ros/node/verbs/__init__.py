# SPDX-License-Identifier: Apache-2.0
"""Command line verbs that need ROS, and what other verbs need of it; found by entry point."""
