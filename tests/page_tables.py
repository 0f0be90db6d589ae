# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Page tables written from readable text, for the tests of translation.

    mmu x86_64 levels=4
    ram 0x0 size=0x80000
    map 0xffffc90000000000 to 0x40000 size=4K count=3
    map 0xffffc90000200000 to 0x200000 size=2M
    raw 0xffffc90000400000 level=0 value=0x123
    loop 0xffffd00000000000 level=2

One statement a line; `#` starts a comment.

mmu ARCHITECTURE [levels=4] [granule=4K] [va_bits=48] [vmcoreinfo=NAME=VALUE;...]
    x86_64 (levels) or aarch64 (granule, va_bits). Comes first. vmcoreinfo adds
    lines to the note; the last of a name counts.
ram ADDRESS size=
    physical memory that is in the dump; tables are made in the first of them.
map VIRTUAL to PHYSICAL size= [count=1]
    leaves of this size, one after the other.
raw VIRTUAL level= value=
    the entry of this address in the table of this level (0: the last), as it is.
loop VIRTUAL level=
    the entry of this address in this table names the table itself.

This is a model of its own: it shares nothing with the code under test.
"""

from dataclasses import dataclass, field
import shlex
from typing import Dict, List, Tuple

from core_text import MACHINES, Core, Load, Note, linux_note

SIZES = {"K": 10, "M": 20, "G": 30, "T": 40}
# Where the kernel's image begins (Documentation/arch/x86/x86_64/mm.rst).
START_KERNEL_MAP = 0xFFFFFFFF80000000
DIRECT_MAP = {"x86_64": 0xFFFF888000000000, "aarch64": 0xFFFF000000000000}


def size_of(text: str) -> int:
    return int(text[:-1]) << SIZES[text[-1]] if text[-1] in SIZES else int(text, 0)


@dataclass
class Mmu:
    machine: str
    page_shift: int
    va_bits: int
    vmcoreinfo: str

    @property
    def table_shift(self) -> int:
        return self.page_shift - 3

    @property
    def levels(self) -> int:
        return -(-(self.va_bits - self.page_shift) // self.table_shift)

    def shift(self, level: int) -> int:
        return self.page_shift + self.table_shift * level

    def index(self, address: int, level: int) -> int:
        bits = self.table_shift
        if level == self.levels - 1:
            bits = self.va_bits - self.shift(level)
        return (address >> self.shift(level)) & ((1 << bits) - 1)

    def entry(self, physical: int, kind: str) -> int:
        """kind is "table", "page" (level 0) or "block" (above it)."""
        if self.machine == "x86_64":
            return physical | {"table": 0x67, "page": 0x163, "block": 0x1E3}[kind]
        value = physical & ((1 << 48) - 1)
        high = physical >> 48
        if self.page_shift == 16:
            value |= high << 12
        elif self.va_bits == 52:
            value |= (high & 3) << 48 | (high >> 2) << 8
        return value | {"table": 0x3, "page": 0x403, "block": 0x401}[kind]


def _mmu(machine: str, options: Dict[str, str]) -> Mmu:
    extra = options.get("vmcoreinfo", "").replace(";", "\n") + "\n"
    if machine == "x86_64":
        levels = int(options.get("levels", "4"))
        return Mmu(
            machine,
            12,
            12 + 9 * levels,
            f"NUMBER(phys_base)=0\nNUMBER(pgtable_l5_enabled)={int(levels == 5)}\n{extra}",
        )
    granule = size_of(options.get("granule", "4K"))
    va_bits = int(options.get("va_bits", "48"))
    return Mmu(
        machine,
        granule.bit_length() - 1,
        va_bits,
        f"NUMBER(VA_BITS)={va_bits}\nNUMBER(kimage_voffset)=0xffff700000000000\n{extra}",
    )


@dataclass
class PageTables:
    mmu: Mmu
    ram: List[Tuple[int, int]] = field(default_factory=list)
    # Physical address of an entry -> its value.
    entries: Dict[int, int] = field(default_factory=dict)
    tables: Dict[Tuple[int, int], int] = field(default_factory=dict)

    @property
    def root(self) -> int:
        return self.ram[0][0] + (1 << self.mmu.page_shift)

    def _table(self, address: int, level: int) -> int:
        """Physical address of the table of this level for this address."""
        top = self.mmu.levels - 1
        if level == top:
            return self.root
        key = (level, address >> self.mmu.shift(level + 1))
        if key not in self.tables:
            parent = self._table(address, level + 1)
            table = self.root + ((len(self.tables) + 1) << self.mmu.page_shift)
            assert table + (1 << self.mmu.page_shift) <= sum(self.ram[0]), "RAM is full"
            self.tables[key] = table
            self.entries[parent + 8 * self.mmu.index(address, level + 1)] = (
                self.mmu.entry(table, "table")
            )
        return self.tables[key]

    def raw(self, address: int, level: int, value: int) -> None:
        table = self._table(address, level)
        self.entries[table + 8 * self.mmu.index(address, level)] = value

    def loop(self, address: int, level: int) -> None:
        table = self._table(address, level)
        self.raw(address, level, self.mmu.entry(table, "table"))

    def map(self, address: int, physical: int, size: int) -> None:
        for level in range(self.mmu.levels):
            if size == 1 << self.mmu.shift(level):
                kind = "block" if level else "page"
                self.raw(address, level, self.mmu.entry(physical, kind))
                return
        raise ValueError(f"no leaf has {size:#x} bytes")

    def core(self, *, direct_map: bool) -> Core:
        """A dump of it. Without a direct map every p_vaddr is 0, as in QEMU's
        dumps without paging."""
        mmu = self.mmu
        if mmu.machine == "x86_64":
            swapper = START_KERNEL_MAP + self.root
        else:
            swapper = (0xFFFF700000000000 + self.root) & ((1 << 64) - 1)
        note = linux_note(pagesize=1 << mmu.page_shift, swapper_pg_dir=swapper)
        parts: List[object] = [
            Note("VMCOREINFO", 0, note.desc + mmu.vmcoreinfo.encode())
        ]
        for number, (start, size) in enumerate(self.ram):
            base = (DIRECT_MAP[mmu.machine] + start) % 2**64 if direct_map else 0
            parts.append(
                Load(base, size, paddr=start, offset="page", fill=f"pattern:{number}")
            )
        return Core(machine=MACHINES[mmu.machine], parts=tuple(parts))

    def write(self, path: str, *, direct_map: bool = False) -> None:
        self.core(direct_map=direct_map).write(path)
        from reference import Reference

        with Reference(path) as reference, open(path, "r+b") as file:
            offsets = {
                segment.first: segment.file_offset
                for segment in reference.physical_segments
            }
            start, size = self.ram[0]
            # No entry where none was made: the pattern would be one.
            used = self.root + ((len(self.tables) + 1) << self.mmu.page_shift)
            file.seek(offsets[start])
            file.write(bytes(used - start))
            for physical, value in self.entries.items():
                file.seek(offsets[start] + physical - start)
                file.write(value.to_bytes(8, "little"))


def parse(text: str) -> PageTables:
    tables = None
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        options = dict(word.split("=", 1) for word in words if "=" in word)
        if words[0] == "mmu":
            tables = PageTables(_mmu(words[1], options))
            continue
        assert tables is not None, "mmu comes first"
        address = int(words[1], 0)
        if words[0] == "ram":
            tables.ram.append((address, size_of(options["size"])))
        elif words[0] == "map":
            size = size_of(options["size"])
            for i in range(int(options.get("count", "1"))):
                tables.map(address + i * size, int(words[3], 0) + i * size, size)
        elif words[0] == "raw":
            tables.raw(address, int(options["level"]), int(options["value"], 0))
        elif words[0] == "loop":
            tables.loop(address, int(options["level"]))
        else:
            raise ValueError(f"{words[0]!r} is not a statement")
    assert tables is not None
    return tables
