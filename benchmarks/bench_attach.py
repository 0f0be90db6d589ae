# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""What attaching costs: a dump with 66,000 program headers, opened with and without
the plugin, and a core file of 1 TiB, nearly all of it a hole, in time and memory.

The dump is build/guest/vmcore-paging (make guest-dump), or a generated core file
with as many headers if that is not there. What reads cost is in the other two.
"""

import argparse
import gc
import random
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, List, NamedTuple, Tuple

import harness
import readers
from harness import Contender

import compare  # the tests' own, found through readers
import core_text
import drgn
import drgn_fastmem as fm

DUMP = harness.CHECKOUT / "build" / "guest" / "vmcore-paging"
HEADERS = 66_000

WITH, WITHOUT = "with the plugin", "without"

# 1 TiB each: with 47 bits of addresses there is room for 127.
MANY = 100

TIB = 1 << 40
MIB = 1 << 20


def opens(open_program: Callable[[str], drgn.Program], path: str) -> Any:
    """Work that opens a fresh Program each time; closing it is not timed."""

    def run(loops: int) -> float:
        seconds = 0.0
        for _ in range(loops):
            start = harness.clock()
            prog = open_program(path)
            seconds += harness.clock() - start
            del prog
        return seconds

    return run


def random_reads(segments: Tuple[fm.Segment, ...], count: int) -> List[compare.Read]:
    """Within segments, across their ends and anywhere."""
    generator = random.Random(3)
    found = []
    for _ in range(count):
        segment = generator.choice(segments)
        end = segment.address + segment.size
        where = generator.random()
        if where < 0.6:
            address = segment.address + generator.randrange(segment.size)
        elif where < 0.9:
            address = end - generator.randrange(64)
        else:
            address = generator.getrandbits(64)
        size = generator.choice((1, 8, 100))
        found.append(compare.Read("read", address % 2**64, size))
    return found


def outcomes(prog: drgn.Program, reads: List[compare.Read]) -> bytes:
    """Values and the addresses of faults, for comparing."""
    return "\n".join(repr(compare.outcome(prog, read)) for read in reads).encode()


def generated_dump(directory: Path) -> str:
    path = directory / "headers"
    core_text.write(
        path,
        "core elf64 little x86_64\nlinux\n"
        "load vaddr=0xffff888000000000 paddr=0 memsz=0x1000 fill=pattern:1 "
        f"repeat={HEADERS} step=0x2000",
    )
    return str(path)


def many_headers(suite: harness.Suite, directory: Path) -> None:
    if DUMP.exists():
        path = str(DUMP)
        suite.note(f"the dump with many program headers: {DUMP.name} of a real kernel")
    else:
        path = generated_dump(directory)
        suite.note(f"no {DUMP.name} (make guest-dump); a generated core file instead")
    readers.fill_page_cache(path)
    with fm.open(path) as mem:
        segments = mem.segments
    suite.value("program headers", len(segments), f"{len(segments):,}")
    if len(segments) < HEADERS * 0.9:
        raise RuntimeError(f"{path} has only {len(segments)} segments")
    reads = random_reads(segments, 5000)

    ways = {WITHOUT: readers.alone, WITH: readers.plugin}
    contenders = [
        Contender(name, opens(way, path), lambda way=way: outcomes(way(path), reads))
        for name, way in ways.items()
    ]
    title = f"set_core_dump, {len(segments):,} program headers"
    result = suite.measure(title, contenders, WITHOUT, budget=10)
    suite.claim(
        f"{title}: with / without", result.ratio(WITH, WITHOUT).median, 1.5, "<="
    )


class Footprint(NamedTuple):
    resident: float
    page_tables: float

    def __sub__(self, other: "Footprint") -> "Footprint":
        return Footprint(*(a - b for a, b in zip(self, other)))


def footprint() -> Footprint:
    """What this process has in memory (proc(5)), in bytes."""

    def kib(path: str, name: str) -> int:
        with open(path) as file:
            (line,) = (line for line in file if line.startswith(name + ":"))
        return int(line.split()[1])

    # VmRSS of status is approximate (proc(5)).
    resident = kib("/proc/self/smaps_rollup", "Rss")
    return Footprint(1024 * resident, 1024 * kib("/proc/self/status", "VmPTE"))


def make_sparse(directory: Path) -> str:
    """1 TiB in three segments; some bytes at both ends of each."""
    path = directory / "sparse"
    third = TIB // 3 & -4096
    lines = ["core elf64 little x86_64"]
    for i in range(3):
        offset = 4096 + i * third
        lines += [
            f"load vaddr={(1 + i) << 44:#x} memsz={third:#x} offset={offset} fill=hole",
            f"data offset={offset} size=64 fill=pattern:{i}",
            f"data offset={offset + third - 64} size=64 fill=pattern:{i + 10}",
        ]
    core_text.write(path, "\n".join(lines) + f"\nfile size={4096 + 3 * third}")
    return str(path)


def sparse_file(suite: harness.Suite, directory: Path) -> None:
    path = make_sparse(directory)
    with fm.open(path) as mem:
        segments = mem.segments
        if any(segment.access != "mmap" for segment in segments):
            raise RuntimeError("not all of the sparse file is mapped")
    generator = random.Random(4)
    reads = random_reads(segments, 500)
    for segment in segments:
        for address in (segment.address, segment.address + segment.size - 64):
            reads.append(compare.Read("read", address, 64))
    generator.shuffle(reads)

    ways = {WITHOUT: readers.alone, WITH: readers.plugin}
    contenders = [
        Contender(name, opens(way, path), lambda way=way: outcomes(way(path), reads))
        for name, way in ways.items()
    ]
    title = "set_core_dump, sparse file of 1 TiB"
    result = suite.measure(title, contenders, WITHOUT)
    suite.claim(f"{title}: milliseconds", result.median(WITH) * 1e3, 10, "<=")

    # What is allocated once for all is there by now.
    gc.collect()
    before = footprint()
    programs = [readers.plugin(path) for _ in range(MANY)]
    used = Footprint(*(value / MANY for value in footprint() - before))
    outcomes(programs[0], reads)
    used_reading = footprint() - before
    for name, value in (
        (f"attached, each of {MANY}", used),
        (f"{MANY} attached, and {len(reads)} random reads", used_reading),
    ):
        total = sum(value)
        suite.value(
            f"sparse file, {name}",
            total,
            f"{total / 1024:.1f} KiB, {value.page_tables / 1024:.1f} of them page tables",
        )
    suite.claim("sparse file of 1 TiB, attached: MiB", sum(used) / MIB, 10, "<=")


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    suite = harness.Suite("attach", readers.PACKAGES)
    harness.DIRECTORY.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=harness.DIRECTORY) as name:
        # First: in memory that the other has freed nothing would show.
        sparse_file(suite, Path(name))
        many_headers(suite, Path(name))
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
