# SPDX-License-Identifier: Apache-2.0
"""Types without logic that every layer shares: positions, messages, events, quality, states."""
