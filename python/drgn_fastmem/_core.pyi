# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The text of the API: what the types in C do.

Addresses and sizes are in bytes. An address is an ``int`` or has
``__index__``, from 0 to 2**64 - 1; others are ``OverflowError`` or
``TypeError``. Where ``physical`` is true the address is a physical one. Reads
wrap at the end of the address space, and on aarch64 the top byte of an address
is ignored, both as in ``drgn.Program``.

Every read raises ``FaultError`` if a byte of it can't be read, with the first
such address and, as ``reason``, a :class:`drgn_fastmem.ReadStatus`, and ``ValueError`` if the memory was closed.
"""

import os
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Iterable,
    List,
    NamedTuple,
    Optional,
    SupportsIndex,
    Tuple,
    Type,
    Union,
)

if TYPE_CHECKING:
    import drgn

# The second of each: an object with a contiguous buffer of native unsigned 64-bit
# integers, such as array("Q"), a NumPy array, or bytes.
Ranges = Union[Iterable[Tuple[SupportsIndex, SupportsIndex]], Any]
Addresses = Union[Iterable[SupportsIndex], Any]

class Segment(NamedTuple):
    """A program header that describes memory (``PT_LOAD``; System V ABI,
    "Program Header")."""

    address: int
    """Virtual address of the first byte (``p_vaddr``)."""
    size: int
    """Bytes in memory (``p_memsz``)."""
    physical_address: Optional[int]
    """Physical address of the first byte (``p_paddr``), if it has one."""
    file_offset: int
    """Offset in the file (``p_offset``)."""
    file_size: int
    """Bytes that were saved; at most :attr:`size`."""
    kind: str
    """``"ram"``: kernel memory with a physical address; ``"virtual"``: kernel
    memory without (vmalloc, modules, vmemmap); ``"user"``: of a process."""
    access: str
    """``"mmap"`` or ``"pread"``."""

class Stats(NamedTuple):
    """What a Memory has done since it was opened or its counters were reset.

    Threads that read at the same moment may be counted as one.
    """

    reads: int
    """Reads that were asked for; a read over several segments is one."""
    bytes: int
    """Bytes that were handed out."""
    faults: int
    """Reads that ended in a fault."""
    syscalls: int
    """System calls on the file, but for those that read its headers."""
    mapped_reads: int
    """Copies out of a mapping."""
    sigbus: int
    """Copies that a mapping refused, and that pread then answered or not."""
    walks: int
    """Page-table walks."""
    tlb_hits: int
    """Translations that were remembered from an earlier walk."""
    cache_hits: int
    """Pages that a read found in the page cache."""
    cache_misses: int
    """Pages that a read did not find there, and that were then read."""
    coalesced: int
    """Items of vectored reads that shared a system call with others."""
    gap_bytes: int
    """Bytes that were read only because they lie between two such items."""

class Memory:
    """The memory of a core file or of the running kernel.

    Made by :func:`drgn_fastmem.open` and :func:`drgn_fastmem.attach`. Threads
    may share one. A context manager: closes itself at the end.
    """

    def read(
        self, address: SupportsIndex, size: SupportsIndex, physical: bool = False
    ) -> bytes:
        """Read ``size`` bytes.

        From 64 KiB on other Python threads run meanwhile, and signals are
        handled every 16 MiB.
        """
        ...
    def read_into(
        self, address: SupportsIndex, buffer: Any, physical: bool = False
    ) -> None:
        """Fill ``buffer``, any writable contiguous buffer. After an exception
        its contents are unspecified."""
        ...
    def read_u8(self, address: SupportsIndex, physical: bool = False) -> int: ...
    def read_u16(self, address: SupportsIndex, physical: bool = False) -> int:
        """Read an unsigned integer in the target's byte order; so do the
        others. An aligned one is read with one load where memory is mapped."""
        ...
    def read_u32(self, address: SupportsIndex, physical: bool = False) -> int: ...
    def read_u64(self, address: SupportsIndex, physical: bool = False) -> int: ...
    def read_word(self, address: SupportsIndex, physical: bool = False) -> int:
        """Read 8 bytes on a 64-bit target, 4 on a 32-bit one."""
        ...
    def read_c_string(
        self,
        address: SupportsIndex,
        physical: bool = False,
        *,
        max_size: Optional[SupportsIndex] = None,
    ) -> bytes:
        """Read the bytes before the first zero byte, or the first ``max_size``
        bytes if there is none among them."""
        ...
    def readv(
        self, ranges: Ranges, physical: bool = False, *, on_fault: str = "raise"
    ) -> List[Union[bytes, Exception]]:
        """Read many ranges, in as few system calls as it takes.

        Same bytes and same faults as a :meth:`read` of each; a fault of one
        does nothing to the others. What is not mapped is read together where
        two ranges are at most 4 KiB apart, and on a live kernel only if there
        is no page between them in which nothing was asked.

        :param ranges: ``(address, size)`` pairs, or a contiguous buffer of
            them, as native unsigned 64-bit integers.
        :param on_fault: ``"raise"``: raise the fault of the first item that
            has one. ``"return"``: such items are ``FaultError`` objects in the
            list.
        :return: What was read, in the order of the ranges.
        """
        ...
    def readv_into(
        self,
        ranges: Ranges,
        out: Any,
        physical: bool = False,
        *,
        status: Optional[Any] = None,
    ) -> None:
        """As :meth:`readv`, into one writable contiguous buffer.

        :param out: Has as many bytes as the ranges together, which go to it
            back to back.
        :param status: A writable contiguous buffer of one byte an item, which
            gets a :class:`drgn_fastmem.ReadStatus` each. The bytes of items
            that can't be read are zeros then. ``None``: raise the fault of the
            first such item.
        """
        ...
    def gather_u64(self, addresses: Addresses, physical: bool = False) -> memoryview:
        """Read an unsigned integer of 8 bytes, in the target's byte order, at
        each address.

        :param addresses: Addresses, or a contiguous buffer of them, as native
            unsigned 64-bit integers.
        :return: A read-only one-dimensional view of format ``"Q"``.
        """
        ...
    def prefetch(self, ranges: Ranges, physical: bool = False) -> None:
        """Read the pages of these ranges into the page cache, in as few system
        calls as it takes. As many as it has room for: 1,024, in a snapshot
        262,144.

        What can't be read is left out. Where nothing may be kept
        (:attr:`max_age` is 0, and this is no snapshot) nothing is read.
        """
        ...
    def translate(self, address: SupportsIndex) -> int:
        """The physical address that a read of ``address`` reads.

        :raises FaultError: if there is none, or none is known.
        """
        ...
    @property
    def max_age(self) -> float:
        """How old bytes may be that a read hands out, in seconds, counted back
        from the beginning of the read, plus one step of the clock (at most half
        of ``max_age``, usually 4 ms; clock_getres(2)).

        Can be set at any time, to 0 or more, ``math.inf`` included. 0: every
        byte was read after the call began; what was kept is forgotten. Bytes
        that are mapped are never old, whatever this is.

        :raises ValueError: if it is negative or not a number.
        """
        ...
    @max_age.setter
    def max_age(self, seconds: float) -> None: ...
    def snapshot(self) -> "Snapshot":
        """A context manager for repeatable reads, here and in every Program
        that the memory is attached to: from the beginning of the outermost
        block to its end a page is read at most once. Two pages are of two
        moments, though, and so may two addresses of the same page be.

        A block may keep 1 GiB; a read of more is a ``FaultError``.

        :raises MemoryError: on entering, if there is no address space for it.
        """
        ...
    def invalidate(self) -> None:
        """Forget all bytes that were kept: what is read from here on is as it
        is now. A snapshot begins anew."""
        ...
    def reset_stats(self) -> None:
        """Set the counters to zero."""
        ...
    def close(self) -> None:
        """Close this handle; again is allowed. Programs that the memory is
        attached to go on reading it, and with the last of them it goes."""
        ...
    def __enter__(self) -> "Memory": ...
    def __exit__(
        self,
        exc_type: Optional[Type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
        /,
    ) -> None: ...
    @property
    def segments(self) -> Tuple[Segment, ...]:
        """The segments, in the order of the program headers. Where they
        overlap the last one is read."""
        ...
    @property
    def stats(self) -> Stats: ...
    @property
    def path(self) -> Union[str, bytes]:
        """The path it was opened by, or ``"descriptor N"``."""
        ...
    @property
    def closed(self) -> bool: ...
    @property
    def is_live(self) -> bool:
        """Whether this is the running kernel's memory."""
        ...
    @property
    def translation(self) -> str:
        """How virtual addresses that no segment holds are read: the MMU
        (``"x86-64, 4 levels"``), or ``"none: "`` and the reason. Without drgn
        they are faults then; with drgn they are left to its own walk."""
        ...
    @property
    def is_64_bit(self) -> bool: ...
    @property
    def is_little_endian(self) -> bool: ...

class Snapshot:
    """Repeatable reads inside a ``with`` block; :meth:`Memory.snapshot` makes
    one. The block gets the Memory."""

    def __enter__(self) -> Memory: ...
    def __exit__(
        self,
        exc_type: Optional[Type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
        /,
    ) -> None: ...

# Not public: what open() and attach() are made of.

def open(
    file: Union[str, bytes, int],
    mmap: str,
    kernel: bool,
    translate: bool,
    path: Union[str, bytes],
    /,
) -> Memory: ...
def attach(
    prog: "drgn.Program", memory: Memory, library: Optional[str], faults: bool, /
) -> None: ...
def attached(prog: "drgn.Program", /) -> Optional[Tuple[Memory, str]]: ...
