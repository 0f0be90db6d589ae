# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Cores of machines with a terabyte, and cores with tens of thousands of program
headers: they open, read right at the edges of segments, and cost little memory.

The terabyte is a hole in the file but for some bytes. What is slow about large files
is not measured here.
"""

import os
import random

import pytest

import core_text
import drgn_fastmem as fm

drgn = pytest.importorskip("drgn", reason="it is what memories are attached to")

TIB = 1 << 40
GIB = 1 << 30
KERNEL_BASE = 0xFFFF888000000000
# The bytes at the edges of segments.
MARK = 16

WAYS = pytest.mark.parametrize("mmap", ["try", "never"])


def mark(number, end):
    """What segment number has at its first or last bytes."""
    return random.Random(2 * number + end).randbytes(MARK)


@pytest.fixture(scope="module")
def terabyte(tmp_path_factory):
    """A core of a kernel with 256 segments of 4 GiB side by side, with a mark at both
    ends of each, and the path of it."""
    path = tmp_path_factory.mktemp("sparse") / "terabyte"
    text = f"""
    core elf64 little riscv
    linux
    load vaddr={KERNEL_BASE:#x} paddr=0 memsz={4 * GIB:#x} repeat=256 step={4 * GIB:#x} offset=page fill=hole
    """
    try:
        core_text.write(path, text)
    except OSError as error:
        pytest.skip(f"a file of 1 TiB can't be made here: {error}")
    with fm.open(path, mmap="never") as mem, open(path, "r+b") as file:
        for number, segment in enumerate(mem.segments):
            for end in False, True:
                file.seek(segment.file_offset + end * (segment.file_size - MARK))
                file.write(mark(number, end))
    assert os.stat(path).st_blocks * 512 < 16 << 20
    yield str(path)
    os.unlink(path)


def check_terabyte(reader):
    generator = random.Random(1)
    for number in [0, 1, 254, 255, *generator.sample(range(2, 254), 12)]:
        for base, physical in (KERNEL_BASE, False), (0, True):
            first = base + number * 4 * GIB
            last = first + 4 * GIB - MARK
            assert reader.read(first, MARK, physical) == mark(number, False)
            assert reader.read(last, MARK, physical) == mark(number, True)
            expected = mark(number, False)[:8]
            assert reader.read_u64(first, physical) == int.from_bytes(
                expected, "little"
            )
            inside = first + generator.randrange(MARK, 4 * GIB - 2 * MARK)
            assert reader.read(inside, MARK, physical) == bytes(MARK)
            if number < 255:
                both = mark(number, True) + mark(number + 1, False)
                assert reader.read(last, 2 * MARK, physical) == both
    for base, physical in (KERNEL_BASE, False), (0, True):
        with pytest.raises(fm.FaultError) as fault:
            reader.read(base + TIB - MARK, MARK + 1, physical)
        assert fault.value.address == base + TIB


class TestATerabyte:
    @WAYS
    def test_reads_right_at_both_ends_of_segments(self, terabyte, mmap):
        with fm.open(terabyte, mmap=mmap) as mem:
            check_terabyte(mem)
            assert len(mem.segments) == 256
            assert sum(segment.size for segment in mem.segments) == TIB
            access = "mmap" if mmap == "try" else "pread"
            assert {segment.access for segment in mem.segments} == {access}
            assert (mem.stats.mapped_reads > 0) == (mmap == "try")

    @pytest.mark.parametrize("native", [True, False], ids=["native", "callable"])
    def test_attached_reads_what_drgn_reads(self, terabyte, native):
        prog = drgn.Program()
        prog.set_core_dump(terabyte)
        check_terabyte(prog)
        fm.attach(prog, _native=native)
        assert fm.attachment(prog) == ("native" if native else "callable")
        check_terabyte(prog)

    def test_whole_pieces_of_mebibytes(self, terabyte):
        # Past 64 KiB it is pread, here over the end of a segment.
        size = 3 << 20
        with fm.open(terabyte) as mem:
            data = mem.read(KERNEL_BASE + 4 * GIB - size // 2, size)
        half = bytes(size // 2 - MARK)
        assert data == half + mark(0, True) + mark(1, False) + half


# -- Many program headers ------------------------------------------------------

MANY = 70_000
STEP = 0x2000
SIZE = 0x20


def many(bits=64, order="little", machine="riscv", step=STEP):
    # Apart from each other: neighbours would be one range for drgn.
    return f"""
    core elf{bits} {order} {machine}
    load vaddr=0x10000 paddr=0x80000000 memsz={SIZE:#x} repeat={MANY} step={step:#x} fill=pattern:1
    """


def check_many(reader, step, physical_too):
    generator = random.Random(2)
    spaces = [(0x10000, False)] + [(0x80000000, True)] * physical_too
    for number in [0, 1, 65534, 65535, 65536, MANY - 1] + generator.sample(
        range(MANY), 60
    ):
        expected = core_text.fill_bytes(f"pattern:{number + 1}", SIZE)
        for base, physical in spaces:
            first = base + number * step
            assert reader.read(first, SIZE, physical) == expected
            assert reader.read(first, 1, physical) == expected[:1]
            assert reader.read(first + SIZE - 1, 1, physical) == expected[-1:]
            assert reader.read_u8(first + 5, physical) == expected[5]
            for address in first - 1, first + SIZE:
                with pytest.raises(fm.FaultError) as fault:
                    reader.read(address, 1, physical)
                assert fault.value.address == address


@pytest.fixture(scope="module")
def many_headers(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "core"
    core_text.write(path, many())
    return str(path)


class TestManyHeaders:
    @WAYS
    def test_each_is_a_segment(self, many_headers, mmap):
        with fm.open(many_headers, mmap=mmap) as mem:
            segments = mem.segments
            assert len(segments) == MANY
            access = "mmap" if mmap == "try" else "pread"
            for number in 0, 1, 65535, MANY - 1:
                segment = segments[number]
                assert segment.address == 0x10000 + number * STEP
                assert segment.physical_address == 0x80000000 + number * STEP
                assert (segment.size, segment.file_size) == (SIZE, SIZE)
                assert segment.access == access
                previous = segments[number - 1] if number else segment
                assert segment.file_offset == previous.file_offset + SIZE * bool(number)
            check_many(mem, STEP, True)
            # One for the file, not one a segment.
            assert mem.stats.syscalls < 10 or mmap == "never"

    def test_32_bits_big_endian(self, tmp_path):
        path = tmp_path / "core"
        core_text.write(path, many(32, "big", "ppc64", 0x40))
        with fm.open(path) as mem:
            assert len(mem.segments) == MANY
            assert not mem.is_64_bit and not mem.is_little_endian
            check_many(mem, 0x40, True)

    @pytest.mark.parametrize("native", [True, False], ids=["native", "callable"])
    def test_attached_reads_what_drgn_reads(self, many_headers, native):
        prog = drgn.Program()
        prog.set_core_dump(many_headers)
        check_many(prog, STEP, True)
        mem = fm.attach(prog, _native=native)
        before = mem.stats.reads
        check_many(prog, STEP, True)
        assert mem.stats.reads > before

    def test_all_of_the_overlapping_ones_but_the_last_are_hidden(self, tmp_path):
        path = tmp_path / "core"
        core_text.write(
            path,
            f"""
            core elf64 little riscv
            load vaddr=0x10000 memsz=0x1000 repeat={MANY} offset=0x500000 fill=hole
            load vaddr=0x10000 memsz=0x1000 offset=0x501000 fill=pattern:7
            """,
        )
        with fm.open(path) as mem:
            assert len(mem.segments) == MANY + 1
            expected = core_text.fill_bytes("pattern:7", 0x1000)
            assert mem.read(0x10000, 0x1000) == expected


# -- What it costs -------------------------------------------------------------

COST = """
import gc, sys
import drgn, drgn_fastmem as fm

def kib(name):
    with open("/proc/self/status") as status:
        return [int(l.split()[1]) for l in status if l.startswith(name + ":")][0]

prog = drgn.Program()
prog.set_core_dump(sys.argv[1])
addresses = [int(a, 0) for a in sys.argv[3:]]
for address in addresses:
    prog.read(address, 8)
gc.collect()
resident, peak = kib("VmRSS"), kib("VmHWM")
mem = fm.attach(prog, mmap=sys.argv[2])
for address in addresses:
    prog.read(address, 8)
assert fm.attachment(prog) == "native"
print(kib("VmRSS") - resident, kib("VmHWM") - peak)
# So that the difference is seen to be able to be large.
touched = bytearray(64 << 20)
print(kib("VmRSS") - resident)
"""


def cost_of_attaching(run_python, path, mmap, addresses):
    """MiB that attaching adds: in the end, and at most."""
    process = run_python(COST, path, mmap, *addresses)
    first, second = process.stdout.splitlines()
    assert int(second) > 64 << 10
    return [int(word) / 1024 for word in first.split()]


@WAYS
def test_attaching_to_a_terabyte_adds_less_than_10_mib(run_python, terabyte, mmap):
    addresses = [KERNEL_BASE + number * 4 * GIB for number in range(256)]
    resident, peak = cost_of_attaching(run_python, terabyte, mmap, addresses)
    assert resident < 10
    assert peak < 10


@WAYS
def test_attaching_to_many_headers_adds_some_hundred_bytes_for_each(
    run_python, many_headers, mmap
):
    # drgn's segments and ours, for virtual and physical memory.
    addresses = [0x10000 + number * STEP for number in range(0, MANY, 1000)]
    resident, peak = cost_of_attaching(run_python, many_headers, mmap, addresses)
    assert resident < 32
    assert peak < 32


# -- Headers that lie about how many they are ----------------------------------

REFUSED = """
import resource, sys
import drgn_fastmem as fm

def kib(name):
    with open("/proc/self/status") as status:
        return [int(l.split()[1]) for l in status if l.startswith(name + ":")][0]

# More address space than a machine that tests has; less than 2^32 headers take.
resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
before = kib("VmHWM")
try:
    fm.open(sys.argv[1])
except ValueError as e:
    print(e)
print(kib("VmHWM") - before)
"""


@pytest.mark.parametrize(
    "size, bits", [(0x4000, 64), (TIB, 64), (0x4000, 32)], ids=["small", "1 TiB", "32"]
)
def test_four_billion_program_headers_are_refused_without_allocating(
    run_python, tmp_path, size, bits
):
    path = tmp_path / "core"
    text = f"""
    core elf{bits} little 0x1234
    load vaddr=0x10000 memsz=0x1000
    header extended=yes sh_info=0xffffffff
    file size={size:#x}
    """
    try:
        core_text.write(path, text)
    except OSError as error:
        pytest.skip(f"a file of {size:#x} bytes can't be made here: {error}")
    message, cost = run_python(REFUSED, path).stdout.splitlines()
    assert message.startswith(f"{path}: program headers can't be read: ")
    assert int(cost) < 4 << 10


@WAYS
def test_as_many_as_the_sparse_file_holds_are_read(tmp_path, mmap):
    # The rest of them are zeros, and so is the type of section header 0 on top of
    # the second: PT_NULL.
    path = tmp_path / "core"
    core_text.write(
        path,
        f"""
        core elf64 little riscv
        load vaddr=0x10000 memsz=0x1000 offset=0x1000000 fill=pattern:3
        header extended=yes sh_info={MANY}
        """,
    )
    with fm.open(path, mmap=mmap) as mem:
        assert len(mem.segments) == 1
        expected = core_text.fill_bytes("pattern:3", 0x1000)
        assert mem.read(0x10000, 0x1000) == expected
