# SPDX-License-Identifier: Apache-2.0
"""Durable files: the filesystem seam, atomic replacement, directory locks (spec 1.5)."""
