# SPDX-License-Identifier: Apache-2.0
"""What the pointers of a dataset name, and what the decoder has to give for them (spec 3.2)."""

from __future__ import annotations

from thadam_ros.config.schema import DatasetConfig
from thadam_ros.dataset.message import (
    Leaf,
    Shape,
    element_leaf,
    find_leaf,
    nearest_pointer,
)
from thadam_ros.dataset.plan import PlannedExplode, Source
from thadam_ros.dataset.types import ColumnType
from thadam_ros.decode.schema import MessageSchema
from thadam_ros.errors import Problem
from thadam_ros.transforms.step import nearest

_WHOLE = (ColumnType("int"), ColumnType("long"))


class Sources:
    """Resolves the pointers of one dataset and collects what they need; used while planning.

    Attributes:
        schema: The message definition; None for untyped decoders.
        explode: What is exploded, None without.
        pointers: What the decoder is asked for, in order.
        fetched: Message pointers that steps need beside the columns.
        problems: Mistakes found so far, by everyone who plans this dataset.
    """

    def __init__(
        self, config: DatasetConfig, schema: MessageSchema | None, problems: list[Problem]
    ) -> None:
        self.config = config
        self.schema = schema
        self.path = f"datasets.{config.name}"
        self.problems = problems
        self.pointers: dict[str, None] = {}
        self.fetched: dict[str, Source] = {}
        self._elements: dict[str, Leaf] = {}
        self.explode = self._plan_explode()

    def problem(self, key: str, value: object, message: str, suggestion: str | None = None) -> None:
        """Note one mistake at ``datasets.<name>.<key>``."""
        self.problems.append(Problem(f"{self.path}.{key}", value, message, suggestion))

    def find(self, pointer: str, path: str, root: str | None) -> Leaf | None:
        """Return what a pointer names in the message or in ``root``; notes what names nothing."""
        assert self.schema is not None
        leaf = find_leaf(self.schema, pointer, root) if pointer.startswith("/") else None
        if leaf is None:
            where = root or self.schema.type_name
            near = nearest_pointer(self.schema, pointer, root)
            self.problem(path, pointer, f"{where} has no such field.", near)
        return leaf

    def source(self, pointer: str, path: str) -> Source | None:
        """Return what ``/x`` (message) or ``./x`` (element of the exploded array) names."""
        if not pointer.startswith("."):
            leaf = self.find(pointer, path, None)
            return Source(leaf) if leaf else None
        if self.explode is None:
            self.problem(path, pointer, "starts with '.', but the dataset does not explode.")
            return None
        inner = pointer[1:]
        if len(self.explode.arrays) == 1 and not (self.config.explode and self.config.explode.zip):
            array = self.explode.arrays[0]
            element = self._elements.get(array.rsplit("/", 1)[1])
        else:
            name, _, rest = inner.lstrip("/").partition("/")
            element = self._elements.get(name)
            if element is None:
                near = nearest(name, self._elements)
                self.problem(
                    path,
                    pointer,
                    f"names none of the zipped arrays: {', '.join(self._elements)}.",
                    f"./{near}" if near else None,
                )
                return None
            array, inner = element.pointer, f"/{rest}" if rest else ""
        if element is None:
            return None  # the explode pointer itself is a problem, noted before
        if not inner.strip("/"):
            return Source(Leaf("", element.shape, element.type_name), array)
        if element.shape is not Shape.STRUCT:
            self.problem(path, pointer, f"goes into {array}, whose elements are {element}.")
            return None
        leaf = self.find(inner, path, element.type_name)
        return Source(leaf, array) if leaf else None

    def want(self, source: Source) -> None:
        """Ask the decoder for what a source reads."""
        if source.array is None:
            self.pointers.update(dict.fromkeys(source.leaf.parts))

    def fetch(self, pointer: str) -> str | None:
        """Make a whole number of the message available to steps."""
        if self.schema is None:
            return None
        leaf = find_leaf(self.schema, pointer)
        if leaf is None:
            near = nearest_pointer(self.schema, pointer)
            hint = f" Did you mean {near!r}?" if near else ""
            return f"{self.schema.type_name} has no such field.{hint}"
        if leaf.shape is not Shape.SCALAR or leaf.natural not in _WHOLE:
            return f"is {leaf}, no whole number."
        self.fetched[pointer] = Source(leaf)
        self.want(self.fetched[pointer])
        return None

    def _plan_explode(self) -> PlannedExplode | None:
        explode = self.config.explode
        if explode is None:
            return None
        arrays = explode.zip or ((explode.pointer,) if explode.pointer else ())
        if self.schema is None:
            return PlannedExplode(tuple(arrays), explode.empty_as_null)
        for pointer in arrays:
            leaf = self.find(pointer, "explode", None)
            if leaf is None:
                continue
            if leaf.shape not in (Shape.LIST, Shape.STRUCTS):
                self.problem("explode", pointer, f"is a {leaf.shape.value}, no array.")
                continue
            name = pointer.rsplit("/", 1)[1]
            if name in self._elements:
                self.problem("explode", pointer, f"has the same last segment {name!r} as another.")
                continue
            if leaf.natural == ColumnType("binary"):
                self.problem("explode", pointer, "is bytes; bytes are one value.")
                continue
            self._elements[name] = element_leaf(leaf)
            self.pointers[pointer] = None
        return PlannedExplode(tuple(arrays), explode.empty_as_null)
