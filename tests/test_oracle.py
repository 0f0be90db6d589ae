# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""drgn's own reader is the oracle: random cores, random reads, one answer.

Four parties give it: drgn alone (plugin off), drgn with a Memory attached, a
Memory on its own, and reference.py. Where a kernel dump has virtual addresses
that no PT_LOAD holds, drgn asks the page tables; there drgn alone and drgn with
a Memory attached have to agree with each other, and a Memory on its own has to
fault like the reference. compare.py has the rules and the two differences that
are meant.

The second half breaks the reference one rule at a time and asserts that the very
same comparison notices: a comparison that can't fail proves nothing.
"""

from contextlib import ExitStack, contextmanager
import itertools
import os
import random
import tempfile

import pytest

from compare import Disagreement, Read, compare, interesting_reads
import core_text
from core_text import Core, Data, Load, Note
from reference import EM_AARCH64, Reference, Segment

drgn = pytest.importorskip("drgn", reason="drgn is the oracle")
hypothesis = pytest.importorskip("hypothesis", reason="the cores are random")
import drgn_fastmem as fm
from hypothesis import Phase, example, given, settings, strategies as st

READS_PER_CORE = 60
PAGE = 4096


# -- Random cores --------------------------------------------------------------

# The bytes of all segments come from one blob, after the headers, so that
# segments share, overlap and run off the end of the file.
BLOB_OFFSET = 0x1000

BASES_32 = [0, 0x1000, 0x400000, 0x7FFFE000, 0x80000000, 0xFFFFC000]
BASES_64 = BASES_32 + [
    0x100000000,
    0x7FFFFFFFE000,
    0xFFFF888000000000,
    0xFFFFFFFF81000000,
    0xFFFFFFFFFFFFC000,
]
# Either side of bit 55, which stands for the tag on aarch64, and tagged.
BASES_AARCH64 = BASES_64 + [0x007FFFFFFFFFE000, 0xFF7FFFFFFFFFE000, 0x5A00000000400000]

steps = st.one_of(
    st.sampled_from([0, 0, 0x1000, 0x2000, 0x3000]),
    st.sampled_from([1, 8, 0x10, 0x800, 0xFFF, 0x1001, 0x3FF8]),
)
sizes = st.one_of(
    st.sampled_from([0x1000, 0x2000, 0x3000, 0x4000]),
    st.sampled_from([0, 1, 7, 8, 9, 0x10, 0x123, 0xFFF, 0x1001, 0x1800]),
)


@st.composite
def loads(draw, bits, bases, blob_size):
    top = (1 << bits) - 1
    vaddr = min(draw(st.sampled_from(bases)) + draw(steps), top)
    memsz = draw(st.one_of(sizes, sizes, sizes, st.sampled_from([top, top - vaddr])))
    filesz = draw(
        st.one_of(
            st.none(),
            st.none(),
            sizes,
            st.sampled_from([0, top, memsz // 2, min(memsz + 8, top)]),
        )
    )
    if memsz > 0x10000 and filesz is None:
        filesz = draw(sizes)
    offset = draw(
        st.one_of(
            st.integers(0, blob_size // PAGE).map(lambda n: BLOB_OFFSET + n * PAGE),
            st.integers(0, blob_size).map(lambda n: BLOB_OFFSET + n),
        )
    )
    if draw(st.integers(0, 19)) == 0:
        offset = draw(
            st.sampled_from(
                [0, 1 << 31, (1 << 63) - PAGE, 1 << 63, (1 << 64) - PAGE, (1 << 64) - 1]
            )
        )
    paddr = draw(
        st.one_of(
            st.sampled_from([None, 0]),
            st.sampled_from(bases),
            steps,
            st.just(vaddr),
        )
    )
    return Load(
        vaddr,
        memsz,
        filesz,
        None if paddr is None else min(paddr, top),
        min(offset, top),
        "hole",
        # A header that is no PT_LOAD must not count.
        type=draw(st.sampled_from([1] * 15 + [0, 2, 0x6474E551])),
    )


@st.composite
def cores(draw):
    bits = draw(st.sampled_from([64, 64, 64, 32]))
    if bits == 64:
        machines = ["x86_64", "x86_64", "aarch64", "riscv", "s390", "ppc64"]
    else:
        machines = ["i386", "arm", "riscv", "ppc64"]
    machine = core_text.MACHINES[draw(st.sampled_from(machines))]
    if draw(st.integers(0, 19)) == 0:
        machine = 0x1234
    bases = BASES_32 if bits == 32 else BASES_64
    if machine == EM_AARCH64 and bits == 64:
        bases = BASES_AARCH64
    # Few bases in one core, so that its segments meet.
    bases = draw(st.lists(st.sampled_from(bases), min_size=1, max_size=3))
    blob_size = draw(st.sampled_from([0x10, 0x800, 0x1000, 0x2345, 0x4000]))
    parts = [Data(BLOB_OFFSET, blob_size, draw(st.sampled_from(FILLS)))]
    if draw(st.booleans()):
        # riscv has no page-table reader in drgn: there a kernel dump can be
        # compared in full.
        parts.append(core_text.linux_note())
    parts += draw(st.lists(loads(bits, bases, blob_size), max_size=7))
    if draw(st.integers(0, 9)) == 0:
        parts.append(Note("CORE", 4, b"task"))
    end = BLOB_OFFSET + blob_size
    return Core(
        bits=bits,
        order=draw(st.sampled_from(["little", "little", "big"])),
        machine=machine,
        parts=tuple(parts),
        extended=draw(st.integers(0, 9)) == 0,
        size=draw(
            st.one_of(
                st.none(),
                st.none(),
                st.integers(BLOB_OFFSET, end),
                st.just(end + 0x1800),
            )
        ),
    )


FILLS = ["pattern:1", "pattern:2", "strings:3"]


# -- The comparison ------------------------------------------------------------


class Parties:
    """All readers of one core file."""

    def __init__(self, path, stack, *, platform=None, vmcoreinfo=None):
        self.reference = stack.enter_context(Reference(path))

        def program():
            options = {} if vmcoreinfo is None else {"vmcoreinfo": vmcoreinfo}
            prog = drgn.Program(platform, **options)
            prog.set_core_dump(path)
            assert fm.attachment(prog) is None, "the plugin should be off"
            return prog

        self.drgn = {"drgn alone": program()}
        self.memories = {}
        self.attached = {}
        for mmap in "try", "never":
            memory = stack.enter_context(fm.open(path, mmap=mmap))
            self.memories[f"open mmap={mmap}"] = memory
            prog = program()
            fm.attach(prog, mmap=mmap)
            self.attached[f"attach mmap={mmap}"] = prog

    def compare(self, read, extra={}):
        return compare(
            self.reference,
            self.drgn,
            {**self.memories, **extra},
            read,
            attached=self.attached,
        )


DIRECTORY = tempfile.TemporaryDirectory(prefix="drgn-fastmem-oracle-")
numbers = itertools.count()


@contextmanager
def parties_of(core, **options):
    # A new file each time: a mapping that leaked must not see the next core.
    path = os.path.join(DIRECTORY.name, f"core{next(numbers)}")
    with ExitStack() as stack:
        stack.callback(lambda: os.path.exists(path) and os.unlink(path))
        core.write(path)
        yield Parties(path, stack, **options)


def check(core, seed, count=READS_PER_CORE, defect=None, **options):
    with parties_of(core, **options) as parties:
        extra = {}
        if defect is not None:
            with open(f"/proc/self/fd/{parties.reference.fd}") as file:
                extra = {"defect": defect(f"/proc/self/fd/{file.fileno()}")}
        try:
            for read in interesting_reads(
                parties.reference, random.Random(seed), count
            ):
                try:
                    parties.compare(read, extra)
                except Disagreement as error:
                    # What is above the traceback of hypothesis is not enough to
                    # repeat it by hand; this is.
                    error.args = (f"{error}\n{core}",)
                    raise
        finally:
            for reader in extra.values():
                reader.close()


seeds = st.integers(0, (1 << 32) - 1)


@given(cores(), seeds)
def test_random_cores_and_reads(core, seed):
    check(core, seed)


@given(
    cores().filter(lambda core: core.machine == core_text.MACHINES["riscv"]), seeds
)
@settings(max_examples=settings().max_examples // 4)
def test_random_cores_of_a_machine_without_page_table_reader(core, seed):
    check(core, seed)


# -- Fixed cores ---------------------------------------------------------------


def check_text(text, count=400, **options):
    check(core_text.parse(text), 0, count, **options)


def test_no_segments():
    check_text("core elf64 little x86_64", 50)
    check_text("core elf32 big arm", 50)


def test_kernel_dump_of_each_machine():
    for machine in core_text.MACHINES:
        for order in "little", "big":
            check_text(
                f"""
                core elf64 {order} {machine}
                linux
                load vaddr=0xffff888000000000 paddr=0 memsz=0x4000 filesz=0x3000
                load vaddr=0xffffffff81000000 paddr=0x1000000 memsz=0x2000
                load vaddr=0xffffc90000000000 memsz=0x2000
                """,
                100,
            )


def test_more_headers_than_e_phnum_can_say():
    check_text(
        """
        core elf64 little x86_64
        load vaddr=0x10000 paddr=0 memsz=0x18 repeat=66000 step=0x10 fill=pattern:1
        load vaddr=0x50008 memsz=0x1000
        """,
        60,
    )


def test_more_headers_than_e_phnum_can_say_32_bit_big_endian():
    check_text(
        """
        core elf32 big ppc64
        linux
        load vaddr=0x10000 paddr=0 memsz=0x20 filesz=8 repeat=65536 step=0x20 fill=pattern:1
        """,
        60,
    )


def test_segment_that_covers_the_whole_address_space():
    for bits, top in (64, "0xffffffffffffffff"), (32, "0xffffffff"):
        check_text(
            f"""
            core elf{bits} little riscv
            linux
            load vaddr=0 paddr=0 memsz={top} filesz=0x2000
            load vaddr=0x1001 paddr=0x1001 memsz=0x10
            load vaddr={top} paddr=0x3000 memsz=1
            load vaddr={top[:-1]}0 paddr=0x5000 memsz=0x40
            """
        )


def test_bit_55_of_aarch64_addresses():
    check_text(
        """
        core elf64 little aarch64
        load vaddr=0x007fffffffffe000 paddr=0x1000 memsz=0x2000 fill=strings:1
        load vaddr=0x0080000000000000 paddr=0x3000 memsz=0x1000
        load vaddr=0xff80000000000000 paddr=0x00800000000000f0 memsz=0x1000
        load vaddr=0 paddr=0x5000 memsz=0x2000
        """
    )


@pytest.mark.parametrize(
    "platform",
    [
        drgn.Platform(drgn.Architecture.PPC64, drgn.PlatformFlags(0)),
        drgn.Platform(drgn.Architecture.I386),
    ],
    ids=["other byte order", "other address size"],
)
def test_program_of_another_platform_is_left_to_drgn(tmp_path, platform):
    # drgn takes the address size and the byte order from the Program then; a
    # Memory knows only the file.
    path = str(tmp_path / "core")
    core_text.parse(
        """
        core elf64 little x86_64
        load vaddr=0x100 paddr=0x2000 memsz=0x10
        """
    ).write(path)
    prog = drgn.Program(platform)
    prog.set_core_dump(path)
    before = prog.read(0x100, 16)
    with pytest.raises(ValueError, match="different platforms"):
        fm.attach(prog)
    assert fm.attachment(prog) is None
    assert prog.read(0x100, 16) == before


def test_vmcoreinfo_given_to_the_program():
    # No note in the file, but drgn knows that it is a kernel's memory: filler is
    # zeros. p_paddr 0 still means none: only a note in the file changes that.
    vmcoreinfo = core_text.linux_note().desc.decode()
    core = core_text.parse(
        """
        core elf64 little riscv
        load vaddr=0x1000 paddr=0 memsz=0x20 filesz=0x10
        """
    )
    with parties_of(core, vmcoreinfo=vmcoreinfo) as parties:
        alone = parties.drgn["drgn alone"]
        assert alone.read(0x1010, 0x10) == bytes(0x10)
        for prog in parties.attached.values():
            for read in interesting_reads(parties.reference, random.Random(0), 200):
                assert outcome_of(prog, read) == outcome_of(alone, read), read


def test_kernel_dump_with_page_tables():
    """What no PT_LOAD holds is translated; test_translate.py has the rest."""

    def table(*entries):
        page = bytearray(PAGE)
        for index, entry in entries:
            page[index * 8 : index * 8 + 8] = entry.to_bytes(8, "little")
        return page

    # vaddr 0xffffc90000001000 -> 0x5000. Intel SDM volume 3, "4-Level Paging".
    tables = [
        table((0x192, 0x2003)),
        table((0, 0x3003)),
        table((0, 0x4003)),
        table((1, 0x5003), (2, 0x9999003)),
        bytearray(core_text.fill_bytes("pattern:9", PAGE)),
    ]
    note = core_text.linux_note(swapper_pg_dir=0xFFFFFFFF80001000)
    core = Core(
        parts=(
            Note("VMCOREINFO", 0, note.desc + b"NUMBER(phys_base)=0\n"),
            Load(0xFFFF888000001000, len(tables) * PAGE, paddr=0x1000, fill="hole"),
        )
    )
    with parties_of(core) as parties:
        segment = parties.reference.virtual_segments[0]
        path = f"/proc/self/fd/{parties.reference.fd}"
        with open(path, "r+b") as file:
            file.seek(segment.file_offset)
            file.write(b"".join(tables))
        alone = parties.drgn["drgn alone"]
        assert alone.read(0xFFFFC90000001000, PAGE) == tables[4]
        for prog in parties.attached.values():
            for address in range(0xFFFFC90000000000, 0xFFFFC90000003000, 0x3F8):
                read = Read("read", address, 0x20)
                assert outcome_of(prog, read) == outcome_of(alone, read), read
            assert prog.read(0xFFFFC90000001000, PAGE) == tables[4]
        for memory in parties.memories.values():
            assert memory.read(0xFFFFC90000001000, PAGE) == tables[4]


def outcome_of(reader, read):
    from compare import outcome

    return outcome(reader, read)


# -- Arguments -----------------------------------------------------------------


class Index:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


ADDRESSES = [
    0x1000,
    True,
    Index(0x1000),
    Index(0x1008),
    -1,
    -(1 << 63),
    1 << 64,
    (1 << 64) + 0x1000,
    1 << 200,
    Index(-1),
    Index(1 << 64),
    Index(KeyError("mine")),
    0x1000 + 0.0,
    "0x1000",
    b"\x00",
    None,
    [],
]


@pytest.mark.parametrize("method", ["read", "read_u16", "read_word", "read_c_string"])
@pytest.mark.parametrize("address", ADDRESSES, ids=lambda a: type(a).__name__)
def test_forms_of_addresses(core_file, address, method):
    path = core_file(
        """
        core elf64 little x86_64
        load vaddr=0 memsz=0x2000 fill=strings:1
        """
    )
    prog = drgn.Program()
    prog.set_core_dump(path)
    arguments = (address, 8) if method == "read" else (address,)
    expected = result_or_exception(getattr(prog, method), *arguments)
    with fm.open(path) as memory:
        assert result_or_exception(getattr(memory, method), *arguments) == expected


@pytest.mark.parametrize(
    "size", [0, True, Index(4), -1, Index(-5), 1 << 63, 1 << 64, 4.0, "4", None]
)
def test_forms_of_sizes(core_file, size):
    path = core_file("core elf64 little x86_64\nload vaddr=0 memsz=0x2000")
    prog = drgn.Program()
    prog.set_core_dump(path)
    with fm.open(path) as memory:
        expected = result_or_exception(prog.read, 0x1000, size)
        assert result_or_exception(memory.read, 0x1000, size) == expected
        # None means "no limit" here: the design's own signature. drgn has none.
        if size is not None:
            expected = result_or_exception(prog.read_c_string, 0, max_size=size)
            assert (
                result_or_exception(memory.read_c_string, 0, max_size=size) == expected
            )


@pytest.mark.parametrize("physical", [0, 1, True, "", "x", None, []])
def test_forms_of_physical(core_file, physical):
    path = core_file(
        """
        core elf64 little x86_64
        load vaddr=0x1000 paddr=0x2000 memsz=8 fill=text:virtual
        load vaddr=0x2000 paddr=0x1000 memsz=8 fill=text:physical
        """
    )
    prog = drgn.Program()
    prog.set_core_dump(path)
    with fm.open(path) as memory:
        assert memory.read(0x1000, 8, physical) == prog.read(0x1000, 8, physical)
        assert memory.read(0x1000, 8, physical=physical) == prog.read(
            0x1000, 8, physical=physical
        )


def result_or_exception(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error)


# -- Seeded defects ------------------------------------------------------------


class FirstHeaderWins(Reference):
    def owner(self, address, segments):
        for index, segment in enumerate(segments):
            if segment.first <= address <= segment.last:
                return index
        return None

    def piece_end(self, address, owner, segments):
        last = segments[owner].last
        for other in segments[:owner]:
            if address < other.first <= last:
                last = other.first - 1
        return last


class SavedSizeOneTooLarge(Reference):
    def saved_size(self, segment):
        return segment.file_size + 1


class SavedSizeOneTooSmall(Reference):
    def saved_size(self, segment):
        return max(0, segment.file_size - 1)


class FillerOfUserCoresIsZeros(Reference):
    def fills_with_zeros(self):
        return True


class FillerOfKernelDumpsIsAFault(Reference):
    def fills_with_zeros(self):
        return False


class NoWrap(Reference):
    def wrapped_address(self):
        # The address space goes on behind its end, where nothing is.
        return self.address_mask + 1


class SegmentsWrap(Reference):
    def _add(self, segments, address, phdr):
        super()._add(segments, address, phdr)
        end = address + phdr.memsz
        if end > self.address_mask + 1:
            offset = self.address_mask + 1 - address
            segments.append(
                Segment(
                    0,
                    end - self.address_mask - 2,
                    phdr.offset + offset,
                    max(0, phdr.filesz - offset),
                )
            )


class AllOnesIsAPhysicalAddress(Reference):
    def has_physical(self, phdr):
        return self.paddr_valid


class ZeroIsNeverAPhysicalAddress(Reference):
    def has_physical(self, phdr):
        return super().has_physical(phdr) and phdr.paddr != 0


class ZeroIsAlwaysAPhysicalAddress(Reference):
    def has_physical(self, phdr):
        return phdr.paddr != (1 << self.bits) - 1


class TagsCount(Reference):
    def untag(self, address):
        return address


class TagIsCutOffInsteadOfExtended(Reference):
    def untag(self, address):
        return address & ((1 << 56) - 1) if self.machine == EM_AARCH64 else address


class EndOfFileReadsAsZeros(Reference):
    def read_piece(self, segment, address, count):
        try:
            return super().read_piece(segment, address, count)
        except Exception:
            # As in the last page of a mapping.
            position = segment.file_offset + address - segment.first
            if position >= self.file_size() or position < 0:
                raise
            data = os.pread(self.fd, count, position)
            if (position + count - 1) // PAGE > (self.file_size() - 1) // PAGE:
                raise
            return data.ljust(count, b"\0")


class FileIsReadBeforeFillerIsNoticed(Reference):
    def read_piece(self, segment, address, count):
        saved = max(0, segment.file_size - (address - segment.first))
        if 0 < saved < count:
            super().read_piece(segment, address, saved)
        return super().read_piece(segment, address, count)


class FaultAtTheStartOfTheRead(Reference):
    def read(self, address, size, physical=False):
        try:
            return super().read(address, size, physical)
        except Exception as error:
            error.address = address & self.address_mask
            raise


class OverlayKeepsTheOffsetOfItsStart(Reference):
    """What is left of a segment behind a later one starts again at offset 0."""

    def _read_flat(self, address, count, physical):
        segments = self.physical_segments if physical else self.virtual_segments
        owner = self.owner(address, segments)
        if owner is not None:
            first = segments[owner].first
            cut = [s.last for s in segments[owner + 1 :] if first <= s.last < address]
            if cut:
                address = first + (address - max(cut) - 1)
        return super()._read_flat(address, count, physical)


class WrongByteOrder(Reference):
    def read_uint(self, address, size, physical=False):
        value = super().read_uint(address, size, physical)
        return int.from_bytes(value.to_bytes(size, "little"), "big")


class WordOf64Bits(Reference):
    def read_word(self, address, physical=False):
        return self.read_u64(address, physical)


class StringHoldsOneByteMore(Reference):
    def read_c_string(self, address, physical=False, *, max_size=None):
        if max_size is not None:
            max_size += 1
        return super().read_c_string(address, physical, max_size=max_size)


DEFECTS = [
    value
    for value in list(globals().values())
    if isinstance(value, type) and issubclass(value, Reference) and value != Reference
]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_comparison_notices_a_seeded_defect(defect):
    @settings(phases=[Phase.generate], derandomize=True, max_examples=600)
    @given(cores(), seeds)
    def search(core, seed):
        check(core, seed, defect=defect)

    with pytest.raises(Disagreement) as error:
        search()
    # And it was the defect, nobody else.
    assert error.value.culprits == ["defect"]
