# SPDX-License-Identifier: Apache-2.0
"""Datasets: declared, typed tables made from decoded messages (spec 3).

``plan`` turns a declaration into a plan once, ``pipeline`` turns record groups into rows with it;
``lock`` pins what must not change under a version.
"""
