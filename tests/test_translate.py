# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Address translation against drgn's own walker: page tables written as text,
random ones, and the seeded defects that show that the comparison can fail."""

from dataclasses import replace
import random

import pytest

from compare import Outcome, Read, outcome
from core_text import Load
import page_tables

drgn = pytest.importorskip("drgn", reason="drgn's walker is the oracle")
import drgn_fastmem as fm

X86 = 0xFFFFC90000000000
ARM = 0xFFFF800010000000
LAST_BYTE = Outcome("fault", 2**64 - 1)


class Readers:
    """drgn alone and everybody who has to agree with it."""

    def __init__(self, path):
        def program(**options):
            prog = drgn.Program()
            prog.set_core_dump(path)
            if options:
                fm.attach(prog, **options)
            return prog

        self.alone = program()
        self.ours = {
            "attached": program(mmap="try"),
            "attached, not mapped": program(mmap="never"),
            "open": fm.open(path),
        }
        self.memory = self.ours["open"]

    def check(self, read):
        expected = outcome(self.alone, read)
        if expected == LAST_BYTE:
            # Not covered by drgn's walker, but by ours (docs/differences.md).
            return expected
        for name, reader in self.ours.items():
            # Twice: the second time the TLB knows the page.
            for _ in range(2):
                assert outcome(reader, read) == expected, (name, str(read))
        return expected


@pytest.fixture
def readers(tmp_path):
    def make(text, direct_map=False):
        tables = page_tables.parse(text)
        path = str(tmp_path / "core")
        tables.write(path, direct_map=direct_map)
        made = Readers(path)
        assert not made.memory.translation.startswith("none"), made.memory.translation
        return tables, made

    return make


def edges(address, size):
    """Reads at and over both ends of a leaf."""
    for start in (address, address + size):
        for offset in (-4096, -9, -8, -1, 0, 1, 4088):
            for count in (1, 8, 64, 5000):
                yield Read("read", (start + offset) % 2**64, count)


LEAVES = {
    "x86-64, 4 levels": f"""
        mmu x86_64 levels=4
        ram 0x0 size=0x80000
        ram 0x200000 size=0x100000
        map {X86:#x} to 0x40000 size=4K count=3
        map {X86 + 0x200000:#x} to 0x200000 size=2M
        map {X86 + 0x40000000:#x} to 0x0 size=1G
        """,
    "x86-64, 5 levels": """
        mmu x86_64 levels=5
        ram 0x0 size=0x80000
        ram 0x200000 size=0x100000
        map 0xff11000000000000 to 0x40000 size=4K count=3
        map 0xff11000000200000 to 0x200000 size=2M
        map 0xff11000040000000 to 0x0 size=1G
        map 0xffffffffc0000000 to 0x41000 size=4K
        """,
    "aarch64, 4K, 48 bits": f"""
        mmu aarch64 granule=4K va_bits=48
        ram 0x40000000 size=0x80000
        ram 0x40200000 size=0x100000
        map {ARM:#x} to 0x40040000 size=4K count=3
        map {ARM + 0x200000:#x} to 0x40200000 size=2M
        map {ARM + 0x70000000:#x} to 0x40000000 size=1G
        """,
    "aarch64, 4K, 39 bits": """
        mmu aarch64 granule=4K va_bits=39
        ram 0x40000000 size=0x80000
        map 0xffffffc010000000 to 0x40040000 size=4K count=3
        map 0xffffffc010200000 to 0x40000000 size=2M
        """,
    "aarch64, 4K, 52 bits (LPA2)": """
        mmu aarch64 granule=4K va_bits=52 vmcoreinfo="NUMBER(TCR_EL1_T1SZ)=0xc"
        ram 0x0 size=0x80000
        ram 0xc000000000000 size=0x10000
        map 0xfff0000010000000 to 0x40000 size=4K count=3
        map 0xfff0000010003000 to 0xc000000000000 size=4K count=2
        map 0xfff0000010200000 to 0x0 size=2M
        """,
    "aarch64, 52 bits built, 48 in use": """
        mmu aarch64 va_bits=48 "vmcoreinfo=NUMBER(VA_BITS)=52;NUMBER(TCR_EL1_T1SZ)=0x10"
        ram 0x0 size=0x80000
        map 0xffff800010000000 to 0x40000 size=4K count=3
        """,
    "aarch64, 16K, 47 bits": """
        mmu aarch64 granule=16K va_bits=47
        ram 0x40000000 size=0x200000
        map 0xffff900010000000 to 0x40100000 size=16K count=3
        map 0xffff900012000000 to 0x40000000 size=32M
        """,
    "aarch64, 16K, 36 bits": """
        mmu aarch64 granule=16K va_bits=36
        ram 0x40000000 size=0x200000
        map 0xfffffff010000000 to 0x40100000 size=16K count=3
        """,
    "aarch64, 64K, 42 bits": """
        mmu aarch64 granule=64K va_bits=42
        ram 0x40000000 size=0x200000
        map 0xfffffe0010000000 to 0x40100000 size=64K count=3
        map 0xfffffe0020000000 to 0x40000000 size=512M
        """,
    "aarch64, 64K, 52 bits (LPA)": """
        mmu aarch64 granule=64K va_bits=52
        ram 0x0 size=0x200000
        ram 0x8000000000000 size=0x10000
        map 0xfff0000010000000 to 0x100000 size=64K count=3
        map 0xfff0000010030000 to 0x8000000000000 size=64K
        """,
}

def leaves_of(text):
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == "map":
            options = dict(word.split("=", 1) for word in words if "=" in word)
            size = page_tables.size_of(options["size"])
            for i in range(int(options.get("count", "1"))):
                yield int(words[1], 0) + i * size, int(words[3], 0) + i * size, size


@pytest.mark.parametrize("direct_map", [False, True], ids=["p_vaddr 0", "direct map"])
@pytest.mark.parametrize("name", LEAVES)
def test_leaves_of_every_size(readers, name, direct_map):
    text = LEAVES[name]
    _, made = readers(text, direct_map)
    values = 0
    for address, physical, size in leaves_of(text):
        assert made.memory.translate(address + 5) == physical + 5
        for read in edges(address, size):
            values += made.check(read).kind == "value"
        # The right value, and not only the same one.
        try:
            expected = made.alone.read(physical, 64, physical=True)
        except drgn.FaultError:
            continue
        assert made.memory.read(address, 64) == expected
    assert values > 20


SITUATIONS = {
    "a hole between two pages": f"""
        map {X86:#x} to 0x40000 size=4K
        map {X86 + 0x2000:#x} to 0x41000 size=4K
        """,
    "pages that are one run of physical memory": f"""
        map {X86:#x} to 0x40000 size=4K count=4
        """,
    "pages in the opposite order": f"""
        map {X86:#x} to 0x42000 size=4K
        map {X86 + 0x1000:#x} to 0x41000 size=4K
        map {X86 + 0x2000:#x} to 0x40000 size=4K
        """,
    "physical memory that is not in the dump": f"""
        map {X86:#x} to 0x40000 size=4K
        map {X86 + 0x1000:#x} to 0xfee00000 size=4K
        map {X86 + 0x3000:#x} to 0xfee00000 size=4K
        """,
    "not in the dump, then not mapped: drgn reports the second": f"""
        map {X86:#x} to 0xfee00000 size=4K
        """,
    "a huge page that the dump holds in part": f"""
        map {X86:#x} to 0x0 size=2M
        """,
    "a table that is not in the dump": f"""
        raw {X86:#x} level=1 value=0xfee00067
        """,
    "a table past the end of physical memory": f"""
        raw {X86:#x} level=1 value=0xffffffffff067
        """,
    "reserved bits in every entry": f"""
        raw {X86:#x} level=0 value=0xfff0000000040163
        """,
    "the huge page bit in the top table": f"""
        raw {X86:#x} level=3 value=0xe3
        """,
    "a page that is there but not present": f"""
        raw {X86:#x} level=0 value=0x40162
        """,
    "the attribute bit of a huge page is no address": f"""
        raw {X86:#x} level=1 value=0x11e3
        """,
    "a last table that names itself": f"""
        loop {X86:#x} level=0
        """,
    "tables that name themselves": f"""
        loop {X86:#x} level=1
        loop {X86 + (1 << 30):#x} level=2
        """,
    "the top table names itself": f"""
        loop {X86:#x} level=3
        """,
    "the last page of the address space": """
        map 0xfffffffffffff000 to 0x40000 size=4K
        """,
    "the first page": """
        map 0x10000000 to 0x40000 size=4K
        """,
    "nothing at all": "",
}


@pytest.mark.parametrize("direct_map", [False, True], ids=["p_vaddr 0", "direct map"])
@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(readers, name, direct_map):
    text = "mmu x86_64 levels=4\nram 0x0 size=0x80000\n" + SITUATIONS[name]
    tables, made = readers(text, direct_map)
    interesting = {X86, X86 + 0x1000, X86 + 0x3000, X86 + (1 << 30), 0x10000000}
    interesting |= {0, 2**64 - 4096, 0x800000000000, 0xFFFF800000000000}
    for address in sorted(interesting):
        for read in edges(address, 0x1000):
            made.check(read)
        for method in ("read_u8", "read_u64", "read_c_string"):
            made.check(Read(method, address + 3))


def test_non_canonical_addresses_are_faults(readers):
    _, made = readers(LEAVES["x86-64, 4 levels"])
    for address in (0x800000000000, 0xDEAD000000000100, 0xFFFF7FFFFFFFFFF8):
        expected = made.check(Read("read", address, 16))
        assert expected.kind == "fault" and expected.value == address


def test_what_a_segment_holds_is_not_translated(tmp_path):
    # A page table maps the same address elsewhere; the program header wins, for
    # its own bytes to the byte, in the middle of a page.
    tables = page_tables.parse(
        f"""
        mmu x86_64 levels=4
        ram 0x0 size=0x80000
        map {X86:#x} to 0x40000 size=4K count=2
        """
    )
    path = str(tmp_path / "core")
    core = tables.core(direct_map=False)
    more = Load(X86 + 0x800, 0x100, fill="byte:0xee")
    core = replace(core, parts=core.parts + (more,))
    tables.core = lambda direct_map: core
    tables.write(path)
    made = Readers(path)
    for start in (X86 + 0x7F0, X86 + 0x800, X86 + 0x8F8, X86 + 0x900, X86):
        for size in (1, 8, 16, 0x200, 0x1000):
            made.check(Read("read", start, size))
    assert made.memory.read(X86 + 0x7FE, 4)[2:] == b"\xee\xee"
    assert made.memory.read_u8(X86 + 0x7FF) == made.alone.read_u8(0x407FF, True)


def test_encryption_mask_is_no_part_of_the_address(tmp_path):
    # drgn does not know sme_mask and would look for memory at bit 47: a
    # deliberate difference (docs/differences.md).
    tables = page_tables.parse(
        f"""
        mmu x86_64 levels=4 vmcoreinfo=NUMBER(sme_mask)=0x800000000000
        ram 0x0 size=0x80000
        raw {X86:#x} level=0 value=0x800000040163
        """
    )
    path = str(tmp_path / "core")
    tables.write(path)
    with fm.open(path) as mem:
        # As the entries of the upper tables have no such bit, those walk too.
        assert mem.translate(X86) == 0x40000
        assert mem.read(X86, 64) == mem.read(0x40000, 64, physical=True)


def test_without_a_root_translation_is_left_to_drgn(tmp_path):
    path = str(tmp_path / "core")
    tables = page_tables.parse("mmu x86_64\nram 0x0 size=0x80000")
    tables.mmu.vmcoreinfo = ""
    tables.write(path)
    with fm.open(path) as mem:
        assert mem.translation == "none: VMCOREINFO has no phys_base"
        with pytest.raises(fm.FaultError):
            mem.read(X86, 8)
        with pytest.raises(fm.FaultError) as error:
            mem.translate(X86)
        assert error.value.address == X86


def test_translation_can_be_turned_off(tmp_path):
    path = str(tmp_path / "core")
    page_tables.parse(LEAVES["x86-64, 4 levels"]).write(path)
    with fm.open(path, translate="never") as mem:
        assert mem.translation == "none: translation was turned off"
        with pytest.raises(fm.FaultError):
            mem.read(X86, 8)
    prog = drgn.Program()
    prog.set_core_dump(path)
    mem = fm.attach(prog, translate="never")
    # drgn's walker is still underneath, and reads the tables through us.
    assert prog.read(X86, 8) == prog.read(0x40000, 8, physical=True)
    assert mem.stats.walks == 0
    with pytest.raises(ValueError, match="translate must be"):
        fm.open(path, translate="sometimes")


def test_counters_tell_walks_from_remembered_translations(tmp_path):
    path = str(tmp_path / "core")
    page_tables.parse(LEAVES["x86-64, 4 levels"]).write(path)
    with fm.open(path) as mem:
        for _ in range(10):
            mem.read_u64(X86)
        assert (mem.stats.walks, mem.stats.tlb_hits) == (1, 9)
        mem.read_u64(X86 + 0x200000)
        mem.read_u64(X86 + 0x200000 + 0x12340)
        assert (mem.stats.walks, mem.stats.tlb_hits) == (2, 10)


def random_tables(rng):
    """Text of random page tables: leaves of all sizes, close together."""
    machine = rng.choice(["x86_64 levels=4", "x86_64 levels=5", "aarch64 va_bits=48"])
    base, ram = (ARM, 0x40000000) if "aarch64" in machine else (X86, 0)
    lines = [f"mmu {machine}", f"ram {ram:#x} size=0x80000"]
    lines.append(f"ram {ram + 0x200000:#x} size=0x40000")
    for slot in rng.sample(range(64), 24):
        physical = ram + rng.choice([0x40000, 0x44000, 0x200000, 0x23F000, 0x240000])
        lines.append(
            f"map {base + slot * 0x1000:#x} to {physical + rng.randrange(4) * 0x1000:#x}"
            " size=4K"
        )
    for slot in rng.sample(range(1, 8), 3):
        physical = ram + rng.choice([0, 0x200000, 0x400000])
        lines.append(f"map {base + slot * 0x200000:#x} to {physical:#x} size=2M")
    level = rng.randrange(1, 3)
    lines.append(f"loop {base + (1 << 39) + (rng.randrange(4) << 30):#x} level={level}")
    lines.append(f"raw {base + 0x1800000:#x} level=0 value={rng.getrandbits(64):#x}")
    return "\n".join(lines), base


def random_reads(rng, base, count):
    for _ in range(count):
        page = base + rng.choice(
            [
                rng.randrange(66) * 0x1000,
                rng.randrange(8) * 0x200000 + rng.randrange(64) * 0x1000,
                (1 << 39) + (rng.randrange(4) << 30) + rng.randrange(64) * 0x1000,
                0x1800000,
            ]
        )
        address = page + rng.choice([0, 8, 0x7F8, 0xFF8, 0xFFF, rng.randrange(4096)])
        yield Read("read", address, rng.choice([1, 2, 4, 8, 8, 8, 64, 4096, 20000]))


@pytest.mark.parametrize("seed", range(12))
def test_random_tables_and_reads(readers, seed):
    rng = random.Random(seed)
    text, base = random_tables(rng)
    _, made = readers(text, direct_map=bool(seed % 2))
    kinds = [made.check(read).kind for read in random_reads(rng, base, 1500)]
    assert kinds.count("value") > 50 and kinds.count("fault") > 50


def test_last_byte_of_the_address_space(readers):
    # drgn's walker has one byte less than there is (a size of 2^64-1).
    _, made = readers(
        """
        mmu x86_64
        ram 0x0 size=0x80000
        map 0xfffffffffffff000 to 0x40000 size=4K
        """
    )
    expected = made.alone.read(0x40FF0, 16, physical=True)
    assert outcome(made.alone, Read("read", 2**64 - 16, 16)) == LAST_BYTE
    for reader in made.ours.values():
        assert reader.read(2**64 - 16, 16) == expected


class Defective:
    """A Memory with a defect; the comparison has to notice each."""

    def __init__(self, memory):
        self.memory = memory

    def read(self, address, size, physical=False):
        return self.memory.read(address, size, physical)


class OnePageOnly(Defective):
    """Takes physical memory to go on where virtual memory does."""

    def read(self, address, size, physical=False):
        if physical:
            return super().read(address, size, True)
        start = self.memory.translate(address)
        return self.memory.read(start, size, physical=True)


class SmallPagesOnly(Defective):
    """Forgets the offset in a huge page."""

    def read(self, address, size, physical=False):
        if (address >> 21) & 7:
            address &= ~0x1FF000
        return super().read(address, size, physical)


class FaultAtTheStart(Defective):
    def read(self, address, size, physical=False):
        try:
            return super().read(address, size, physical)
        except fm.FaultError as error:
            error.address = address
            raise


@pytest.mark.parametrize("defect", [OnePageOnly, SmallPagesOnly, FaultAtTheStart])
def test_comparison_notices_a_seeded_defect(readers, defect):
    rng = random.Random(1)
    text, base = random_tables(rng)
    _, made = readers(text)
    made.ours = {"defect": defect(made.memory)}
    with pytest.raises(AssertionError, match="defect"):
        for read in random_reads(rng, base, 1500):
            made.check(read)
