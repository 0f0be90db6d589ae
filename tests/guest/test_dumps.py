# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""On dumps of a real kernel: they are what they are said to be, drgn's own helpers
print the same with and without the plugin, and so do random reads."""

import collections
import json
import os
import random
import re
import subprocess
import sys

import drgn
from drgn.helpers.linux.pid import for_each_task
from drgn.helpers.linux.slab import find_slab_cache
from drgn.helpers.linux.slab import slab_cache_for_each_allocated_object
import drgn_fastmem
import pytest

from compare import Outcome, Read, outcome
from . import dump, machine, reads, workloads

NAMES = ("vmcore", "vmcore-paging")
RAM = reads.Range(0, dump.MEMORY << 20)


@pytest.fixture(scope="session", params=NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="session")
def path(dumps, name):
    return dumps.vmcore.with_name(name)


@pytest.fixture(scope="session")
def alone(path, dumps):
    prog = workloads.open_program(str(path), str(dumps.vmlinux))
    assert drgn_fastmem.attachment(prog) is None
    return prog


@pytest.fixture(scope="session")
def attached(path, dumps):
    prog = workloads.open_program(str(path), str(dumps.vmlinux))
    drgn_fastmem.attach(prog)
    assert drgn_fastmem.attachment(prog) == "native"
    return prog


def program_headers(path):
    """(number in the ELF header, real number, names of the notes)."""
    with open(path, "rb") as file:
        header = file.read(64)
        # ELF64, System V ABI, "ELF Header".
        e_phoff = int.from_bytes(header[32:40], "little")
        e_shoff = int.from_bytes(header[40:48], "little")
        e_phnum = int.from_bytes(header[56:58], "little")
        count = e_phnum
        if e_phnum == 0xFFFF:
            # PN_XNUM: sh_info of the first section header.
            file.seek(e_shoff + 44)
            count = int.from_bytes(file.read(4), "little")
        file.seek(e_phoff)
        notes = []
        for _ in range(count):
            entry = file.read(56)
            if int.from_bytes(entry[:4], "little") == 4:  # PT_NOTE
                offset = int.from_bytes(entry[8:16], "little")
                size = int.from_bytes(entry[32:40], "little")
                notes.append((offset, size))
        text = b""
        for offset, size in notes:
            file.seek(offset)
            text += file.read(size)
    return e_phnum, count, text


class TestWhatTheDumpsAre:
    def test_vmcore_has_few_program_headers_and_a_vmcoreinfo_note(self, dumps):
        e_phnum, count, notes = program_headers(dumps.vmcore)
        assert e_phnum == count < 20
        assert b"VMCOREINFO\0" in notes
        release = json.loads(dumps.about.read_text())["release"]
        assert f"OSRELEASE={release}\n".encode() in notes

    def test_vmcore_paging_has_more_program_headers_than_fit(self, dumps):
        e_phnum, count, notes = program_headers(dumps.vmcore_paging)
        assert e_phnum == 0xFFFF
        assert count > 0xFFFF
        assert b"VMCOREINFO\0" in notes

    def test_made_again_is_made_not_at_all(self, dumps):
        before = [os.stat(path).st_mtime_ns for path in dumps]
        assert dump.make() == dumps
        assert [os.stat(path).st_mtime_ns for path in dumps] == before

    def test_kernel_is_the_one_that_was_booted(self, alone, dumps):
        release = json.loads(dumps.about.read_text())["release"]
        uts = alone["init_uts_ns"].name.release.string_().decode()
        assert uts == release

    def test_kernel_was_moved_by_kaslr(self, alone):
        # Where it is linked to be (Linux, Documentation/arch/x86/x86_64/mm.rst).
        assert alone.symbol("_text").address != 0xFFFFFFFF81000000

    def test_has_hundreds_of_processes(self, alone):
        assert sum(1 for _ in for_each_task(alone)) >= 300

    def test_has_a_warm_dentry_cache(self, alone):
        cache = find_slab_cache(alone, "dentry")
        objects = slab_cache_for_each_allocated_object(cache, "struct dentry")
        assert sum(1 for _ in objects) >= 20_000

    def test_is_mapped(self, path, name):
        with drgn_fastmem.open(path) as mem:
            assert {segment.access for segment in mem.segments} == {"mmap"}
            assert len(mem.segments) > (0xFFFF if name == "vmcore-paging" else 1)


def run_workload(name, path, vmlinux, setting):
    process = subprocess.run(
        [sys.executable, "-m", "tests.guest.workloads", name]
        + ["--dump", str(path), "--vmlinux", str(vmlinux)],
        env={**os.environ, "DRGN_FASTMEM": setting},
        cwd=machine.CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines(), process.stderr


# What each prints at least on the guest that is dumped, so that none is empty.
FEWEST_LINES = {
    "tasks": 300,
    "slab": 20_000,
    "dentries": 20_000,
    "modules": 1000,
    "percpu": 2000,
    "pages": 90_000,
}


@pytest.mark.parametrize("workload", workloads.WORKLOADS)
def test_workload_prints_the_same_with_and_without_the_plugin(
    workload, path, dumps, record_property
):
    expected, errors = run_workload(workload, path, dumps.vmlinux, "off")
    assert "drgn_fastmem" not in errors
    assert len(expected) >= FEWEST_LINES[workload]
    lines, errors = run_workload(workload, path, dumps.vmlinux, "stats")
    assert lines == expected
    # The plugin did answer.
    mapped = re.search(r"drgn_fastmem: .*mapped_reads=(\d+)", errors)
    assert mapped is not None, errors
    assert int(mapped.group(1)) > 1000
    record_property("lines", len(lines))
    record_property("mapped_reads", int(mapped.group(1)))


# Of the first dump more: there all virtual addresses are translated.
RANDOM_READS = {"vmcore": 1_000_000, "vmcore-paging": 200_000}


@pytest.fixture(scope="session")
def known_places(alone):
    return reads.places(alone, RAM)


def test_most_of_each_kind_of_memory_can_be_read(alone, known_places):
    generator = random.Random(4)
    for kind, ranges in known_places.items():
        outcomes = collections.Counter(
            outcome(alone, Read("read", *reads.random_range(generator, ranges, 64))).kind
            for _ in range(1000)
        )
        assert outcomes["value"] > 900, (kind, outcomes)


def test_random_reads_give_the_same_bytes_or_the_same_fault(
    alone, attached, name, known_places, record_property
):
    number = RANDOM_READS[name]
    all_reads = reads.random_reads(known_places, RAM, number, seed=1)
    before = drgn_fastmem.attach(attached).stats.mapped_reads
    differences, kinds = reads.disagreements(alone, attached, all_reads)
    assert not differences, differences[:10]
    # Both happen often, and it was ours that answered.
    assert kinds["value"] > number // 2
    assert kinds["fault"] > number // 20
    assert drgn_fastmem.attach(attached).stats.mapped_reads - before > kinds["value"]
    for kind, number in kinds.items():
        record_property(kind, number)


def test_memory_without_drgn_gives_the_same_bytes_or_the_same_fault(
    alone, path, known_places
):
    all_reads = reads.random_reads(known_places, RAM, 100_000, seed=2)
    with drgn_fastmem.open(path) as mem:
        differences, kinds = reads.disagreements(alone, mem, all_reads)
    assert not differences, differences[:10]
    assert kinds["value"] > 50_000
    assert kinds["fault"] > 5_000


class TestTheComparisonCanFail:
    """The same reads, put to drgn alone and to drgn with a defect: over
    half of RAM lies a segment that is a little wrong."""

    START, SIZE = 64 << 20, RAM.size // 2

    @pytest.fixture
    def some_reads(self, known_places):
        return list(reads.random_reads(known_places, RAM, 20_000, seed=3))

    @pytest.fixture
    def with_defect(self, path, dumps, alone):
        def make(answer):
            prog = workloads.open_program(str(path), str(dumps.vmlinux))
            # Reads of virtual addresses get there through the page tables.
            prog.add_memory_segment(self.START, self.SIZE, answer, physical=True)
            return prog

        return make

    def in_it(self, read):
        return (
            read.physical
            and read.address < self.START + self.SIZE
            and read.address + (read.size or 8) > self.START
        )

    def test_with_a_segment_that_is_right(self, alone, with_defect, some_reads):
        prog = with_defect(
            lambda address, count, offset, physical: alone.read(address, count, True)
        )
        assert reads.disagreements(alone, prog, some_reads)[0] == []

    def test_with_one_wrong_bit_a_page(self, alone, with_defect, some_reads):
        def answer(address, count, offset, physical):
            data = bytearray(alone.read(address, count, True))
            for index in range(-address % 4096, count, 4096):
                data[index] ^= 1
            return bytes(data)

        found = reads.disagreements(alone, with_defect(answer), some_reads)[0]
        assert any(self.in_it(read) for read, _, _ in found)

    def test_with_a_fault_a_byte_too_late(self, alone, with_defect, some_reads):
        last = self.START + self.SIZE - 1

        def answer(address, count, offset, physical):
            if address + count > last:
                raise drgn.FaultError("defect", last + 1)
            return alone.read(address, count, True)

        prog = with_defect(answer)
        read = Read("read", last - 8, 16, True)
        assert outcome(alone, read).kind == "value"
        assert outcome(prog, read) == Outcome("fault", last + 1)
        assert reads.disagreements(alone, prog, [read, *some_reads])[0]
