# SPDX-License-Identifier: Apache-2.0
"""One chain per sink: durable frames in, whole-frame submissions out (spec 4.1).

A chain is synchronous and pure: it has no thread, no clock and no random source. Everything that
can change a row lives in its state, a snapshot of which belongs to one frame boundary.

On disk (``<data_dir>/chains/<sink>/``)::

    LOCK             flock, names the holder
    cursor           JSON: format, ordinal, epoch, position, cut_no, state (file name),
                     state_crc32c, crc32c (over the canonical JSON without this key)
    state-<cut_no>   JSON: format, config_hash, pipelines, counts

Crash windows: the state file is written and fsynced under a name the cursor does not yet hold,
then the cursor is renamed over the old one; that rename commits both. Before it, the old cursor
names the old state, and the new state file is unnamed and deleted on open. After it, older state
files are unnamed and deleted.
"""
