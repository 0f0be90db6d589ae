# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The same bytes as drgn alone reads, of every kind of kernel memory.

Memory changes while it is read. So drgn alone reads before us and after us, and
only where both are equal it says something about what we read in between. Some memory
depends on who reads: the stack pointer of the last system call (sp2 in cpu_tss_rw,
Linux 6.1, arch/x86/entry/entry_64.S), where a plain pread differs from drgn's too, or
the page through which the kernel copies for an open file, where another open file of
ours does not differ.
"""

import collections
import random

import drgn_fastmem
import pytest

from compare import Read, outcome
from .. import reads
from .plain import Plain

READS = 3000
KINDS = ("ram", "text", "vmalloc", "modules", "vmemmap", "percpu")


def compare_still(alone, plain, others, all_reads):
    """(reads on which they differ, how often each kind of outcome was compared,
    how many reads were of memory that changed)"""
    differences = []
    kinds = collections.Counter()
    changed = 0
    for read in all_reads:
        # What differs once may have changed and changed back.
        for number in range(4):
            before = outcome(alone, read)
            found = outcome(others[number % len(others)], read)
            if outcome(alone, read) != before:
                changed += 1
                break
            if found == before:
                kinds[before.kind] += 1
                break
        else:
            if outcome(plain, read) != before:
                changed += 1
                continue
            differences.append(f"{read}: {before}, not {found}")
    return differences, kinds, changed


def reads_of_a_kind(known_places, kind, number=READS):
    generator = random.Random(kind)
    ranges = known_places[kind]
    for _ in range(number):
        size = generator.choice((1, 2, 4, 8, 8, 8, 64, 300, 4096, 9000))
        address = reads.random_range(generator, ranges, 1).address
        if size <= 8:
            yield Read(f"read_u{size * 8}", address)
        else:
            yield Read("read", *reads.random_range(generator, ranges, size))


@pytest.fixture(scope="module")
def another():
    with drgn_fastmem.open() as mem:
        yield mem


@pytest.mark.parametrize("kind", KINDS)
def test_same_bytes_of(kind, alone, plain, attached, another, known_places):
    all_reads = reads_of_a_kind(known_places, kind)
    differences, kinds, changed = compare_still(
        alone, plain, (attached, another), all_reads
    )
    assert not differences, differences[:10]
    # Most is still, and is data.
    assert kinds["value"] > READS * 0.8, (kinds, changed)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_without_drgn_has_the_same_bytes_of(
    kind, alone, plain, mem, another, known_places
):
    all_reads = reads_of_a_kind(known_places, kind, 1000)
    differences, kinds, changed = compare_still(alone, plain, (mem, another), all_reads)
    assert not differences, differences[:10]
    assert kinds["value"] > 800, (kinds, changed)


def test_random_reads_give_the_same_bytes_or_the_same_fault(
    alone, plain, attached, another, mem, known_places, ram
):
    before = mem.stats.reads
    all_reads = reads.random_reads(known_places, ram, 20_000, seed=11)
    differences, kinds, changed = compare_still(
        alone, plain, (attached, another), all_reads
    )
    assert not differences, differences[:10]
    assert kinds["value"] > 10_000, (kinds, changed)
    assert kinds["fault"] > 500, (kinds, changed)
    assert mem.stats.reads - before > 10_000


def test_the_comparison_finds_one_wrong_bit_a_page(alone, plain, known_places):
    class Wrong(Plain):
        def read(self, address, size, physical=False):
            data = bytearray(super().read(address, size, physical))
            for index in range(-address % 4096, size, 4096):
                data[index] ^= 1
            return bytes(data)

    all_reads = list(reads_of_a_kind(known_places, "text", 500))
    assert compare_still(alone, plain, [alone], all_reads)[0] == []
    differences = compare_still(alone, plain, [Wrong()], all_reads)[0]
    crossing = sum(
        1
        for read in all_reads
        if read.method == "read" and -read.address % 4096 < read.size
    )
    assert len(differences) >= crossing > 50
