# SPDX-License-Identifier: Apache-2.0
"""From submissions to stamped cuts: buffers, lane, cut (spec 5.2).

Who holds a row, at every instant::

    chain step      the chain's local variables; lost on a raise, re-read from the WAL
    submission      appended to the buffers under one lock, whole or not at all
    buffers         own every row until it is *settled*; the lane borrows rows to publish them and
                    removes them only after the driver said they are durable
    driver          makes borrowed rows durable; a raise leaves them in the buffers untouched
    stamped         the cursor passed them; the store alone holds them

Since a row leaves the buffers only after it is durable in the store, a publish that raises
anywhere, whatever it raises, has nothing to give back. A unit whose publish began and raised is
remembered and published again as the same unit: same rows, same order, same object name.
"""
