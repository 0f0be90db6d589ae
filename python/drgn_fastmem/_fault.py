# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The class that faults are raised as: drgn's own where drgn is installed, so
that ``except drgn.FaultError`` catches them, and a twin of it where not. And why
memory can't be read."""

from enum import IntEnum

try:
    from drgn import FaultError
except ImportError:

    class FaultError(Exception):  # type: ignore[no-redef]
        """Memory at an address could not be read."""

        def __init__(self, message: str, address: int) -> None:
            super().__init__(message, address)
            self.message = message
            self.address = address

        def __str__(self) -> str:
            return f"{self.message}: {self.address:#x}"


class ReadStatus(IntEnum):
    """What became of a range that was to be read: the ``reason`` of a
    ``FaultError`` that a Memory raises or returns, and the ``status`` of an item
    of ``Memory.readv_into``."""

    # The numbers of enum fm_fault_reason in ext/error.h.
    OK = 0
    UNMAPPED = 1
    """No segment holds the virtual address, and no page table maps it."""
    EXCLUDED = 2
    """It was not saved in the dump."""
    OUTSIDE = 3
    """No segment holds the physical address."""
    IO = 4
    """The kernel could not read it."""
    SHORT = 5
    """The file ends before it."""
    DENIED = 6
    """The kernel does not allow it."""
    FULL = 7
    """The snapshot has no room for it."""


__all__ = ("FaultError", "ReadStatus")
