# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The same read put to several readers, and whether they agree.

A reader is anything with the read methods of drgn.Program: drgn.Program itself,
drgn_fastmem.Memory, reference.Reference. The reference says what is right, drgn
(plugin off) has to confirm it, and ours has to equal it. Needs the standard
library only, so that it also runs where nothing but an old drgn is installed.
"""

import errno
import random
from typing import Dict, Iterator, List, NamedTuple, Optional

from reference import Fault, Reference

# Machines for which drgn 0.0.22 to 0.3.0 can walk kernel page tables
# (linux_kernel_pgtable_iterator_next in libdrgn/arch_*.c).
WALKERS = {21, 22, 40, 62, 183}

PAGE = 4096
UINT_SIZES = {"read_u8": 1, "read_u16": 2, "read_u32": 4, "read_u64": 8}


class Read(NamedTuple):
    method: str
    address: int
    size: Optional[int] = None  # of read; max_size of read_c_string
    physical: bool = False

    def __str__(self) -> str:
        words = [hex(self.address)]
        if self.method == "read":
            words.append(hex(self.size))
        if self.physical:
            words.append("physical=True")
        if self.method == "read_c_string" and self.size is not None:
            words.append(f"max_size={self.size}")
        return f"{self.method}({', '.join(words)})"

    def call(self, reader):
        method = getattr(reader, self.method)
        if self.method == "read":
            return method(self.address, self.size, self.physical)
        if self.method == "read_c_string" and self.size is not None:
            return method(self.address, self.physical, max_size=self.size)
        return method(self.address, self.physical)


class Outcome(NamedTuple):
    kind: str  # "value", "fault", "oserror", or the name of another exception
    value: object = None

    def __str__(self) -> str:
        if self.kind == "value" and isinstance(self.value, bytes):
            head = self.value[:16].hex()
            return f"{len(self.value)} bytes {head}{'...' * (len(self.value) > 16)}"
        if self.kind in ("value", "fault"):
            return f"{self.kind} {self.value:#x}"
        if self.kind == "oserror":
            return f"OSError {errno.errorcode.get(self.value, self.value)}"
        return f"{self.kind}: {self.value}"


def outcome(reader, read: Read) -> Outcome:
    try:
        return Outcome("value", read.call(reader))
    except Fault as fault:
        return Outcome("fault", fault.address)
    except OSError as error:
        return Outcome("oserror", error.errno)
    except Exception as error:
        # By name: drgn's class, or drgn_fastmem's own when there is no drgn.
        if type(error).__name__ == "FaultError":
            return Outcome("fault", error.address)
        return Outcome(type(error).__name__, str(error))


class Disagreement(AssertionError):
    def __init__(
        self, read: Read, outcomes: Dict[str, Outcome], culprits: List[str]
    ) -> None:
        self.read = read
        self.culprits = culprits
        lines = [f"{read}: wrong: {', '.join(culprits)}"]
        lines += [f"  {name:16} {value}" for name, value in outcomes.items()]
        for name in culprits:
            lines += _first_difference(name, outcomes)
        super().__init__("\n".join(lines))


def compare(
    reference: Reference,
    theirs: Dict[str, object],
    ours: Dict[str, object],
    read: Read,
    *,
    attached: Dict[str, object] = {},
) -> Outcome:
    """Raise Disagreement unless all readers give the reference's answer.

    theirs: drgn alone. ours: Memory objects. attached: Programs with a Memory
    attached, which have drgn's page-table reader underneath. Returns the answer.

    Two answers differ on purpose:
    - where pread fails with an errno, drgn raises OSError, ours is a fault at the
      first byte that could not be read;
    - where a segment's file offset passes 2^64, drgn's wraps and reads the wrong
      place of the file, ours is a fault.
    """
    expected = Outcome("value")
    fault = None
    try:
        expected = Outcome("value", read.call(reference))
    except Fault as error:
        fault = error
        expected = Outcome("fault", error.address)

    outcomes = {"reference": expected}
    wrong = []
    walked = (
        fault is not None
        and fault.unmapped
        and not read.physical
        and reference.have_vmcoreinfo
        and reference.machine in WALKERS
    )

    def check(name: str, reader, allowed: Optional[Outcome]) -> None:
        outcomes[name] = outcome(reader, read)
        if allowed is not None and outcomes[name] != allowed:
            wrong.append(name)

    their_answer: Optional[Outcome] = expected
    if walked or (fault is not None and fault.errno == errno.EOVERFLOW):
        their_answer = None
    elif fault is not None and fault.errno:
        their_answer = Outcome("oserror", fault.errno)
    for name, reader in theirs.items():
        check(name, reader, their_answer)
    for name, reader in ours.items():
        check(name, reader, expected)

    attached_answer: Optional[Outcome] = expected
    if walked and theirs:
        attached_answer = outcomes[next(iter(theirs))]
        if attached_answer.kind == "oserror":
            # The page-table reader met a bad file offset somewhere.
            attached_answer = None
    for name, reader in attached.items():
        check(name, reader, attached_answer)
        if attached_answer is None and outcomes[name].kind != "fault":
            wrong.append(name)
    if wrong:
        raise Disagreement(read, outcomes, wrong)
    return expected


def interesting_reads(
    reference: Reference, generator: random.Random, count: int
) -> Iterator[Read]:
    """Reads around every place where something changes: ends of segments, of
    what was saved, of the file, of pages, of the address space."""
    file_size = reference.file_size()
    spaces = []
    for physical, segments in (
        (False, reference.virtual_segments),
        (True, reference.physical_segments),
    ):
        edges = [0, reference.address_mask + 1]
        for segment in segments:
            edges += [
                segment.first,
                segment.last + 1,
                segment.first + segment.file_size,
                segment.first + file_size - segment.file_offset,
                (segment.first | (PAGE - 1)) + 1,
            ]
            middle = (segment.first + segment.last) // 2
            edges += [middle, middle & ~(PAGE - 1)]
        spaces.append((physical, edges))
    deltas = [0, 0, 0, 1, -1, 2, -2, 3, -3, 7, -7, -8, -16, 31, -PAGE, PAGE]
    sizes = [0, 1, 2, 3, 4, 7, 8, 9, 16, 255, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE]
    mask = (1 << 64) - 1
    for _ in range(count):
        physical, edges = spaces[generator.random() < 0.35]
        address = (generator.choice(edges) + generator.choice(deltas)) & mask
        if generator.random() < 0.05:
            # Bits above the address mask, or a tag, must not matter or fault
            # alike.
            address ^= generator.getrandbits(8) << 56
        what = generator.random()
        if what < 0.55:
            size = generator.choice(sizes)
            if generator.random() < 0.2:
                size += generator.randrange(4 * PAGE)
            yield Read("read", address, size, physical)
        elif what < 0.85:
            method = generator.choice([*UINT_SIZES, "read_word"])
            yield Read(method, address, None, physical)
        else:
            maximum = generator.choice([0, 1, 8, 100, 5000])
            yield Read("read_c_string", address, maximum, physical)


def _first_difference(name: str, outcomes: Dict[str, Outcome]) -> List[str]:
    right, wrong = outcomes["reference"].value, outcomes[name].value
    if isinstance(right, bytes) and isinstance(wrong, bytes) and right != wrong:
        for index, (a, b) in enumerate(zip(right, wrong)):
            if a != b:
                return [f"  {name}: first different byte at +{index:#x}"]
        return [f"  {name}: {len(wrong)} bytes, not {len(right)}"]
    return []
