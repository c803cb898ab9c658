# SPDX-License-Identifier: Apache-2.0
"""The write-ahead log: what a source said, made durable before anything else happens (spec 2).

This text is the format, version 1. All integers are little endian.

Files of ``<data_dir>/wal/``
============================

===================================  ========================================================
``LOCK``                             flock of the one writer; says who holds it
``durable``                          the durable mark, one page
``RETAIN.lock``                      flock: exclusive while segments are deleted, shared while a
                                     chain's cursor is lowered
``<ordinal>-<epoch>-<first>.wal``    a segment: 8 decimal, 16 hex, 20 decimal digits, so that
                                     names sort in reading order
``<segment>.<start>.torn``           a torn tail that recovery cut off, from byte ``start`` on
``<segment>.<start>-<end>.damaged``  a copy of bytes that do not verify; they stay in the segment
``<segment>.suspect``                a segment whose fsync failed before it held a durable frame
===================================  ========================================================

Segment
=======

A segment header, then frames without anything between them. The header is 80 bytes and stands
twice in a row: one damaged spot costs a copy, not the segment. ``magic``, ``version`` and
``size`` stay where they are in every version, and so does the CRC, in the last 4 of ``size``
bytes; a version is believed only when the CRC verifies.

====== ==== ====================================================================
offset size field of a header copy
====== ==== ====================================================================
0      8    magic ``THADAMWL``
8      4    format version, 1
12     4    size of a copy, 80
16     8    epoch: random, not 0, 63 bits
24     8    ordinal of the epoch, from 0
32     8    first position: that of the first data frame, also in the file name
40     8    creation time, ns since the Unix epoch (signed)
48     8    sync marker: 8 random bytes, drawn for this segment alone
56     8    first position of the segment before (signed), -1 for none
64     8    bytes of the segment before that belong to the log
72     4    ordinal of the segment before
76     4    CRC32C of bytes 0..76
====== ==== ====================================================================

Frame
=====

A 96-byte header, a body, zeros up to the next multiple of 8.

====== ==== ====================================================================
offset size field of a frame header
====== ==== ====================================================================
0      8    the segment's sync marker
8      8    epoch
16     8    position
24     4    ordinal
28     4    body bytes, padding excluded
32     1    kind: 1 data, 2 declaration
33     1    flags: bit 0 clock_synced
34     1    codec: 0 none, 1 zstd
35     1    0
36     4    source reference
40     8    ingest time: wall clock when the first batch was accepted, ns (signed)
48     8    CLOCK_BOOTTIME at the same moment, ns (signed)
56     16   boot id
72     4    number of records n (declarations: entries)
76     4    attribute bytes, 0 when unused
80     8    payload bytes, uncompressed
88     4    CRC32C of body and padding
92     4    CRC32C of bytes 0..92
====== ==== ====================================================================

Body of a **data** frame, every section on an 8-byte boundary:

=========  ====================================================================
8n         int64 ingest time of each record, ns
8n         int64 source timestamp, ns, 0 unknown
8n         uint64 publisher sequence number + 1, 0 unknown
8(n + 1)   int64 offsets into the uncompressed payload bytes, the first 0
4n         uint32 topic reference
4n         uint32 publisher reference, 0 unknown
a          attributes, only when used: a JSON object, record index -> object of
           strings; padded to 8 with zeros
rest       payload bytes of all records, one after another; the codec covers these
=========  ====================================================================

A reader maps the arrays where they lie; a writer fills them in one pass. Batches of one source
and one clock state that wait for the same commit are one frame, up to ``commit_bytes``; a larger
record has a frame of its own.

Body of a **declaration** frame: a JSON array of objects (the codec covers all of it), each with
``kind`` and ``ref``: ``topic`` with the fields of ``model.message.TopicDeclaration``, ``publisher``
with ``gid`` (hex), ``source`` with ``name``. Other kinds and keys are passed over.

Invariants
==========

1. Positions are dense and rise by one per data frame, across segments, inside an epoch. The total
   order is (ordinal, position). A position that was ever durable is never used again.
2. A declaration frame consumes no position: it carries that of the next data frame. A data frame
   uses only references declared before it in the same segment. Each declaration is written twice,
   for without it a whole segment could not be decoded. References start at 1.
3. Every byte of a segment is under a CRC: header copies, frame headers, bodies with their padding.
4. A frame is durable when ``fdatasync`` (for a segment's first frames: and the directory's fsync)
   returned **and then** the mark moved. Nothing below the mark changes afterwards; readers never
   look above it.
5. A segment ends where the first position of the next one begins, at the byte the next header
   names. What a suspect segment holds beyond is not part of the log.
6. A writer never appends to a segment it did not create itself: each open begins a fresh one,
   with the first frame. The newest segment is never deleted: with it goes the proof of invariant 1.
7. Segments go from the oldest on, each deletion synced before the next: only the beginning of a log
   is ever missing for good, so a hole between two segments is a loss.

Finding frames again
====================

After a header that does not verify, the next one is found by the sync marker: it must be followed
by a header with a right CRC, the segment's epoch and ordinal and a position not below the one
expected. The marker is what keeps bytes apart from frames: a WAL captured as a payload has frames
with right CRCs, but another segment's marker. Its own segment's earlier frames, should they be
captured, have lower positions. Where both header copies are lost the file name gives the epoch,
the first frame that fits it gives the marker. A frame whose header verifies is skipped by its
length, its payload is never searched.

The durable mark
================

One 4096-byte page with a slot at 0 and one at 2048, written one after the other: one is whole at
any moment, and both say the same at rest. Slot: magic ``THADAMDM``, version u32 (1), CRC32C u32 of
what follows: counter u64, epoch u64, ordinal u64, position i64 (-1: the epoch has no frame yet),
ordinal u64 and first position i64 (-1: none) of the segment in which the log ends, u64 one past its
last durable byte. The verified slot with the higher counter is in force; a page with none is
reported and leaves a reader where it was, and the writer's next commit or open rebuilds it. The
writer writes it through the file (a full disk is then an error and not a SIGBUS), readers map it.
Losing the page loses no frame.

Recovery at open
================

Only the newest segment is scanned, frame by frame; what readers and ``fsck`` find in older ones
is classed the same way.

=============================  ==============================================================
found                          done
=============================  ==============================================================
no valid frame header          torn: cut after the last valid frame, the bytes moved to a
follows and the position is    ``.torn`` file, counted; a file with nothing valid is moved
above the mark                 whole, and the one before it is the newest
anything else that does not    damage: skipped up to the next valid header, copied to a
verify                         ``.damaged`` file, counted; later frames are delivered
a segment is missing           a gap with its positions; reading goes on
a cursor beyond the end        the next frame begins a new epoch: ordinal + 1, position 0;
                               chains inside the older epoch finish it first
another version or magic       refused (:class:`~thadam_ros.errors.FormatError`)
the mark is lost               nothing is exposed, so all that does not verify at the end is
                               torn; the mark is rebuilt
=============================  ==============================================================

The valid tail above the mark is written again in place and then fsynced before it is exposed:
after a failed fsync the kernel keeps unwritten pages as clean, and syncing them again would
return without writing.

Crash windows of a commit
=========================

=======================================  ====================================================
crash after                              next open finds
=======================================  ====================================================
the file is created                      an empty or headerless file: moved aside whole
some of the write                        a torn tail above the mark: cut
the write, before fdatasync              any part of it: a valid prefix is exposed, the rest cut
fdatasync, before the mark moved         whole frames above the mark: exposed
a failed fdatasync                       the same; rewritten before they are exposed
the fresh segment's header, same cause   its first position ends the suspect; nothing is served
                                         twice because a segment ends where the next begins
=======================================  ====================================================

A commit that the disk refuses (ENOSPC, EDQUOT) is taken back by truncation and tried again with
the same frames; append refuses once the pending bytes reach their ceiling. A failed fdatasync is
never repeated on the same file: the frames go to a fresh segment under the same positions, and if
that fails too the writer is failed with the first error.

Letting segments go
===================

Deleted is what lies before the segment of the durable mark, when the cursor of every configured
chain has reached the place before the next segment's first frame and ``replay_window`` does not
want it. The window, and with ``drop_oldest`` also what a chain still wants, yields when less than
one segment of headroom is left to ``budget`` or ``min_free``, or the disk refused a write.

=======================================  ====================================================
crash after                              next open finds
=======================================  ====================================================
a cursor's rename, before its folder's   the older cursor and every segment it needs: a pass syncs
fsync                                    the folders of the cursors it read before it deletes
unlink, before the directory's fsync     the segment or not: nobody wanted it
a lowered cursor is durable, before its  the lowered cursor; a range that is gone is a gap
segment was found to be there
=======================================  ====================================================

Who has a segment open reads it to its end. Who comes too late meets a gap with its positions.

Why this layout
===============

``bench/wal_append.py --layouts``, one frame of 12 945 records of 324 bytes (4 MiB), microseconds on
two cores of a busy machine:

======================================================================  ==========  ==============
question                                                                chosen      instead
======================================================================  ==========  ==============
record headers as arrays, or one in front of each payload               about 1000  5700 to 10 100
payloads joined and written as one buffer, or pwritev of every payload  240 to 530  6200 to 26 400
CRC32C over the joined payload, or payload by payload                   130         1070 to 1190
one column from a list of int: struct, or array.array                   150         210
int64 offsets read as they lie, or u32 widened, or u32 lengths summed   0.3         1.9, or 7.6
======================================================================  ==========  ==============

numpy is as fast as struct for a column, but wraps values out of range before version 2.
"""
