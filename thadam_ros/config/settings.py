# SPDX-License-Identifier: Apache-2.0
"""What a dataclass field says about its setting, and how the fields of a record are laid out.

The configuration dataclasses carry their document schema as ``Annotated`` metadata: one
:class:`Setting` per field. :func:`layout` turns a dataclass into the keys a document may use there,
following the record's ``type`` or ``kind`` where that decides which keys exist. The loader, the
canonical form, the ROS parameters, the JSON Schema and the reference page all walk this layout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from thadam_ros.config.kinds import Kind


class Missing:
    """The type of :data:`MISSING`: there is no value and no default."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


@dataclass(frozen=True)
class Record:
    """A map with fixed keys, made into ``cls``; text stands for ``{short: text}``."""

    cls: type[Any]
    short: str = ""


@dataclass(frozen=True)
class MapOf:
    """A map by name.

    Attributes:
        value: What each entry is.
        key: Kind of the names.
        noun: What an entry is called in messages.
        names: The parameter that lists the names, such as ``dataset_names``.
        ordered: Spelled as a list of items with ``name`` in documents (``transforms``).
    """

    value: Kind | Record
    key: Kind
    noun: str
    names: str = ""
    ordered: bool = False


@dataclass(frozen=True)
class Inline:
    """The keys of ``cls`` stand in the surrounding record."""

    cls: type[Any]


@dataclass(frozen=True)
class OptionsBy:
    """Keys that only some types have, kept as a plain mapping from key to typed value."""

    by: Mapping[str, type[Any]]


Shape = Kind | Record | MapOf | Inline | OptionsBy


@dataclass(frozen=True)
class Setting:
    """One field of a configuration dataclass as a document sees it.

    Attributes:
        shape: Leaf kind or composite.
        key: Spelling in documents, when it is not the attribute name; ``a.b`` is a nested map.
        doc: One or two sentences for the reference, the JSON Schema and ROS descriptors.
        row: The value can change a row, so it is part of row hashes.
        only: Types (of the surrounding record) that have this key; empty means all.
        key_for: Type -> spelling, where that differs.
        default_for: Type -> factory of the default, where that differs.
        assumed: Factory of the default where the dataclass itself has none.
        default_text: How the reference shows a default that is decided later.
        discriminator: The value decides which other keys the record has.
    """

    shape: Shape
    doc: str = ""
    key: str = ""
    row: bool = False
    only: tuple[str, ...] = ()
    key_for: Mapping[str, str] = field(default_factory=dict)
    default_for: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    assumed: Callable[[], object] | None = None
    default_text: str = ""
    discriminator: bool = False


@dataclass(frozen=True)
class Slot:
    """One key of a record.

    Attributes:
        target: Attribute path inside the instance: ``("commit",)``, ``("ros2", "also")``,
            or ``("options", key)``.
        types: The types that have this key; empty means all.
    """

    key: str
    target: tuple[str, ...]
    setting: Setting
    default: object
    types: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        """There is no default."""
        return self.default is MISSING


@dataclass(frozen=True)
class Layout:
    """All keys of a record.

    Attributes:
        slots: Key -> slot; a key with dots is a nested map.
        foreign: Keys that exist for other types only -> those types.
        discriminator: The key that decides, or empty.
        known: The type is one of the valid ones, or nothing depends on a type.
    """

    slots: Mapping[str, Slot]
    foreign: Mapping[str, tuple[str, ...]]
    discriminator: str = ""
    known: bool = True


def settings_of(cls: type[Any]) -> Mapping[str, tuple[Setting, object]]:
    """Return attribute -> (setting, default or MISSING) of a configuration dataclass."""
    key: Any = cls
    return _settings_of(key)


@cache
def _settings_of(cls: Any) -> Mapping[str, tuple[Setting, object]]:
    hints = get_type_hints(cls, include_extras=True)
    found: dict[str, tuple[Setting, object]] = {}
    for item in dataclasses.fields(cls):
        hint = hints[item.name]
        if get_origin(hint) is not Annotated:
            continue
        setting = next((a for a in get_args(hint)[1:] if isinstance(a, Setting)), None)
        if setting is None:
            continue
        default: object = MISSING
        if item.default is not dataclasses.MISSING:
            default = item.default
        elif item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
        elif setting.assumed is not None:
            default = setting.assumed()
        found[item.name] = (setting, default)
    return found


def discriminator_of(cls: type[Any]) -> str:
    """Return the key that decides which other keys a record has, or empty."""
    for attribute, (setting, _) in settings_of(cls).items():
        if setting.discriminator:
            return setting.key or attribute
    return ""


def types_of(cls: type[Any]) -> tuple[str, ...]:
    """Return the values of the discriminator."""
    for setting, _ in settings_of(cls).values():
        if setting.discriminator:
            return tuple(getattr(setting.shape, "values", ()))
    return ()


def layout(cls: type[Any], of_type: str = "") -> Layout:
    """Return the keys of ``cls`` when its discriminator is ``of_type``.

    An unknown ``of_type`` gives the union of all types' keys, so that a wrong type is one
    problem and not one per key.
    """
    key: Any = cls
    return _layout(key, of_type if of_type in types_of(cls) else "")


@cache
def _layout(cls: Any, of_type: str) -> Layout:
    known = of_type in types_of(cls)
    slots: dict[str, Slot] = {}
    foreign: dict[str, tuple[str, ...]] = {}

    def place(key: str, slot: Slot, types: tuple[str, ...]) -> None:
        if types and known and of_type not in types:
            if key not in slots:
                foreign[key] = tuple(dict.fromkeys((*foreign.get(key, ()), *types)))
            return
        slots[key] = replace(slot, types=types)
        foreign.pop(key, None)

    for attribute, (setting, default) in settings_of(cls).items():
        shape = setting.shape
        if isinstance(shape, Inline):
            for inner, (sub, sub_default) in settings_of(shape.cls).items():
                key = sub.key or inner
                place(key, Slot(key, (attribute, inner), sub, sub_default), setting.only)
        elif isinstance(shape, OptionsBy):
            for type_name, options in shape.by.items():
                for inner, (sub, sub_default) in settings_of(options).items():
                    key = sub.key or inner
                    place(key, Slot(key, (attribute, key), sub, sub_default), (type_name,))
        else:
            if of_type in setting.default_for:
                default = setting.default_for[of_type]()
            for key, types in _spellings(attribute, setting):
                place(key, Slot(key, (attribute,), setting, default), types)
    return Layout(slots, foreign, discriminator_of(cls), known or not discriminator_of(cls))


def _spellings(attribute: str, setting: Setting) -> list[tuple[str, tuple[str, ...]]]:
    key = setting.key or attribute
    if not setting.key_for:
        return [(key, setting.only)]
    by_key: dict[str, list[str]] = {}
    for type_name, spelled in setting.key_for.items():
        by_key.setdefault(spelled, []).append(type_name)
    return [(spelled, tuple(types)) for spelled, types in by_key.items()]
