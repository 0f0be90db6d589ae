# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Page tables of other kinds than those of test_dumps.py: the same random reads and
the same scripts, on each dump that small.py makes."""

import collections
import json
import re

import drgn_fastmem
import pytest
from drgn.helpers.linux.pid import for_each_task

from . import reads, small, workloads

READS = 100_000


@pytest.fixture(scope="module", params=small.chosen())
def dump(request):
    return small.make(request.param)


@pytest.fixture(scope="module")
def alone(dump):
    prog = workloads.open_program(str(dump.vmcore), str(dump.vmlinux))
    assert drgn_fastmem.attachment(prog) is None
    return prog


@pytest.fixture(scope="module")
def attached(dump):
    prog = workloads.open_program(str(dump.vmcore), str(dump.vmlinux))
    drgn_fastmem.attach(prog)
    assert drgn_fastmem.attachment(prog) == "native"
    return prog


@pytest.fixture(scope="module")
def known_places(alone, dump):
    return reads.places(alone, reads.Range(*dump.ram))


def random_reads(dump, known_places, seed):
    ram = reads.Range(*dump.ram)
    tags = "aarch64" in dump.name
    return reads.random_reads(known_places, ram, READS, seed, tags)


def test_kernel_is_the_one_that_was_booted_and_is_alive(alone, dump):
    release = json.loads(dump.vmcore.with_name("guest.json").read_text())["release"]
    assert alone["init_uts_ns"].name.release.string_().decode() == release
    assert sum(1 for _ in for_each_task(alone)) > 60


def test_page_tables_are_of_the_kind_that_is_meant(attached, dump):
    translation = drgn_fastmem.attach(attached).translation
    assert translation == dump.variant.translation


def test_random_reads_give_the_same_bytes_or_the_same_fault(
    alone, attached, dump, known_places
):
    mem = drgn_fastmem.attach(attached)
    before = mem.stats
    all_reads = random_reads(dump, known_places, seed=1)
    differences, kinds = reads.disagreements(alone, attached, all_reads)
    assert not differences, differences[:10]
    assert kinds["value"] > READS // 2, kinds
    assert kinds["fault"] > READS // 20, kinds
    assert mem.stats.walks - before.walks > 10_000


def test_memory_without_drgn_gives_the_same_bytes_or_the_same_fault(
    alone, dump, known_places
):
    all_reads = random_reads(dump, known_places, seed=2)
    with drgn_fastmem.open(dump.vmcore) as mem:
        differences, kinds = reads.disagreements(alone, mem, all_reads)
    assert not differences, differences[:10]
    assert kinds["value"] > READS // 2, kinds


# Without slab, which needs all of memory to be read, and percpu, which is for x86.
@pytest.mark.parametrize("name", ["tasks", "dentries", "modules"])
def test_workload_prints_the_same(alone, attached, name):
    workload = workloads.WORKLOADS[name]
    expected = list(workload(alone, False))
    assert len(expected) >= {"tasks": 60, "dentries": 300, "modules": 2}[name]
    assert list(workload(attached, False)) == expected


def test_the_comparison_finds_a_root_that_is_a_page_off(alone, dump, known_places):
    class Shifted:
        """What a walk through wrong tables gives: other bytes, or faults."""

        def __getattr__(self, name):
            method = getattr(alone, name)
            return lambda address, *args, **kwargs: method(
                address ^ 0x4000, *args, **kwargs
            )

    all_reads = random_reads(dump, known_places, seed=3)
    few = [read for read, _ in zip(all_reads, range(1000))]
    assert reads.disagreements(alone, alone, few)[0] == []
    assert len(reads.disagreements(alone, Shifted(), few)[0]) > 300


def leaf(prog, translation, address):
    """(bytes that the leaf entry maps, the entry), or 0 bytes; walked by hand with drgn alone.

    aarch64 only; Arm ARM (DDI 0487), D8.3.
    """
    kib, bits = map(int, re.findall(r"(\d+) (?:KiB|bits)", translation))
    page_shift = kib.bit_length() + 9
    root = prog.symbol("swapper_pg_dir").address - prog["kimage_voffset"].value_()
    levels = -(-(bits - page_shift) // (page_shift - 3))
    table = root
    for level in reversed(range(levels)):
        shift = page_shift + level * (page_shift - 3)
        top = bits if level == levels - 1 else shift + page_shift - 3
        index = (address & (1 << top) - 1) >> shift
        entry = prog.read_u64(table + index * 8, True)
        if not entry & 1:
            # KFENCE's guard pages, for one.
            return 0, entry
        if level == 0 or not entry & 2:
            return 1 << shift, entry
        table = entry & (1 << 48) - (1 << page_shift)
    raise AssertionError("no leaf")


CONTIGUOUS = 1 << 52


def test_direct_map_is_in_blocks_and_contiguous_ranges_where_that_is_meant(
    alone, dump, known_places, record_property
):
    if "aarch64" not in dump.name:
        pytest.skip("x86-64 has no contiguous entries")
    (ram,) = known_places["ram"]
    # RAM is far below 2**48, so the entries need none of LPA2's high bits.
    leaves = collections.Counter()
    for offset in range(0, ram.size, 1 << 20):
        size, entry = leaf(alone, dump.variant.translation, ram.address + offset)
        leaves[size, bool(size and entry & CONTIGUOUS)] += 1
    record_property("leaves", str(leaves))
    blocks = sum(n for (size, _), n in leaves.items() if size > 1 << 16)
    contiguous = sum(n for (_, is_contiguous), n in leaves.items() if is_contiguous)
    if dump.name.endswith("-blocks"):
        assert blocks > 300 and contiguous > 100, leaves
    else:
        assert blocks < 100, leaves
