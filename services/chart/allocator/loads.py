"""Load reports as numbers. A replica takes ten thousand reports a second with ten numbers for each of ten links: as
messages of protobuf each number becomes an object of Python, which costs more than all of link rate control.

`make loads-library` builds dataplane/lib/loads, which reads a report's octets straight into numbers; without it
protobuf does.
"""

from __future__ import annotations

import itertools
import operator
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cffi import FFI
from google.protobuf.message import DecodeError

from chart.allocator.links import LOAD_FIELDS
from chart.v1 import link_load_pb2

LIBRARY = "allocator/libloads.so"
DECLARATION = (
    "int loads_decode(const uint8_t *octets, size_t size, uint32_t *interval_us, char *names, size_t *names_size,"
    " double *values, int links_most, uint8_t *users, size_t *users_size);"
)
# What one report may have for the library; a larger one is left to protobuf, and names beyond ASCII are.
MOST_LINKS = 1024
NAMES_BYTES = 64 * 1024
USERS_BYTES = 64 * 1024
ROW_BYTES = 8 * len(LOAD_FIELDS)
UNREADABLE = -1

_VALUES = operator.attrgetter(*LOAD_FIELDS)


@dataclass(frozen=True, slots=True)
class Named:
    """A link of a report, as much as whoever checks the report's author needs."""

    link_id: str


class LoadReport:
    """What a node reports. Made where streams make messages: it stands for `chart.v1.LinkLoadReport`."""

    __slots__ = ("count", "interval_us", "names", "users", "values")

    def __init__(self, interval_us: int, names: bytes, values: bytes, count: int, users: bytes = b"") -> None:
        self.interval_us = interval_us
        # Ids of the links and at last the node's, each with a zero behind it.
        self.names = names
        # A row of doubles for each link, in the order of LOAD_FIELDS.
        self.values = values
        self.count = count
        # Its users with several flows, as a report of nothing else; mostly those of the report before.
        self.users = users

    @classmethod
    def FromString(cls, octets: bytes) -> LoadReport:  # noqa: N802 - as messages have it
        """The report of some octets.

        Raises:
            DecodeError: they are none.
        """
        library = _library()
        if library is not None:
            found = library.decode(octets)
            if found is not None:
                return found
        return cls.of(link_load_pb2.LinkLoadReport.FromString(octets))

    @classmethod
    def of(cls, message: link_load_pb2.LinkLoadReport) -> LoadReport:
        """The report of a message.

        Raises:
            DecodeError: a name has a NUL.
        """
        links = list(message.links)
        names = [*(load.link_id for load in links), message.node]
        if any("\x00" in name for name in names):
            raise DecodeError("a name has a NUL")
        flat = itertools.chain.from_iterable(map(_VALUES, links))
        values = np.fromiter(flat, np.float64, len(links) * len(LOAD_FIELDS)).tobytes()
        users = link_load_pb2.LinkLoadReport(user_flows=message.user_flows).SerializeToString()
        return cls(message.interval_us, "".join(f"{name}\x00" for name in names).encode(), values, len(links), users)

    @property
    def link_ids(self) -> list[str]:
        """Ids of its links, in its order."""
        return self.names.decode().split("\x00")[:-2]

    @property
    def user_flows(self) -> list[link_load_pb2.UserFlows]:
        """Users with several flows on a link.

        Raises:
            DecodeError: they cannot be read.
        """
        return list(link_load_pb2.LinkLoadReport.FromString(self.users).user_flows)

    @property
    def node(self) -> str:
        """Whose links they are."""
        return self.names[self.names.rfind(b"\x00", 0, -1) + 1 : -1].decode()

    @property
    def links(self) -> list[Named]:
        """Its links by name."""
        return [Named(link_id) for link_id in self.link_ids]


class _Library:
    """The library with room for one report."""

    def __init__(self, path: Path) -> None:
        self._ffi = FFI()
        self._ffi.cdef(DECLARATION)
        self._decode: Any = self._ffi.dlopen(str(path)).loads_decode
        self._interval_us = self._ffi.new("uint32_t *")
        self._names = self._ffi.new("char[]", NAMES_BYTES)
        self._size = self._ffi.new("size_t *")
        self._values = self._ffi.new("double[]", MOST_LINKS * len(LOAD_FIELDS))
        self._users = self._ffi.new("uint8_t[]", USERS_BYTES)
        self._users_size = self._ffi.new("size_t *")
        self._users_view = memoryview(self._ffi.buffer(self._users))
        self._names_view = memoryview(self._ffi.buffer(self._names))
        self._values_view = memoryview(self._ffi.buffer(self._values))

    def decode(self, octets: bytes) -> LoadReport | None:
        """The report; None: protobuf has to read it, because it is unusual.

        Raises:
            DecodeError: it is none.
        """
        self._size[0] = NAMES_BYTES
        self._users_size[0] = USERS_BYTES
        count = self._decode(
            octets,
            len(octets),
            self._interval_us,
            self._names,
            self._size,
            self._values,
            MOST_LINKS,
            self._users,
            self._users_size,
        )
        if count == UNREADABLE:
            raise DecodeError("not a load report")
        if count < 0:
            return None
        names = self._names_view[: self._size[0]].tobytes()
        users = self._users_view[: self._users_size[0]].tobytes()
        return LoadReport(self._interval_us[0], names, self._values_view[: count * ROW_BYTES].tobytes(), count, users)


@cache
def _library() -> _Library | None:
    """The library where it was built; CHART_BUILD_DIR, or build/ beside the sources."""
    build = Path(os.environ.get("CHART_BUILD_DIR", Path(__file__).resolve().parents[3] / "build"))
    path = build / LIBRARY
    return _Library(path) if path.exists() else None
