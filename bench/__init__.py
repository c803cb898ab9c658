# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: ratios measured in one run, against floors and targets (``scripts/bench``).

A benchmark is a module with ``run(seconds: float)``. ``seconds`` sizes its input; it returns a
mapping, or a list of them, with

=========== ======================================================================
``name``    what is measured
``ratio``   ours against the reference, higher is better
``floor``   below it the work is not done
``target``  what is aimed at
``details`` figures behind the ratio, units last in their names (optional)
=========== ======================================================================
"""
