# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""What a read of a core file of a process costs, that is mapped and in the page
cache: 64 MiB in one segment and in 64, made on the spot. Small integers, blocks
of bytes, C strings. No page tables: that is bench_dump.py."""

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import List, NamedTuple

import harness
import readers
from harness import Contender

import core_text  # found through readers
import drgn_fastmem as fm

START = 0x7F00_0000_0000
SIZE = 64 << 20
READS = 10_000

FLOOR, NATIVE, CALLABLE, ALONE = "floor", "native", "callable", "drgn alone"
FLOOR_SEGMENTS, COPY, MEMORY = "floor, 64 ranges", "plain memcpy", "Memory"
NOT_COMPARED = (FLOOR, FLOOR_SEGMENTS)


class Target(NamedTuple):
    name: str
    path: str
    segments: List[range]


def make_target(directory: Path, name: str, count: int) -> Target:
    """SIZE bytes in that many segments, with gaps between them."""
    size = SIZE // count
    segments = [
        range(START + i * 2 * size, START + i * 2 * size + size) for i in range(count)
    ]
    lines = ["core elf64 little x86_64"] + [
        f"load vaddr={s.start:#x} memsz={size:#x} offset=page fill=pattern:{i}"
        for i, s in enumerate(segments)
    ]
    path = directory / name.replace(" ", "-")
    core_text.write(path, "\n".join(lines))
    return Target(name, str(path), segments)


class Readers:
    """Every way to read one target."""

    def __init__(self, target: Target) -> None:
        path = target.path
        readers.fill_page_cache(path)
        ranges = [(s.start, len(s)) for s in target.segments]
        first, last = target.segments[0], target.segments[-1]
        with fm.open(path) as mem:
            offsets = [(s.address, s.size, s.file_offset) for s in mem.segments]
        self.by_name = {
            FLOOR: readers.floor(path, [(first.start, last.stop - first.start)]),
            # Finding one of many ranges is drgn's too, but a reader could give it
            # just the one.
            FLOOR_SEGMENTS: readers.floor(path, ranges),
            COPY: readers.plain_copy(path, offsets),
            NATIVE: readers.plugin(path),
            CALLABLE: readers.attached(path, native=False),
            ALONE: readers.alone(path),
            MEMORY: fm.open(path),
        }
        if len(ranges) == 1:
            del self.by_name[FLOOR_SEGMENTS]
        address = first.start
        for name, calls in ((NATIVE, 0), (CALLABLE, 0), (ALONE, 1), (MEMORY, 0)):
            found = readers.calls_of_a_read(self.by_name[name], address)
            if found != calls:
                raise RuntimeError(f"{name} makes {found} calls a read, not {calls}")


def addresses_of(target: Target, pattern: str) -> List[int]:
    if pattern == "sequential":
        return [a for s in target.segments for a in s[::8]][:READS]
    generator = random.Random(1)
    return [
        segment.start + generator.randrange(len(segment) // 8) * 8
        for segment in generator.choices(target.segments, k=READS)
    ]


def read_u64(suite: harness.Suite, target: Target, ways: Readers) -> None:
    for pattern in ("sequential", "random"):
        addresses = addresses_of(target, pattern)
        contenders = [
            Contender(
                name,
                harness.over(reader.read_u64, addresses),
                (
                    None
                    if name in NOT_COMPARED
                    else lambda reader=reader: readers.u64s(reader, addresses)
                ),
            )
            for name, reader in ways.by_name.items()
        ]
        title = f"read_u64, {target.name}, {pattern}"
        result = suite.measure(title, contenders, ALONE, operations=READS)
        for name, ratio, limit, op in (
            # The floor touches no memory, and finds no range. Where one of these
            # is most of the time, what counts is how it compares with memcpy.
            (
                ("native / floor", (NATIVE, FLOOR), 1.25, "<=")
                if pattern == "sequential" and len(target.segments) == 1
                else ("native / plain memcpy", (NATIVE, COPY), 1.25, "<=")
            ),
            ("drgn alone / native", (ALONE, NATIVE), 5, ">="),
            ("callable / drgn alone", (CALLABLE, ALONE), 0.5, "<="),
        ):
            value = result.ratio(*ratio).median
            suite.claim(f"{title}: {name}", value, limit, op)
        # What a system call costs differs between machines, and so do the ratios
        # above; how much of what can be saved is saved should not.
        saved = result.median(ALONE) - result.median(NATIVE)
        possible = result.median(ALONE) - result.median(COPY)
        suite.claim(f"{title}: saved of what memcpy saves", saved / possible, 0.8, ">=")


def size_text(size: int) -> str:
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size >> shift:
            return f"{size >> shift} {unit}"
    return "1 byte" if size == 1 else f"{size} bytes"


def read_blocks(suite: harness.Suite, target: Target, ways: Readers) -> None:
    (segment,) = target.segments
    generator = random.Random(2)
    for size in (1, 8, 64, 512, 4096, 32 << 10, 64 << 10, 256 << 10, 1 << 20):
        count = max(4, min(2000, (4 << 20) // size))
        addresses = [
            segment.start + generator.randrange(len(segment) - size)
            for _ in range(count)
        ]
        sizes = [size] * count
        contenders = [
            Contender(
                name,
                harness.over(reader.read, addresses, sizes),
                (
                    None
                    if name in NOT_COMPARED
                    else lambda reader=reader: b"".join(
                        map(reader.read, addresses, sizes)
                    )
                ),
            )
            for name, reader in ways.by_name.items()
        ]
        title = f"read of {size_text(size)}"
        suite.measure(title, contenders, ALONE, operations=count, budget=2)


def read_strings(suite: harness.Suite, directory: Path) -> None:
    """The floor has no strings: drgn reads to the first zero."""
    for length in (10, 100):
        stride = 4096
        text = "x" * length
        lines = ["core elf64 little x86_64"] + [
            f"load vaddr={START + i * stride:#x} memsz={stride} fill=text:{i:04}{text[4:]}"
            for i in range(16)
        ]
        path = directory / f"strings-{length}"
        core_text.write(path, "\n".join(lines))
        target = Target("strings", str(path), [range(START, START + 16 * stride)])
        ways = Readers(target)
        addresses = [START + i * stride for i in range(16)] * 4
        contenders = [
            Contender(
                name,
                harness.over(reader.read_c_string, addresses),
                lambda reader=reader: b"\0".join(map(reader.read_c_string, addresses)),
            )
            for name, reader in ways.by_name.items()
            if name not in NOT_COMPARED
        ]
        title = f"read_c_string of {length} characters"
        suite.measure(title, contenders, ALONE, operations=len(addresses))


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    suite = harness.Suite("read", readers.PACKAGES)
    harness.DIRECTORY.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=harness.DIRECTORY) as name:
        directory = Path(name)
        for target in (
            make_target(directory, "one segment", 1),
            make_target(directory, "64 segments", 64),
        ):
            ways = Readers(target)
            read_u64(suite, target, ways)
            if len(target.segments) == 1:
                read_blocks(suite, target, ways)
        read_strings(suite, directory)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
