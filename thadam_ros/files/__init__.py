# SPDX-License-Identifier: Apache-2.0
"""Files that hold many messages at once: bags, read and written."""
