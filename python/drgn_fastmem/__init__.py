# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Fast memory for drgn, for sdb and for scripts of your own.

With drgn there is nothing to call: the package is a drgn plugin and attaches
itself to core dumps and to the running kernel. Without drgn, or to do it by
hand::

    import drgn_fastmem as fm

    mem = fm.open("vmcore")           # or nothing: /proc/kcore
    mem.read_u64(0xffffffff82a12340)

    fm.attach(prog)                   # a drgn.Program that was opened already
"""

from importlib.metadata import version as _version

from drgn_fastmem._attach import attach, attachment
from drgn_fastmem._core import Memory, Segment, Snapshot, Stats
from drgn_fastmem._fault import FaultError, ReadStatus
from drgn_fastmem._target import open

__version__ = _version("drgn-fastmem")

__all__ = (
    "FaultError",
    "Memory",
    "ReadStatus",
    "Segment",
    "Snapshot",
    "Stats",
    "attach",
    "attachment",
    "open",
)
