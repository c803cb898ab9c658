# SPDX-License-Identifier: Apache-2.0
"""CDR bytes into columns: definitions, a slow reference decoder and the fast column decoder.

Pure functions over bytes and columns: no clock, no random. Only :mod:`.catalog` reads files, and
only capture, import and validation use it. What becomes of every kind of malformed input is
listed in ``docs/decoding.md``.
"""
