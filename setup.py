# SPDX-License-Identifier: Apache-2.0
"""``pip install .``: the core without ROS. In a workspace CMakeLists.txt installs the same tree.

The ranges solve on CPython 3.10 and newer, x86_64 and aarch64, with numpy 1.26 as well as 2
(``scripts/check-dependencies`` proves it).
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
NAME = "thadam_ros"


def read_version() -> str:
    """The version of ``thadam_ros/__init__.py``, without importing it."""
    text = (HERE / NAME / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise SystemExit("thadam_ros/__init__.py declares no __version__")
    return found[1]


def ros_verbs() -> list[str]:
    """Command line verbs that need ROS: one file each, found by the CLI through entry points."""
    verbs = sorted(path.stem for path in (HERE / NAME / "node" / "verbs").glob("[a-z]*.py"))
    return [f"{verb} = {NAME}.node.verbs.{verb}" for verb in verbs]


REQUIRES = [
    "numpy>=1.26,<3",
    "pyarrow>=17,<27",
    "orjson>=3.9,<4",
    "xxhash>=3.4,<5",
    "crc32c>=2.3,<3",
    "pyyaml>=6,<7",
    "pint>=0.23,<0.26",
    "rich>=13,<16",
    "zstandard>=0.22,<1",
    "rosbags>=0.11.6,<0.12",
    "mcap>=1.2.1,<2",
]
EXTRAS = {
    "mqtt": ["paho-mqtt>=2,<3", "protobuf>=5,<8"],
    "clickhouse": ["clickhouse-connect>=0.8,<2"],
    "kafka": ["aiokafka>=0.11,<1"],
    "nats": ["nats-py>=2.9,<3"],
    "s3": ["boto3>=1.34,<2"],
    "test": [
        "pytest>=7.4,<9",
        "hypothesis>=6.100,<7",
        "jsonschema>=4.18,<5",
        "duckdb>=1.1,<3",
        "polars>=1,<3",
        "psutil>=5.9,<8",
    ],
}

setup(
    name=NAME,
    version=read_version(),
    description="Durable capture of robot messages into declared, typed tables",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    author="thadam_ros maintainers",
    author_email="maintainers@thadam-ros.example",
    python_requires=">=3.10",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={NAME: ["py.typed", "**/*.json", "**/*.yaml", "**/*.sql"]},
    install_requires=REQUIRES,
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": [f"thadam = {NAME}.cli.main:main"],
        f"{NAME}.verbs": ros_verbs(),
    },
    zip_safe=False,
)
