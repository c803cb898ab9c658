# SPDX-License-Identifier: Apache-2.0
"""Where message definitions come from on this machine, without ROS.

Only capture, import and validation look here; decoding uses the definition that was stored beside
the data. Order: definitions given to the constructor, the .msg or .idl files under ``share`` of the
installed prefixes, the store of well-known types that comes with rosbags.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore

from thadam_ros.decode.definition import dependencies, normalize_type_name
from thadam_ros.errors import RecordError

SEPARATOR: Final = "=" * 80
_FILE_BYTES_MAX: Final = 1 << 20
_TYPES_MAX: Final = 1_000
#: A definition without fields must not be mistaken for an unknown one.
_NO_FIELDS: Final = "# This message has no fields.\n"
_PACKAGE = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


def ament_prefixes(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the prefixes of ``AMENT_PREFIX_PATH``, first one first."""
    path = (os.environ if environment is None else environment).get("AMENT_PREFIX_PATH", "")
    return tuple(part for part in path.split(os.pathsep) if part)


class TypeCatalog:
    """Full definition texts of message types known on this machine."""

    def __init__(
        self,
        prefixes: Sequence[str] | None = None,
        definitions: Mapping[str, str] | None = None,
        *,
        well_known: bool = True,
    ) -> None:
        """Prepare a catalog.

        Args:
            prefixes: Install prefixes; None for those of ``AMENT_PREFIX_PATH``.
            definitions: Type name -> concatenated definition text that wins over everything.
            well_known: Also answer from the store that comes with rosbags.
        """
        self._prefixes = tuple(ament_prefixes() if prefixes is None else prefixes)
        self._definitions = {
            normalize_type_name(name): text for name, text in (definitions or {}).items()
        }
        self._well_known = well_known
        self._found: dict[str, str | None] = {}

    def definition(self, type_name: str) -> str | None:
        """Return the concatenated definition text of a type, dependencies included.

        Returns:
            Text for :func:`~thadam_ros.decode.definition.parse_definition`, never blank; None
            when the type or one of its dependencies is unknown or its name is no type name.
        """
        try:
            name = normalize_type_name(type_name)
        except RecordError:
            return None
        if name not in self._found:
            self._found[name] = self._look_up(name)
        return self._found[name]

    def _look_up(self, name: str) -> str | None:
        given = self._definitions.get(name)
        if given is not None:
            return given if given.strip() else _NO_FIELDS
        try:
            return self._installed(name) or self._stored(name)
        except RecordError:
            # An installed file that no parser understands is as good as none.
            return self._stored(name)

    def _installed(self, name: str) -> str | None:
        """Concatenate installed interface files; None when one is missing here."""
        parts: list[str] = []
        seen: set[str] = set()
        pending = [name]
        while pending:
            wanted = pending.pop(0)
            if wanted in seen:
                continue
            seen.add(wanted)
            found = self._read(wanted)
            if found is None or len(seen) > _TYPES_MAX:
                return None
            kind, text = found
            if kind == "IDL":
                parts.append(f"{SEPARATOR}\nIDL: {wanted}\n{text}")
            elif parts:
                package, _, short = wanted.split("/")
                parts.append(f"{SEPARATOR}\nMSG: {package}/{short}\n{text}")
            else:
                parts.append(text if text.strip() else _NO_FIELDS)
            pending.extend(dependencies(text, wanted, idl=kind == "IDL"))
        return "\n".join(part.rstrip("\n") for part in parts) + "\n"

    def _read(self, name: str) -> tuple[str, str] | None:
        """Return kind (MSG, IDL) and text of an installed interface file; .msg is preferred."""
        parts = name.split("/")
        if len(parts) != 3 or not all(_PACKAGE.fullmatch(part) for part in parts):
            return None
        for prefix in self._prefixes:
            for kind in ("MSG", "IDL"):
                path = Path(prefix, "share", parts[0], parts[1], f"{parts[2]}.{kind.lower()}")
                try:
                    with path.open("rb") as file:
                        raw = file.read(_FILE_BYTES_MAX + 1)
                except OSError:
                    continue
                if len(raw) <= _FILE_BYTES_MAX:
                    return kind, raw.decode("utf-8", "replace")
        return None

    def _stored(self, name: str) -> str | None:
        if not self._well_known or name not in _store().fielddefs:
            return None
        text, _ = _store().generate_msgdef(name, ros_version=2)
        return text if text.strip() else _NO_FIELDS


@lru_cache(maxsize=1)
def _store() -> Typestore:
    return get_typestore(Stores.LATEST)
