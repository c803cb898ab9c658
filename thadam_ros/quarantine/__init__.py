# SPDX-License-Identifier: Apache-2.0
"""Rejects made durable: staging, identities, the ``_quarantine`` dataset (spec 4.3).

Format of ``<chain_dir>/staging/``, version 1, integers little-endian::

    <number, 8 digits>.staging     segments, numbers ascend, only the last one grows

    segment   header, then records without padding
    header    magic  8 bytes  b"THADSTG\\0"
              version     u32  1
              crc         u32  CRC32C of the 12 bytes before
    record    magic  4 bytes  b"RJCT"
              body_bytes  u32  length of the body
              offset      u64  of this record in its segment
              body_crc    u32  CRC32C of the body
              head_crc    u32  CRC32C of the 20 bytes before
              body:
              identity   16 bytes
              meta_bytes  u32
              meta        JSON array, see META_FIELDS in format.py
              raw         the rest: the first 64 KiB of the message

A record carries its own offset, so that a copy of a record inside somebody's raw bytes is never
taken for one when a damaged head makes the reader search.

**Identity.** xxh3_128 over (epoch, position, record, sample, dataset, row hash, domain). A reject
whose identity is known is not appended, so a restart, a rewind or a second reading of the WAL
writes nothing twice.

**Append.** All new records of a call in one write, one fsync, and only then do they count. A call
that raises counts nothing; the next one first cuts the segment back to its last good end.

Recovery by ``Staging.open``, the only one that changes files; readers skip the same ranges:

======================================  ============================================================
found                                   outcome
======================================  ============================================================
last segment ends inside a record, or   torn: cut off, counted; its rejects were never
its last record fails its CRC           acknowledged and come again from the WAL
whole records after the last fsync      kept, after an fsync: unacknowledged, yet known from now on
body fails its CRC, head is intact      damaged: exactly this record is skipped and reported
head fails its CRC                      damaged: reading goes on at the next intact record
no intact header                        damaged up to the first intact record; in the last segment
                                        without any record: torn
another version                         FormatError that names both
======================================  ============================================================
"""
