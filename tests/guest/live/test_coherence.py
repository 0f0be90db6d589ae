# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""What a bounded age saves on a kernel without mmap, and that it stays bounded.

Times are those of an emulator, in which a pread of 4 KiB takes seven times one of
eight bytes (on hardware about 1.2 times), so they are printed and not asserted;
numbers of system calls are the same everywhere.
"""

import time

import drgn_fastmem
import pytest

from ..workloads import WORKLOADS
from .conftest import running_kernel

MAX_AGE = 0.01
# 20, 64, 70 and 64 when nothing else runs on the host; how much of a page is used
# before it is too old depends on that.
FEWER = {"tasks": 4, "slab": 25, "dentries": 25, "pages": 25}


@pytest.fixture(scope="module")
def aged():
    prog = running_kernel()
    drgn_fastmem.attach(prog, max_age=MAX_AGE)
    return prog


def run(prog, name):
    start = time.perf_counter()
    lines = list(WORKLOADS[name](prog, True))
    return lines, time.perf_counter() - start


@pytest.mark.parametrize("name", FEWER)
def test_fewer_system_calls_and_the_same_lines(name, alone, attached, mem, aged):
    aged_mem = drgn_fastmem.attach(aged)
    expected, alone_time = run(alone, name)
    before = mem.stats
    strict, strict_time = run(attached, name)
    # drgn has one pread for each of these.
    reads = mem.stats.reads - before.reads
    strict_calls = mem.stats.syscalls - before.syscalls
    aged_mem.reset_stats()
    bounded, aged_time = run(aged, name)
    calls = aged_mem.stats.syscalls
    print(
        f"{name}: preads {reads} alone, {strict_calls} strict, {calls} with max_age=10ms "
        f"({reads / calls:.1f} times fewer); time {alone_time / strict_time:.2f} and "
        f"{alone_time / aged_time:.2f} times less (emulated)"
    )
    assert strict == expected
    assert bounded == expected
    assert strict_calls <= reads
    assert calls * FEWER[name] <= reads


def test_c_strings_of_drgn_are_two_preads(attached, mem):
    banner = attached["linux_banner"]
    text = banner.string_()
    assert len(text) > 60
    # The page that it ends in, and the 100 microseconds that an emulated system
    # call may take, cost one more each.
    calls = []
    for _ in range(20):
        before = mem.stats
        assert attached.read_c_string(banner.address_) == text
        calls.append(mem.stats.syscalls - before.syscalls)
    print(f"{len(text)} characters: {sorted(calls)} preads")
    assert min(calls) <= 4
    assert sorted(calls)[10] * 10 <= len(text)
    name = attached["init_task"].comm
    calls = []
    for _ in range(20):
        before = mem.stats
        assert attached.read_c_string(name.address_) == b"swapper/0"
        calls.append(mem.stats.syscalls - before.syscalls)
    assert min(calls) == 2


def test_counter_is_never_older_than_the_age_and_a_step_of_the_clock(aged):
    """jiffies, against another reader that is strict."""
    address = aged.symbol("jiffies_64").address
    step = time.clock_getres(time.CLOCK_MONOTONIC) + MAX_AGE / 2
    seen = []
    wrong = old = 0
    with drgn_fastmem.open() as strict:
        assert strict.max_age == 0
        end = time.monotonic() + 3
        while time.monotonic() < end:
            seen.append((strict.read_u64(address), time.monotonic()))
            limit = time.monotonic() - MAX_AGE - step
            value = aged.read_u64(address)
            old += value < seen[-1][0]
            while len(seen) > 1 and seen[1][1] <= limit:
                del seen[0]
            wrong += seen[0][1] <= limit and value < seen[0][0]
    assert wrong == 0
    assert old > 0


def test_snapshot_stops_the_kernels_clock(attached, mem):
    address = attached.symbol("jiffies_64").address
    with mem.snapshot():
        inside = {attached.read_u64(address)}
        time.sleep(0.1)
        inside.add(mem.read_u64(address))
        assert mem.gather_u64([address])[0] in inside
    assert len(inside) == 1
    assert attached.read_u64(address) > max(inside)


def test_vectored_reads_of_vmalloc_memory(attached, mem):
    """The kernel's vread patch was about 2,500 small objects in vmalloc memory. The
    symbol tables of modules lie there, an Elf64_Sym of 24 bytes each."""
    from drgn.helpers.linux.module import for_each_module

    addresses = []
    for module in for_each_module(attached):
        kallsyms = module.kallsyms
        for i in range(kallsyms.num_symtab.value_()):
            addresses.append((kallsyms.symtab[i].address_, 24))
    addresses = addresses[:2500]
    assert len(addresses) == 2500
    kinds = {
        s.kind
        for s in mem.segments
        if s.address <= addresses[0][0] < s.address + s.size
    }
    assert kinds == {"virtual"}
    before = mem.stats.syscalls
    start = time.process_time_ns()
    singles = [mem.read(*range) for range in addresses]
    middle = time.process_time_ns()
    single_calls = mem.stats.syscalls - before
    before = mem.stats.syscalls
    together = mem.readv(addresses)
    end = time.process_time_ns()
    calls = mem.stats.syscalls - before
    assert together == singles
    print(
        f"vmalloc: {single_calls} preads alone, {calls} together "
        f"({single_calls / calls:.0f} times fewer), {(middle - start) / (end - middle):.1f} "
        "times less time (emulated)"
    )
    assert single_calls == 2500
    assert calls * 11.3 <= single_calls


def test_vectored_reads_of_everything_that_does_not_change(attached, mem, known_places):
    """The same bytes as single reads, in every kind of memory."""
    start = attached.symbol("linux_banner").address & -4096
    ranges = [(start + 8 * i, 8) for i in range(0, 4096, 3)]
    assert mem.readv(ranges) == [mem.read(*range) for range in ranges]
    holes = [(0xFFFF800000000000, 8), (start, 8), (0x1000, 8)]
    items = mem.readv(holes, on_fault="return")
    assert items[1] == mem.read(start, 8)
    for item, (address, _) in ((items[0], holes[0]), (items[2], holes[2])):
        assert item.address == address
        assert item.reason == drgn_fastmem.ReadStatus.UNMAPPED
