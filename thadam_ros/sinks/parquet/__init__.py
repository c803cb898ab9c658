# SPDX-License-Identifier: Apache-2.0
"""The ``parquet`` sink: seal, stamp, deliver (spec 5.1).

::

    <chain_dir>/sealed/<dataset>@<YYYY-MM-DD>T<HH>@<synced|unsynced>@<name>   not yet delivered
    <chain_dir>/target                      the url whose folder was seen once, see below
    <url>/<dataset>/date=YYYY-MM-DD/hour=HH/<name>                            visible
    <url>/<dataset>/unsynced/date=YYYY-MM-DD/hour=HH/<name>                   visible
    <url>/.incoming/<name>.tmp              a copy from another filesystem under way

    <name> = <file_prefix>-<epoch>-<cut_no>-<n>-<xxh3_64 of the file's bytes, 16 hex>.parquet

**Seal.** ``publish`` writes one file per unit (more when ``rotation`` is exceeded): temp, fsync,
rename, fsync of the folder. A call that raises removes what it sealed.
**Stamp.** The cursor, written by the lane, names a cut. A sealed file is stamped when its
``cut_no`` is at or below it; position never decides.
**Deliver.** Only stamped files move: a hard link into the visible folder (a copy in ``.incoming``
and a rename when the folder is on another filesystem or has no links), fsync of the folder,
then the sealed name is removed. ``n`` counts the files of one partition and cut.

Crash windows, all closed by ``open(stamped_cut)``:

==================================  ================================================================
killed                              afterwards
==================================  ================================================================
before the rename                   ``*.tmp`` in sealed/: swept
after the rename, before the stamp  cut above the cursor's: voided, made again from the WAL
after the stamp, before the link    stamped: queued for delivery
after the link, before the unlink   both names exist: the visible one has the same bytes (its name
                                    carries their hash), the sealed one is removed
during a copy                       the temp is overwritten by the next attempt
==================================  ================================================================

The folder ``url`` is created once, when its parent exists; ``target`` remembers that. If it is
gone later, a disk was unmounted or a person removed it: delivery waits for its return instead of
filling the mount point.
"""
