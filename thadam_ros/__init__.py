# SPDX-License-Identifier: Apache-2.0
"""Captures what robots say and turns it into typed tables without losing anything.

The layers, top to bottom (a module imports only from its own layer or below)::

    node, launch                rclpy, lifecycle, parameters, diagnostics
    cli                         arguments, terminal
    runtime                     wiring, states, supervision
    chain, files                one concern each
    sinks, publish, quarantine  delivery and its safety
    dataset, transforms, decode pure functions over columns and bytes
    wal                         the write-ahead log
    model, config, storage, errors

Everything below ``node`` runs without ROS.
"""

import pkgutil

# A colcon workspace installs the generated ``thadam_ros.msg`` beside this file, but a source
# tree on sys.path (tests, pip install -e) shadows it unless the path is extended.
__path__ = pkgutil.extend_path(__path__, __name__)

__version__ = "0.1.0"
