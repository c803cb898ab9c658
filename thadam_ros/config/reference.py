# SPDX-License-Identifier: Apache-2.0
"""The tables of ``docs/configuration.md``, generated from the settings.

``python -m thadam_ros.config.reference`` (in a checkout) rewrites them and the JSON Schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from thadam_ros.config.json_schema import json_schema
from thadam_ros.config.kinds import Kind
from thadam_ros.config.schema import Config
from thadam_ros.config.settings import MISSING, MapOf, Record, Slot, layout, types_of

BEGIN: Final = "<!-- generated: settings -->"
END: Final = "<!-- end of generated part -->"


def render_reference() -> str:
    """Return the generated part: one table per section of a document."""
    return "\n".join(_lines()).strip() + "\n"


def _lines() -> Iterator[str]:
    for key, slot in layout(Config).slots.items():
        shape = slot.setting.shape
        if isinstance(shape, Kind):
            continue
        yield f"### `{key}`"
        yield ""
        yield slot.setting.doc
        yield ""
        if isinstance(shape, MapOf) and isinstance(shape.value, Record):
            title = f"{key}[]" if shape.ordered else f"{key}.<name>"
            yield from _tables(shape.value.cls, title)
        elif isinstance(shape, Record):
            yield from _tables(shape.cls, key, None if slot.required else slot.default)


def _tables(cls: type[Any], path: str, base: object = None) -> Iterator[str]:
    types = types_of(cls)
    if not types:
        yield from _table(list(_rows(layout(cls).slots.values(), path, base)))
        return
    common = [s for s in layout(cls, types[0]).slots.values() if not s.types]
    yield from _table(list(_rows(common, path)))
    for of_type in types:
        own = [s for s in layout(cls, of_type).slots.values() if s.types]
        if own:
            yield f"With `{layout(cls).discriminator}: {of_type}`:"
            yield ""
            yield from _table(list(_rows(own, path)))


def _table(rows: list[str]) -> Iterator[str]:
    yield "| key | valid | default | meaning |"
    yield "|---|---|---|---|"
    yield from rows
    yield ""


def _rows(slots: Any, path: str, base: object = None) -> Iterator[str]:
    """Yield a row per setting; ``base`` holds the defaults that the surrounding record decides."""
    for slot in slots:
        if base is not None and len(slot.target) == 1:
            slot = replace(slot, default=getattr(base, slot.target[0]))
        shape, here = slot.setting.shape, f"{path}.{slot.key}"
        if isinstance(shape, Kind):
            yield _row(here, shape.describe(), _default(slot), slot)
        elif isinstance(shape, MapOf) and isinstance(shape.value, Kind):
            yield _row(f"{here}.<{shape.noun}>", shape.value.describe(), "none", slot)
        elif isinstance(shape, MapOf) and isinstance(shape.value, Record):
            inner = layout(shape.value.cls).slots.values()
            yield _row(f"{here}.<{shape.noun}>", _record_text(shape.value), "none", slot)
            yield from _rows(inner, f"{here}.<{shape.noun}>")
        elif isinstance(shape, Record):
            default = "required" if slot.required else "none" if slot.default is None else "below"
            yield _row(here, _record_text(shape), default, slot)
            default_value = None if slot.default is MISSING else slot.default
            yield from _rows(layout(shape.cls).slots.values(), here, default_value)


def _record_text(record: Record) -> str:
    return f"a map, or a pointer alone for `{record.short}`" if record.short else "a map"


def _row(path: str, valid: str, default: str, slot: Slot) -> str:
    doc = slot.setting.doc + (" *" if slot.setting.row else "")
    cells = (f"`{path}`", valid, default, doc)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(slot: Slot) -> str:
    shape = slot.setting.shape
    if slot.required:
        return "required"
    if slot.setting.default_text:
        return slot.setting.default_text
    if slot.default is None or slot.default == () or not isinstance(shape, Kind):
        return "none"
    shown = shape.render(slot.default)
    return f"`{json.dumps(shown) if not isinstance(shown, str) else shown}`"


def schema_text() -> str:
    """Return the text of ``config/thadam.schema.json``."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def replace_generated(page: str) -> str:
    """Return the reference page with its generated part renewed."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{render_reference()}\n{END}{after}"


def main() -> None:
    """Rewrite the generated files of a checkout."""
    root = Path(__file__).resolve().parents[2]
    page = root / "docs" / "configuration.md"
    page.write_text(replace_generated(page.read_text(encoding="utf-8")), encoding="utf-8")
    schema = root / "config" / "thadam.schema.json"
    schema.write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
