# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""readv, readv_into, gather_u64 and prefetch: many ranges in one call mean the same
as one call each, whatever is between them, and a fault stays with its item.

What a single read means is checked by test_oracle.py, and so are the random cores
made there.
"""

from array import array
from contextlib import ExitStack, contextmanager
import itertools
import math
import os
import random
import signal
import struct
import threading
import time

import pytest

from compare import Read, interesting_reads, outcome
import core_text
import drgn_fastmem as fm
from reference import Reference
from test_oracle import cores, parties_of, seeds

hypothesis = pytest.importorskip("hypothesis", reason="the cores are random")
from hypothesis import given, settings

PAGE = 4096
WAYS = {
    "mapped": dict(mmap="try"),
    "strict": dict(mmap="never", max_age=0),
    "cached": dict(mmap="never", max_age=math.inf),
}
TOP = 1 << 64
LAST = TOP - 1

# Pages of it are missing, saved in part, side by side, and at both ends.
CORE = f"""
core elf64 little x86_64
load vaddr=0x10000 paddr=0x1000 memsz=0x8000 offset=page fill=pattern:1
load vaddr=0x18000 paddr=0x20000 memsz=0x1000 offset=page fill=pattern:2
load vaddr=0x1a000 paddr=0x9000 memsz=0x4000 filesz=0x1800 offset=page fill=pattern:3
load vaddr={TOP - 0x2000:#x} memsz=0x2000 offset=page fill=pattern:4
load vaddr=0 memsz=0x1000 offset=page fill=pattern:5
load vaddr=0x40000 memsz=0x40000 paddr=0x40000 offset=page fill=pattern:6
"""


@pytest.fixture
def path(core_file):
    return core_file(CORE)


@pytest.fixture(params=[*WAYS, "snapshot"])
def mem(request, path):
    with ExitStack() as stack:
        options = WAYS.get(request.param, WAYS["strict"])
        memory = stack.enter_context(fm.open(path, **options))
        if request.param == "snapshot":
            stack.enter_context(memory.snapshot())
        yield memory


@pytest.fixture
def reference(path):
    with Reference(path) as reference:
        yield reference


def expected(reference, ranges, physical=False):
    reads = [Read("read", address, size, physical) for address, size in ranges]
    return [outcome(reference, read) for read in reads]


def got(item):
    if isinstance(item, bytes):
        return ("value", item)
    assert type(item) is fm.FaultError
    return ("fault", item.address)


def packed(ranges):
    return array("Q", itertools.chain.from_iterable(ranges))


def check(mem, reference, ranges, physical=False):
    """Every way to ask for the ranges gives the answers of single reads."""
    right = expected(reference, ranges, physical)
    items = mem.readv(ranges, physical, on_fault="return")
    assert [got(item) for item in items] == right
    assert [
        got(item) for item in mem.readv(packed(ranges), physical, on_fault="return")
    ] == right
    # What was there before is not handed out, of bad items neither.
    out = bytearray(b"\xee" * sum(size for _, size in ranges))
    status = bytearray(b"\xee" * len(ranges))
    mem.readv_into(packed(ranges), out, physical, status=status)
    at = 0
    for (address, size), (kind, value), reason, item in zip(ranges, right, status, items):
        bytes_ = bytes(out[at : at + size])
        at += size
        assert bytes_ == (value if kind == "value" else bytes(size))
        if kind == "value":
            assert reason == fm.ReadStatus.OK
        else:
            assert item.reason == reason != fm.ReadStatus.OK
    bad = [value for kind, value in right if kind == "fault"]
    for call in (
        lambda: mem.readv(ranges, physical),
        lambda: mem.readv(ranges, physical, on_fault="raise"),
        lambda: mem.readv_into(packed(ranges), out, physical),
    ):
        if bad:
            with pytest.raises(fm.FaultError) as info:
                call()
            # The first in the order of the ranges.
            assert info.value.address == bad[0]
        else:
            call()
    mem.prefetch(ranges, physical)
    assert [
        got(item) for item in mem.readv(ranges, physical, on_fault="return")
    ] == right


# -- The same as single reads ---------------------------------------------------


@contextmanager
def readers(core):
    with parties_of(core) as parties, ExitStack() as stack:
        path = f"/proc/self/fd/{parties.reference.fd}"
        memories = {
            name: stack.enter_context(fm.open(path, **options))
            for name, options in WAYS.items()
        }
        for name, options in WAYS.items():
            memory = stack.enter_context(fm.open(path, **options))
            stack.enter_context(memory.snapshot())
            memories[f"{name}, snapshot"] = memory
        yield parties, memories


def disagreements(parties, memories, seed, count=150):
    rng = random.Random(seed)
    reads = [
        read
        for read in interesting_reads(parties.reference, rng, count)
        if read.method in ("read", "read_u64")
    ]
    for physical in False, True:
        batch = [
            (read.address, 8 if read.size is None else read.size)
            for read in reads
            if read.physical == physical
        ]
        # And their neighbourhood, which is what gets merged.
        batch += [
            (max(0, address + rng.choice((-8, 64, 4000))) % TOP, rng.choice((0, 1, 8, 700)))
            for address, _ in batch
        ]
        rng.shuffle(batch)
        right = expected(parties.reference, batch, physical)
        for name, memory in memories.items():
            items = memory.readv(batch, physical, on_fault="return")
            yield from (
                (name, range, answer, item)
                for range, answer, item in zip(batch, right, items)
                if got(item) != answer
            )


@given(cores(), seeds)
@settings(max_examples=settings().max_examples // 2)
def test_random_cores_and_batches(core, seed):
    with readers(core) as (parties, memories):
        wrong = list(disagreements(parties, memories, seed))
        assert wrong == [], core


def test_the_comparison_of_batches_can_fail():
    class Shifted(Reference):
        def read(self, address, size, physical=False):
            return super().read(address, size, physical)[::-1]

    core = core_text.parse(CORE)
    with readers(core) as (parties, memories):
        assert list(disagreements(parties, memories, 1)) == []
        parties.reference.__class__ = Shifted
        assert list(disagreements(parties, memories, 1)) != []


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize(
    "bad",
    [(0x19000, 8), (0x18FFC, 8), (0x19FFC, 8), (0x1B800, 8), (0x1B7FC, 8), (0x19800, 1)],
)
def test_hole_between_two_good_items(mem, reference, order, bad):
    items = [(0x18FF0, 8), bad, (0x1A008, 8)]
    ranges = [items[i] for i in order]
    check(mem, reference, ranges)
    results = mem.readv(ranges, on_fault="return")
    for i, result in zip(order, results):
        assert isinstance(result, bytes) == (i != 1)


def test_reasons(core_file, path):
    R = fm.ReadStatus
    for options in WAYS.values():
        with fm.open(path, **options) as mem:
            os.truncate(path, mem.segments[5].file_offset + 0x3F000)
            for address, physical, reason in (
                (0x10000, False, R.OK),
                (0x19000, False, R.UNMAPPED),
                (0x1B800, False, R.EXCLUDED),
                (0x7F000, False, R.SHORT),
                (0x500000, True, R.OUTSIDE),
                (0x40000, True, R.OK),
            ):
                status = bytearray(1)
                mem.readv_into([(address, 8)], bytearray(8), physical, status=status)
                assert status[0] == reason
                (item,) = mem.readv([(address, 8)], physical, on_fault="return")
                if reason != R.OK:
                    assert item.reason is reason
                    with pytest.raises(fm.FaultError) as info:
                        mem.read(address, 8, physical)
                    assert info.value.reason is reason
                    assert str(info.value) == str(item)
            os.truncate(path, mem.segments[5].file_offset + 0x40000)
    # An offset that no file has.
    path = core_file(
        "core elf64 little x86_64\n"
        "load vaddr=0x1000 memsz=0x1000 offset=0x7ffffffffffff000 fill=hole\n"
        "file size=0x1000\n",
        "far",
    )
    with fm.open(path) as mem:
        (item,) = mem.readv([(0x1800, 8)], on_fault="return")
        assert item.address == 0x1800
        assert item.reason in (R.IO, R.SHORT)


@pytest.mark.parametrize("nr", [1, 2, 3, 95, 96, 97, 255, 256, 257, 1000, 20_000])
def test_any_number_of_items_in_any_order(mem, reference, nr):
    rng = random.Random(nr)
    ranges = [
        (0x40000 + rng.randrange(0x3F000), rng.choice((0, 1, 8, 8, 17, 64, 256)))
        for _ in range(nr)
    ]
    ranges[nr // 2] = (0x30000, 16)
    for order in (ranges, sorted(ranges), sorted(ranges, reverse=True)):
        check(mem, reference, order)


def test_a_hundred_thousand_items(mem, reference):
    data = mem.read(0x40000, 0x40000)
    rng = random.Random(1)
    offsets = [rng.randrange(0x3FF00) for _ in range(100_000)]
    addresses = array("Q", (0x40000 + offset for offset in offsets))
    right = [int.from_bytes(data[at : at + 8], "little") for at in offsets]
    assert list(mem.gather_u64(addresses)) == right
    items = mem.readv([(address, 8) for address in addresses])
    assert items == [data[at : at + 8] for at in offsets]


def test_no_items(mem):
    assert mem.readv([]) == []
    assert mem.readv(b"") == []
    assert mem.readv_into([], bytearray()) is None
    assert mem.readv_into([], bytearray(), status=bytearray()) is None
    assert len(mem.gather_u64([])) == 0
    assert mem.prefetch([]) is None


def test_items_of_no_bytes_touch_nothing(mem, reference):
    check(mem, reference, [(0x19000, 0), (LAST, 0), (0, 0), (0x500000, 0)])
    ranges = [(0x10000, 0), (0x10000, 8), (0x19000, 0), (0x10008, 8), (0x19000, 0)]
    check(mem, reference, ranges)
    mem.reset_stats()
    mem.readv([(0x19000, 0)] * 10)
    assert mem.stats.reads == mem.stats.faults == 0


def test_overlapping_duplicate_and_descending(mem, reference):
    ranges = [
        (0x10100, 64),
        (0x10120, 64),
        (0x10100, 64),
        (0x100F0, 0x100),
        (0x10000, 0x2000),
        (0x11FFF, 2),
        (0x11FFF, 2),
        (0x10FF0, 1),
    ]
    check(mem, reference, ranges)
    check(mem, reference, ranges[::-1])
    check(mem, reference, ranges, physical=True)


def test_across_segments_and_what_was_not_saved(mem, reference):
    ranges = [(0x17FF8, 16), (0x17000, 0x2000), (0x18FF8, 16), (0x1B7F8, 16), (0x10000, 8)]
    check(mem, reference, ranges)


def test_across_the_end_of_the_address_space(mem, reference):
    ranges = [(LAST, 1), (LAST, 2), (LAST - 7, 16), (0, 8), (LAST - 0x1FFF, 0x3000)]
    check(mem, reference, ranges)
    check(mem, reference, ranges + [(LAST - 0x2000, 4), (LAST, 0x1002)])


def test_items_as_large_as_bulk_reads(mem, reference):
    size = 0x10000
    ranges = [(0x40000, size), (0x40000, size - 1), (0x40008, 8), (0x50000, 0x30000)]
    check(mem, reference, ranges)
    check(mem, reference, ranges + [(0x70000, size + 1)])


def test_zeros_of_a_kernel_dump(core_file):
    path = core_file(
        "core elf64 little riscv\nlinux\n"
        "load vaddr=0x10000 memsz=0x4000 filesz=0x1800 offset=page fill=byte:7\n"
    )
    for options in WAYS.values():
        with fm.open(path, **options) as mem:
            items = mem.readv([(0x11000, 0x900), (0x12000, 16), (0x10000, 1)])
            assert items == [b"\7" * 0x800 + bytes(0x100), bytes(16), b"\7"]


def test_tags_of_aarch64(core_file):
    path = core_file(
        "core elf64 little aarch64\n"
        "load vaddr=0x40000 memsz=0x2000 offset=page fill=pattern:7\n"
    )
    for options in WAYS.values():
        with fm.open(path, **options) as mem:
            data = mem.read(0x40000, 32)
            addresses = [0x40000, 0x5A00000000040008, 0x40010, 0xFF00000000040018]
            items = mem.readv([(address, 8) for address in addresses])
            assert b"".join(items) == data
            assert mem.gather_u64(addresses).tobytes() == data



# -- How it is read ---------------------------------------------------------------


def test_neighbours_are_read_together(path):
    with fm.open(path, mmap="never", max_age=0) as mem:
        apart = [(0x40000 + 1000 * i, 8) for i in range(100)]
        mem.readv(apart)
        stats = mem.stats
        assert (stats.reads, stats.bytes, stats.coalesced) == (100, 800, 100)
        assert stats.syscalls == 1
        assert stats.gap_bytes == 99 * 992
        # Duplicates are read once.
        mem.reset_stats()
        mem.readv(apart * 3)
        assert (mem.stats.syscalls, mem.stats.gap_bytes) == (1, 99 * 992)
        assert mem.stats.reads == 300
        # A gap of more than 4 KiB is not read.
        mem.reset_stats()
        mem.readv([(0x40000, 8), (0x41008, 8), (0x42011, 8)])
        assert (mem.stats.syscalls, mem.stats.gap_bytes) == (2, 4096)
        # Nor are two segments, though they lie side by side in memory.
        mem.reset_stats()
        mem.readv([(0x17FF8, 8), (0x18000, 8)])
        assert mem.stats.syscalls == 2


def test_prefetch_fills_the_cache(path):
    with fm.open(path, mmap="never") as mem, fm.open(path) as mapped:
        ranges = [(0x40000, 0x3000), (0x44010, 1), (0x4F000, 8), (0x19000, 8), (0x10000, 8)]
        mem.prefetch(ranges)
        # The page between the first two is read with them, and not kept.
        assert mem.stats.syscalls == 3
        assert (mem.stats.cache_misses, mem.stats.gap_bytes) == (6, PAGE)
        mem.reset_stats()
        for address, size in ranges:
            if address != 0x19000:
                assert mem.read(address, size) == mapped.read(address, size)
        assert mem.stats.syscalls == 0
        # Again is nothing.
        mem.prefetch(ranges)
        assert mem.stats.syscalls == 0
        # Where nothing may be kept neither.
        mem.max_age = 0
        mem.prefetch(ranges)
        assert mem.stats.syscalls == 0
        with mem.snapshot():
            mem.prefetch(ranges)
            assert mem.stats.syscalls == 3
            mem.readv(ranges[:3])
            assert mem.stats.syscalls == 3


def test_prefetch_of_more_than_there_is(core_file):
    path = core_file(
        "core elf64 little x86_64\n"
        "load vaddr=0x100000 memsz=0x1000000 offset=page fill=hole\n"
    )
    with fm.open(path, mmap="never") as mem:
        mem.prefetch([(0, 1 << 62)])
        mem.prefetch([(0x100000, 1 << 62)])
        assert 0 < mem.stats.cache_misses <= 1024
        mem.prefetch([(0x100000, 8)], physical=True)
        mem.prefetch([(LAST, 100)])


def test_batch_that_is_larger_than_the_cache_leaves_it_alone(core_file):
    path = core_file(
        "core elf64 little x86_64\n"
        "load vaddr=0x100000 memsz=0x1000000 offset=page fill=hole\n"
    )
    with fm.open(path, mmap="never") as mem:
        few = [(0x100000 + PAGE * i, 8) for i in range(500)]
        many = [(0x100000 + PAGE * i, 8) for i in range(4000)]
        mem.readv(many)
        assert mem.stats.cache_misses == 0
        mem.readv(few)
        assert mem.stats.cache_misses == 500
        mem.reset_stats()
        mem.readv(many)
        assert mem.stats.cache_hits == 500
        assert mem.stats.cache_misses == 0


# -- Arguments --------------------------------------------------------------------


def test_ranges_may_be_many_things(path):
    with fm.open(path) as mem:
        right = [mem.read(0x10000, 4), mem.read(0x40000, 2)]
        words = [0x10000, 4, 0x40000, 2]
        raw = struct.pack("=4Q", *words)

        class Index:
            def __init__(self, value):
                self.value = value

            def __index__(self):
                return self.value

        for ranges in (
            [(0x10000, 4), (0x40000, 2)],
            ((0x10000, 4), [0x40000, 2]),
            iter([(0x10000, 4), (0x40000, 2)]),
            {0x10000: 4, 0x40000: 2}.items(),
            [(Index(0x10000), Index(4)), (0x40000, True + True)],
            array("Q", words),
            array("q", words),
            raw,
            bytearray(raw),
            memoryview(raw),
            memoryview(b"x" + raw)[1:],
            memoryview(raw).cast("B").cast("Q", (2, 2)),
        ):
            assert mem.readv(ranges) == right
        assert mem.gather_u64(iter([0x10000])) == mem.gather_u64(array("Q", [0x10000]))
        numpy = pytest.importorskip("numpy", reason="the rest of this test needs it")
        assert mem.readv(numpy.array([[0x10000, 4], [0x40000, 2]])) == right


@pytest.mark.parametrize(
    "ranges, error",
    [
        (b"1234567", ValueError),
        (bytes(24), ValueError),
        (array("Q", [1, 2, 3]), ValueError),
        (array("d", [1.0, 2.0]), TypeError),
        (array("I", [1, 2, 3, 4]), TypeError),
        (memoryview(array("Q", range(8)))[::2], (BufferError, ValueError)),
        ("ab", ValueError),
        (5, TypeError),
        (None, TypeError),
        ([1, 2], TypeError),
        ([(1,)], ValueError),
        ([(1, 2, 3)], ValueError),
        ([(1, -1)], ValueError),
        ([(-1, 1)], (OverflowError, TypeError)),
        ([(1 << 64, 1)], OverflowError),
        ([(1, 1 << 64)], OverflowError),
        ([(1.0, 1)], TypeError),
        ([("1", 1)], TypeError),
        ([(0, 1 << 62), (0, 1 << 62)], OverflowError),
        (array("Q", [0, LAST]), OverflowError),
    ],
)
def test_ranges_that_make_no_sense(mem, ranges, error):
    for call in (
        lambda: mem.readv(ranges),
        lambda: mem.readv(ranges, on_fault="return"),
        lambda: mem.readv_into(ranges, bytearray(8)),
        lambda: mem.prefetch(ranges),
    ):
        with pytest.raises(error):
            call()


def test_other_arguments_that_make_no_sense(mem):
    ranges = [(0x10000, 8)]
    for on_fault in ("", "RETURN", "ignore", None, 0, b"raise"):
        with pytest.raises(ValueError, match="on_fault"):
            mem.readv(ranges, on_fault=on_fault)
    for size in (0, 7, 9):
        with pytest.raises(ValueError, match="out has"):
            mem.readv_into(ranges, bytearray(size))
    for size in (0, 2):
        with pytest.raises(ValueError, match="status has"):
            mem.readv_into(ranges, bytearray(8), status=bytearray(size))
    for out in (b"12345678", None, 8, memoryview(bytearray(16))[::2]):
        with pytest.raises((TypeError, BufferError, ValueError)):
            mem.readv_into(ranges, out)
    for status in (b"1", 1, "x"):
        with pytest.raises((TypeError, BufferError)):
            mem.readv_into(ranges, bytearray(8), status=status)
    for addresses in (b"1234567", array("I", [1, 2]), [None], 5, [1 << 64], [-1]):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            mem.gather_u64(addresses)
    with pytest.raises(TypeError):
        mem.readv()
    with pytest.raises(TypeError):
        mem.readv(ranges, False, "return")


def test_list_that_changes_while_it_is_converted(mem):
    ranges = [(0x10000, 8)] * 10

    class Index:
        def __index__(self):
            ranges.clear()
            return 0x10000

    ranges[3] = (Index(), 8)
    assert len(mem.readv(ranges)) == 10
    assert ranges == []


def test_memory_that_is_closed_while_ranges_are_converted(path):
    mem = fm.open(path)

    class Index:
        def __index__(self):
            mem.close()
            return 0x10000

    for call in (
        lambda: mem.readv([(Index(), 8)]),
        lambda: mem.readv_into([(Index(), 8)], bytearray(8)),
        lambda: mem.gather_u64([Index()]),
        lambda: mem.prefetch([(Index(), 8)]),
    ):
        mem = fm.open(path)
        with pytest.raises(ValueError, match="closed"):
            call()


def test_gather(mem, reference):
    addresses = [0x10000, 0x10003, LAST - 7, 0x7FFF8, 0x10000]
    view = mem.gather_u64(addresses)
    assert isinstance(view, memoryview)
    assert (view.format, view.ndim, view.readonly) == ("Q", 1, True)
    assert list(view) == [reference.read_u64(address) for address in addresses]
    assert list(mem.gather_u64([0x1000], physical=True)) == [
        reference.read_u64(0x1000, physical=True)
    ]
    with pytest.raises(fm.FaultError) as info:
        mem.gather_u64([0x10000, 0x18FFC, 0x30000, 0x10000])
    assert info.value.address == 0x19000


def test_gather_in_the_byte_order_of_the_target(core_file):
    path = core_file(
        "core elf64 big ppc64\nload vaddr=0x10000 memsz=0x1000 fill=pattern:3\n"
    )
    for options in WAYS.values():
        with fm.open(path, **options) as mem:
            addresses = range(0x10000, 0x10100, 5)
            assert list(mem.gather_u64(addresses)) == [
                mem.read_u64(address) for address in addresses
            ]


def test_out_may_be_the_buffer_of_the_ranges(path):
    # They are read before anything is written.
    with fm.open(path) as mem:
        buffer = array("Q", [0x10000, 8, 0x10008, 8])
        right = mem.read(0x10000, 16) * 1
        out = memoryview(buffer).cast("B")[:16]
        mem.readv_into(buffer, out)
        assert bytes(out) == right


# -- Other threads and signals ------------------------------------------------------


def test_threads_that_read_vectors(path):
    with fm.open(path, mmap="never", max_age=0.0005) as mem, fm.open(path) as mapped:
        wrong = []

        def read(seed):
            rng = random.Random(seed)
            for _ in range(40):
                ranges = [(0x40000 + rng.randrange(0x3F000), 64) for _ in range(400)]
                right = [mapped.read(address, size) for address, size in ranges]
                if mem.readv(ranges) != right:
                    wrong.append(seed)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_closed_in_the_middle_of_a_batch(path):
    ranges = packed([(0x40000 + 8 * (i % 0x7000), 8) for i in range(100_000)])
    for _ in range(5):
        mem = fm.open(path, mmap="never", max_age=0)
        results = []
        threads = [
            threading.Thread(target=lambda: results.append(mem.readv(ranges)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        mem.close()
        for thread in threads:
            thread.join()
        for result in results:
            assert len(result) == 100_000


def test_signal_ends_a_long_batch(core_file):
    path = core_file(
        "core elf64 little x86_64\n"
        "load vaddr=0x100000 memsz=0x10000000 offset=page fill=hole\n"
    )
    # Apart by more than is merged, so that each costs a system call.
    ranges = packed([(0x100000 + (i * 9001) % 0xFFF0000, 8) for i in range(1_000_000)])
    out = bytearray(8_000_000)
    rang = []

    class Alarm(Exception):
        pass

    def ring(*_):
        rang.append(time.monotonic())
        raise Alarm

    previous = signal.signal(signal.SIGALRM, ring)
    try:
        with fm.open(path, mmap="never", max_age=0) as mem:
            for call in (
                lambda: mem.readv_into(ranges, out),
                lambda: [mem.readv_into(ranges, out) for _ in range(1000)],
                lambda: mem.readv(ranges),
                lambda: [mem.gather_u64(ranges[::2]) for _ in range(1000)],
            ):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                try:
                    call()
                except Alarm:
                    pass
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            # It is read as before.
            assert mem.readv([(0x100000, 8)]) == [bytes(8)]
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert len(rang) >= 2


def test_other_threads_run_during_a_long_batch(path):
    ranges = packed([(0x40000 + 8 * (i % 0x7000), 8) for i in range(200_000)])
    out = bytearray(1_600_000)
    with fm.open(path, mmap="never", max_age=0) as mem:
        running = threading.Event()
        counts = []

        def count():
            running.set()
            while running.is_set():
                counts.append(None)

        thread = threading.Thread(target=count)
        thread.start()
        running.wait()
        for _ in range(20):
            mem.readv_into(ranges, out)
        running.clear()
        thread.join()
        assert counts
