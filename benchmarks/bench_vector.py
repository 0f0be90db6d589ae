# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""What an item of a vectored read costs, and a hit of the page cache: 10,000 ranges
of a 64 MiB core file of a process, mapped and not mapped, in the page cache of the
kernel. Every contender's bytes are compared first."""

import argparse
import math
import os
import random
import sys
import tempfile
from array import array
from pathlib import Path
from typing import Any, List, Tuple

import harness
import readers
from bench_read import START, Target, make_target
from harness import Contender

import drgn_fastmem as fm

ITEMS = 10_000
PREAD, ALONE, SINGLE = "os.pread", "drgn alone", "Memory.read"
READV, INTO, GATHER = "readv", "readv_into", "gather_u64"
HIT, HIT_AGED, STRICT, MAPPED = "hit", "hit, max_age=10s", "strict", "mapped"


def ranges_of(apart: int, sizes: Tuple[int, ...]) -> List[Tuple[int, int]]:
    generator = random.Random(apart)
    return [(START + apart * i, generator.choice(sizes)) for i in range(ITEMS)]


class Vector:
    """The same ranges for every contender."""

    def __init__(self, ranges: List[Tuple[int, int]]) -> None:
        self.addresses = [address for address, _ in ranges]
        self.sizes = [size for _, size in ranges]
        self.packed = array("Q", [word for range in ranges for word in range])
        self.packed_addresses = array("Q", self.addresses)
        self.out = bytearray(sum(self.sizes))

    def single(self, name: str, read: Any) -> Contender:
        return Contender(
            name,
            harness.over(read, self.addresses, self.sizes),
            lambda: b"".join(map(read, self.addresses, self.sizes)),
        )

    def readv(self, mem: fm.Memory) -> Contender:
        return Contender(
            READV,
            harness.repeat(mem.readv, self.packed),
            lambda: b"".join(mem.readv(self.packed)),
        )

    def into(self, mem: fm.Memory) -> Contender:
        def answer() -> bytes:
            self.out[:] = bytes(len(self.out))
            mem.readv_into(self.packed, self.out)
            return bytes(self.out)

        return Contender(
            INTO, harness.repeat(mem.readv_into, self.packed, self.out), answer
        )

    def gather(self, mem: fm.Memory) -> Contender:
        return Contender(
            GATHER,
            harness.repeat(mem.gather_u64, self.packed_addresses),
            lambda: mem.gather_u64(self.packed_addresses).tobytes(),
        )


def not_mapped(suite: harness.Suite, target: Target) -> None:
    fd = os.open(target.path, os.O_RDONLY)
    mem = fm.open(target.path, mmap="never", max_age=0)
    shift = mem.segments[0].file_offset - START

    def pread(address: int, size: int) -> bytes:
        return os.pread(fd, size, address + shift)

    prog = readers.alone(target.path)
    for apart, limit in ((2600, 2), (655, 6)):
        vector = Vector(ranges_of(apart, (8, 16, 64, 256)))
        offsets = [address + shift for address in vector.addresses]
        contenders = [
            Contender(
                PREAD,
                harness.over(os.pread, [fd] * ITEMS, vector.sizes, offsets),
                lambda: b"".join(map(pread, vector.addresses, vector.sizes)),
            ),
            vector.single(ALONE, prog.read),
            vector.single(SINGLE, mem.read),
            vector.readv(mem),
            vector.into(mem),
        ]
        title = f"not mapped, {apart} bytes apart"
        result = suite.measure(title, contenders, ALONE, operations=ITEMS)
        for name in PREAD, ALONE, SINGLE:
            ratio = result.ratio(name, INTO).median
            suite.claim(f"{title}: {name} / {INTO}", ratio, limit, ">=")
        mem.reset_stats()
        mem.readv(vector.packed)
        calls = mem.stats.syscalls
        suite.value(f"{title}: system calls", calls, f"{calls} for {ITEMS} items")
    mem.close()
    os.close(fd)


def mapped(suite: harness.Suite, target: Target) -> None:
    mem = fm.open(target.path)
    for title, apart, sizes in (
        ("mapped, 8 bytes each, 64 bytes apart", 64, (8,)),
        ("mapped, 8 bytes each, 655 bytes apart", 655, (8,)),
        ("mapped, 8 to 256 bytes, 655 bytes apart", 655, (8, 16, 64, 256)),
    ):
        vector = Vector(ranges_of(apart, sizes))
        contenders = [
            vector.single(SINGLE, mem.read),
            vector.readv(mem),
            vector.into(mem),
        ]
        if len(sizes) == 1:
            contenders.append(vector.gather(mem))
        result = suite.measure(title, contenders, SINGLE, operations=ITEMS)
        into = result.median(INTO) * 1e9
        suite.claim(f"{title}: ns an item of {INTO}", into, 12, "<=")
        if len(sizes) == 1:
            gather = result.median(GATHER) * 1e9
            suite.claim(f"{title}: ns an item of {GATHER}", gather, 3, "<=")
    mem.close()


def cache(suite: harness.Suite, target: Target) -> None:
    """Fields of 400 pages, as a script that walks objects reads them."""
    generator = random.Random(3)
    addresses = [START + 8 * generator.randrange(400 * 512) for _ in range(ITEMS)]
    mems = {
        STRICT: fm.open(target.path, mmap="never", max_age=0),
        HIT: fm.open(target.path, mmap="never", max_age=math.inf),
        HIT_AGED: fm.open(target.path, mmap="never", max_age=10),
        MAPPED: fm.open(target.path),
    }
    contenders = [
        Contender(
            name,
            harness.over(mem.read_u64, addresses),
            lambda mem=mem: readers.u64s(mem, addresses),
        )
        for name, mem in mems.items()
    ]
    title = "read_u64 of 400 pages that are not mapped"
    result = suite.measure(title, contenders, STRICT, operations=ITEMS)
    suite.claim(f"{title}: strict / hit", result.ratio(STRICT, HIT).median, 2, ">=")
    for mem in mems.values():
        mem.close()


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    suite = harness.Suite("vector", readers.PACKAGES)
    harness.DIRECTORY.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=harness.DIRECTORY) as name:
        target = make_target(Path(name), "one segment", 1)
        readers.fill_page_cache(target.path)
        not_mapped(suite, target)
        mapped(suite, target)
        cache(suite, target)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
