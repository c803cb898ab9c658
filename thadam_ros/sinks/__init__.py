# SPDX-License-Identifier: Apache-2.0
"""Stores that rows are delivered to, one folder per type (spec 5.1)."""
