# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Readers at the same time never see each other's bytes.

/proc/kcore copies through one page that belongs to the open file (docs/live-kernels.md),
so two that share an open file and know nothing of each other get wrong bytes. That
these tests would see it is shown with a plain shared descriptor.
"""

import os
import random
import threading
import time

import drgn
import drgn_fastmem
import pytest

from .plain import Plain

PAGE = 4096
# Long enough that two threads are often without the GIL at the same time.
LONG = 32 * PAGE
SECONDS = 4


@pytest.fixture(scope="module")
def still(alone):
    """(address, what is there) of some memory that never changes."""
    start, end = (alone.symbol(n).address for n in ("__start_rodata", "__end_rodata"))
    size = min(end - start, 256 * PAGE)
    data = alone.read(start, size)
    assert alone.read(start, size) == data
    return start, data


def wrong_reads(read, still, seed, seconds=SECONDS):
    """(number of wrong ones, number of all) in random reads for some seconds."""
    start, data = still
    generator = random.Random(seed)
    wrong = number = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        size = generator.choice((8, 64, PAGE, LONG, LONG))
        offset = generator.randrange(len(data) - size)
        wrong += read(start + offset, size) != data[offset : offset + size]
        number += 1
    return wrong, number


def in_two_threads(one, other, still):
    results = []

    def work(read, seed):
        results.append(wrong_reads(read, still, seed))

    threads = [
        threading.Thread(target=work, args=args) for args in ((one, 1), (other, 2))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [sum(numbers) for numbers in zip(*results)]


def in_two_processes(read, still):
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.write(sender, repr(wrong_reads(read, still, 1)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(sender)
    results = [wrong_reads(read, still, 2)]
    with os.fdopen(receiver) as file:
        results.append(eval(file.read()))
    assert os.waitpid(pid, 0)[1] == 0
    return [sum(numbers) for numbers in zip(*results)]


def attached_program():
    prog = drgn.Program()
    prog.set_kernel()
    drgn_fastmem.attach(prog)
    return prog


def test_two_threads_with_a_program_each(still):
    one, other = attached_program(), attached_program()
    assert drgn_fastmem.attach(one) is not drgn_fastmem.attach(other)
    wrong, number = in_two_threads(one.read, other.read, still)
    assert (wrong, number > 1000) == (0, True)


def test_two_threads_with_one_memory(still):
    with drgn_fastmem.open() as mem:
        wrong, number = in_two_threads(mem.read, mem.read, still)
    assert (wrong, number > 1000) == (0, True)


def test_two_threads_with_two_memories_of_one_descriptor(still):
    fd = os.open("/proc/kcore", os.O_RDONLY)
    with drgn_fastmem.open(fd) as one, drgn_fastmem.open(fd) as other:
        wrong, number = in_two_threads(one.read, other.read, still)
    os.close(fd)
    assert (wrong, number > 1000) == (0, True)


def test_search_that_runs_without_the_gil_beside_a_reader(still, attached):
    # drgn gives up the GIL while it searches, so its reads are at the same time.
    start, data = still
    needle = data[100 * PAGE + 64 : 100 * PAGE + 96]
    expected = [
        start + offset
        for offset in range(len(data))
        if data.startswith(needle, offset)
    ]
    assert expected
    # drgn needs the debug info to search.
    one, other = attached, attached_program()
    searches = []

    def search():
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            found = one.search_memory(needle)
            searches.append(
                list(found.set_address_range(start, start + len(data) - 1)) == expected
            )

    thread = threading.Thread(target=search)
    thread.start()
    wrong, number = wrong_reads(other.read, still, 3)
    thread.join()
    assert wrong == 0 and number > 300
    assert len(searches) > 3 and all(searches)


def test_parent_and_child_after_a_fork(still):
    prog = attached_program()
    wrong, number = in_two_processes(prog.read, still)
    assert (wrong, number > 1000) == (0, True)
    mem = drgn_fastmem.attach(prog)
    wrong, number = in_two_processes(mem.read, still)
    assert (wrong, number > 1000) == (0, True)


class TestTheComparisonCanFail:
    """With one open file that two readers share and nobody locks."""

    @pytest.fixture
    def read(self):
        reader = Plain()
        yield reader.read
        reader.close()

    def test_one_reader_sees_nothing_wrong(self, read, still):
        wrong, number = wrong_reads(read, still, 1, seconds=1)
        assert (wrong, number > 300) == (0, True)

    def test_two_threads(self, read, still):
        wrong, number = in_two_threads(read, read, still)
        assert wrong > 0, (wrong, number)

    def test_two_processes(self, read, still):
        wrong, number = in_two_processes(read, still)
        assert wrong > 0, (wrong, number)
