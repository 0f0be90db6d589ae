# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""A slow and plain reader of ELF core files: what drgn's reads mean, in Python.

It exists to be read next to drgn's own (libdrgn/program.c, memory_reader.c and
arch_aarch64.c of 0.3.0) and to say what the answer is where drgn can't be asked.
test_oracle.py checks it against drgn on random cores. Each rule is a method of
its own, so that a test can break one and see that the comparison notices.

What it does not do: the page tables of a kernel dump (drgn falls back to them
for virtual addresses that no PT_LOAD holds), compressed dumps, /proc/kcore.
"""

from dataclasses import dataclass
import errno
import os
import struct
from typing import List, NamedTuple, Optional, Tuple

EM_AARCH64 = 183
ET_CORE = 4
PT_LOAD = 1
PT_NOTE = 4
PN_XNUM = 0xFFFF
# Linux has no larger file offset (loff_t).
MAX_OFFSET = (1 << 63) - 1


class Fault(Exception):
    """The first address that can't be read.

    errno is set where pread fails rather than ends: drgn raises OSError there.
    unmapped is set where no program header holds the address: for a kernel dump
    drgn then asks the page tables.
    """

    def __init__(self, address: int, errno: int = 0, unmapped: bool = False) -> None:
        super().__init__(f"fault at {address:#x}")
        self.address = address
        self.errno = errno
        self.unmapped = unmapped


@dataclass(frozen=True)
class Segment:
    """Addresses are inclusive, so that a segment may end at 2^64-1."""

    first: int
    last: int
    file_offset: int
    file_size: int


class Phdr(NamedTuple):
    type: int
    offset: int
    vaddr: int
    paddr: int
    filesz: int
    memsz: int
    align: int


class Reference:
    def __init__(self, path) -> None:
        self.fd = os.open(path, os.O_RDONLY)
        try:
            self._parse()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> "Reference":
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()

    # -- Reads, with the signatures of drgn.Program ---------------------------

    def read(self, address: int, size: int, physical: bool = False) -> bytes:
        address = self.untag(address & self.address_mask)
        result = b""
        while size > 0:
            # Past the last address only a seeded defect gets; it faults there.
            count = min(size - 1, (self.address_mask - address) % 2**64) + 1
            result += self._read_flat(address, count, physical)
            address = self.wrapped_address()
            size -= count
        return result

    def read_uint(self, address: int, size: int, physical: bool = False) -> int:
        return int.from_bytes(self.read(address, size, physical), self.byte_order)

    def read_u8(self, address: int, physical: bool = False) -> int:
        return self.read_uint(address, 1, physical)

    def read_u16(self, address: int, physical: bool = False) -> int:
        return self.read_uint(address, 2, physical)

    def read_u32(self, address: int, physical: bool = False) -> int:
        return self.read_uint(address, 4, physical)

    def read_u64(self, address: int, physical: bool = False) -> int:
        return self.read_uint(address, 8, physical)

    def read_word(self, address: int, physical: bool = False) -> int:
        return self.read_uint(address, self.bits // 8, physical)

    def read_c_string(
        self,
        address: int,
        physical: bool = False,
        *,
        max_size: Optional[int] = None,
    ) -> bytes:
        # One byte at a time, and each address is untagged anew: drgn does so,
        # and on aarch64 it shows where bit 55 of the address changes.
        result = b""
        while max_size is None or len(result) < max_size:
            byte = self.read(address + len(result), 1, physical)
            if byte == b"\0":
                break
            result += byte
        return result

    # -- The rules ------------------------------------------------------------

    def untag(self, address: int) -> int:
        """aarch64: bit 55 stands for bits 56 to 63 (top byte ignore)."""
        if self.machine != EM_AARCH64:
            return address
        address &= (1 << 56) - 1
        if address >> 55:
            address |= 0xFF << 56
        return address

    def wrapped_address(self) -> int:
        """Where a read goes on after the last address."""
        return 0

    def owner(self, address: int, segments: List[Segment]) -> Optional[int]:
        """The last program header that holds the address wins."""
        for index in reversed(range(len(segments))):
            if segments[index].first <= address <= segments[index].last:
                return index
        return None

    def piece_end(self, address: int, owner: int, segments: List[Segment]) -> int:
        """The last address that the owner of address has without a break."""
        last = segments[owner].last
        for other in segments[owner + 1 :]:
            if address < other.first <= last:
                last = other.first - 1
        return last

    def saved_size(self, segment: Segment) -> int:
        """Bytes of the segment that the file holds; the rest is filler."""
        return segment.file_size

    def fills_with_zeros(self) -> bool:
        """Whether filler reads as zeros: in kernel dumps; else it is a fault."""
        return self.have_vmcoreinfo

    def read_piece(self, segment: Segment, address: int, count: int) -> bytes:
        """Bytes of one segment. What was not saved is decided for the whole
        piece, before the file is looked at."""
        offset = address - segment.first
        from_file = max(0, min(count, self.saved_size(segment) - offset))
        if from_file < count and not self.fills_with_zeros():
            raise Fault(address + from_file)
        data = b""
        while len(data) < from_file:
            position = segment.file_offset + offset + len(data)
            if position > MAX_OFFSET:
                # drgn's sum is 64 bits wide: it either reaches a pread that
                # refuses the offset, or wraps and reads the start of the file.
                error = errno.EINVAL if position < 1 << 64 else errno.EOVERFLOW
                raise Fault(address + len(data), error)
            try:
                part = os.pread(self.fd, from_file - len(data), position)
            except OSError as error:
                raise Fault(address + len(data), error.errno) from None
            if not part:
                raise Fault(address + len(data))
            data += part
        return data + bytes(count - from_file)

    def clamp(self, address: int, size: int) -> int:
        """The last address of a segment: it never wraps."""
        return min(address + size - 1, self.address_mask)

    def has_physical(self, phdr: Phdr) -> bool:
        """All ones means no physical address. Zero does too, but only where all
        are zero and the file is no kernel dump."""
        return self.paddr_valid and phdr.paddr != (1 << self.bits) - 1

    def _read_flat(self, address: int, count: int, physical: bool) -> bytes:
        segments = self.physical_segments if physical else self.virtual_segments
        result = b""
        while count > 0:
            owner = self.owner(address, segments)
            if owner is None:
                raise Fault(address, unmapped=True)
            last = self.piece_end(address, owner, segments)
            size = min(count, last - address + 1)
            result += self.read_piece(segments[owner], address, size)
            address += size
            count -= size
        return result

    def file_size(self) -> int:
        return os.fstat(self.fd).st_size

    # -- The file -------------------------------------------------------------

    def _parse(self) -> None:
        ident = os.pread(self.fd, 16, 0)
        if len(ident) < 16 or ident[:4] != b"\x7fELF":
            raise ValueError("not an ELF file")
        if ident[4] not in (1, 2) or ident[5] not in (1, 2):
            raise ValueError("unknown ELF class or byte order")
        self.bits = 32 * ident[4]
        self.byte_order = "little" if ident[5] == 1 else "big"
        self.address_mask = (1 << self.bits) - 1
        endian = "<" if ident[5] == 1 else ">"
        word = "I" if self.bits == 32 else "Q"
        ehdr = self._unpack(f"{endian}HHI{word * 3}IHHHHHH", 16)
        e_type, self.machine, _, _, phoff, shoff, _, _, phentsize, phnum = ehdr[:10]
        if e_type != ET_CORE:
            raise ValueError("not a core file")
        if phnum == PN_XNUM:
            phnum = self._unpack(f"{endian}II{word * 4}II", shoff)[7]

        self.phdrs = []
        size = 56 if self.bits == 64 else 32
        if phnum and phentsize != size:
            raise ValueError("unknown size of program headers")
        for i in range(phnum):
            raw = self._unpack(
                endian + ("IIQQQQQQ" if self.bits == 64 else "IIIIIIII"),
                phoff + i * size,
            )
            if self.bits == 64:
                raw = raw[:1] + raw[2:]
            else:
                raw = raw[:6] + raw[7:]
            self.phdrs.append(Phdr(*raw))

        loads = [phdr for phdr in self.phdrs if phdr.type == PT_LOAD]
        notes = [
            note
            for phdr in self.phdrs
            if phdr.type == PT_NOTE
            for note in self._notes(phdr, endian)
        ]
        self.have_vmcoreinfo = any(name == b"VMCOREINFO\0" for name, _ in notes)
        self.paddr_valid = self.have_vmcoreinfo or any(p.paddr for p in loads)
        self.virtual_segments = []
        self.physical_segments = []
        for phdr in loads:
            if not phdr.memsz:
                continue
            self._add(self.virtual_segments, phdr.vaddr, phdr)
            if self.has_physical(phdr):
                self._add(self.physical_segments, phdr.paddr, phdr)

    def _add(self, segments: List[Segment], address: int, phdr: Phdr) -> None:
        last = self.clamp(address, phdr.memsz)
        segments.append(Segment(address, last, phdr.offset, phdr.filesz))

    def _notes(self, phdr: Phdr, endian: str) -> List[Tuple[bytes, int]]:
        if phdr.offset + phdr.filesz > self.file_size():
            raise ValueError("notes are cut off")
        data = os.pread(self.fd, phdr.filesz, phdr.offset)
        align = 8 if phdr.align == 8 else 4
        notes = []
        offset = 0
        while offset + 12 <= len(data):
            namesz, descsz, type = struct.unpack_from(f"{endian}III", data, offset)
            name = offset + 12
            desc = (name + namesz + align - 1) // align * align
            if desc + descsz > len(data):
                break
            notes.append((data[name : name + namesz], type))
            offset = (desc + descsz + align - 1) // align * align
        return notes

    def _unpack(self, layout: str, offset: int) -> tuple:
        size = struct.calcsize(layout)
        data = os.pread(self.fd, size, offset) if offset <= MAX_OFFSET else b""
        if len(data) < size:
            raise ValueError("a header is cut off")
        return struct.unpack(layout, data)
