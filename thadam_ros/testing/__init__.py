# SPDX-License-Identifier: Apache-2.0
"""Public tools for tests: builders, oracles, fault points."""
