# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The class that faults are raised as: drgn's own where drgn is installed, so
that ``except drgn.FaultError`` catches them, and a twin of it where not."""

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


__all__ = ("FaultError",)
