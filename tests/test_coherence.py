# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""How old the bytes are that a read hands out: strict, bounded, snapshot.

A process of its own counts up in a core file, through a mapping of it; the test
sees the counter through another, and reads it through a Memory that is not
mapped. Nothing here depends on how fast anything is.
"""

import bisect
import gc
import math
import mmap
import os
import subprocess
import sys
import threading
import time

import pytest

import drgn_fastmem as fm

drgn = pytest.importorskip("drgn", reason="drgn is not installed")

PAGE = 4096
ADDRESS = 0x10000
NR_PAGES = 2000
CORE = f"""
core elf64 little x86_64
load vaddr={ADDRESS:#x} paddr=0x1000 memsz={NR_PAGES * PAGE:#x} offset=page fill=pattern:1
"""
WRITER = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    counter = memoryview(mmap.mmap(file.fileno(), 0)).cast("B")[4096:4104].cast("Q")
counter[0] = 0
value = 0
print("ready", flush=True)
while True:
    value += 1
    counter[0] = value
"""


class Target:
    def __init__(self, path):
        self.path = path
        self.writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE
        )
        assert self.writer.stdout.readline() == b"ready\n"
        with open(path, "rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self._words = memoryview(mapping).cast("Q")
        self.wait_for_change(self.now())

    def now(self):
        """The counter as it is."""
        return self._words[PAGE // 8]

    def wait_for_change(self, value):
        while self.now() == value:
            assert self.writer.poll() is None

    def stop(self):
        self.writer.kill()
        self.writer.wait()
        self.writer.stdout.close()


@pytest.fixture
def target(core_file):
    target = Target(core_file(CORE))
    yield target
    target.stop()


@pytest.fixture
def path(core_file):
    return core_file(CORE)


def drgn_program(path, mem):
    prog = drgn.Program()
    prog.set_core_dump(path)
    assert fm.attach(prog, mem) is mem
    return prog


@pytest.fixture(params=["Memory", "drgn"])
def reading(request, target):
    """The Memory and a function that reads the counter through it or drgn."""
    with fm.open(target.path, mmap="never", max_age=0) as mem:
        if request.param == "drgn":
            yield mem, lambda prog=drgn_program(target.path, mem): prog.read_u64(ADDRESS)
        else:
            yield mem, lambda: mem.read_u64(ADDRESS)


def too_old(target, read, max_age, *, seconds=1.0):
    """How many reads gave a value older than max_age and a step of the clock, and
    how many an older one than there was at the call."""
    step = max(time.clock_getres(time.CLOCK_MONOTONIC), max_age / 2)
    times, values = [], []
    wrong = old = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # The value first: it is not younger than the time says.
        values.append(target.now())
        times.append(time.monotonic())
        before = values[-1]
        at = bisect.bisect_right(times, time.monotonic() - max_age - step) - 1
        value = read()
        old += value < before
        wrong += at >= 0 and value < values[at]
    return wrong, old


def test_strict_is_never_older_than_the_call(target, reading):
    mem, read = reading
    values = set()
    for _ in range(20_000):
        before = target.now()
        value = read()
        assert value >= before
        values.add(value)
    assert len(values) > 100
    assert mem.stats.cache_hits == 0


@pytest.mark.parametrize("max_age", [0.0005, 0.01, 0.05])
def test_bounded_is_never_older_than_the_age_and_a_step_of_the_clock(
    target, reading, max_age
):
    mem, read = reading
    mem.max_age = max_age
    wrong, old = too_old(target, read, max_age)
    assert wrong == 0
    # It was the cache that was tried.
    assert old > 0
    assert mem.stats.cache_hits > mem.stats.cache_misses > 5


def test_the_check_of_the_age_can_fail(target, reading):
    mem, read = reading
    mem.max_age = 0.3
    wrong, old = too_old(target, read, 0.01)
    assert wrong > 0


def test_any_age_is_what_was_read_first(target, reading):
    mem, read = reading
    mem.max_age = math.inf
    value = read()
    target.wait_for_change(value)
    assert {read() for _ in range(1000)} == {value}
    assert mem.stats.syscalls == 1


def test_age_can_be_changed_at_any_time(target, reading):
    mem, read = reading
    for max_age in (math.inf, 100, math.inf, 0.01, math.inf):
        mem.max_age = max_age
        assert mem.max_age == max_age
    value = read()
    target.wait_for_change(value)
    assert read() == value
    # Of unknown age by now.
    mem.max_age = 100
    value = read()
    before = target.now()
    target.wait_for_change(value)
    assert read() == value
    mem.max_age = 0
    assert read() >= before
    # Turned on again there is nothing left of before.
    before = target.now()
    mem.max_age = math.inf
    assert read() >= before


def test_invalidate_forgets(target, reading):
    mem, read = reading
    mem.max_age = math.inf
    for _ in range(100):
        value = read()
        target.wait_for_change(value)
        assert read() == value
        before = target.now()
        assert mem.invalidate() is None
        assert read() >= before


class TestSnapshot:
    def test_one_value_inside_and_a_fresh_one_after(self, target, reading):
        mem, read = reading
        for max_age in (0, 0.01, math.inf):
            mem.max_age = max_age
            read()
            for _ in range(50):
                before = target.now()
                with mem.snapshot() as inside:
                    assert inside is mem
                    value = read()
                    assert value >= before
                    target.wait_for_change(value)
                    assert {read() for _ in range(10)} == {value}
                before = target.now()
                assert read() >= before

    @pytest.mark.parametrize("mmap", ["try", "never"])
    def test_mapped_or_not_each_page_is_read_once(self, target, mmap):
        with fm.open(target.path, mmap=mmap) as mem:
            prog = drgn_program(target.path, mem)
            with mem.snapshot():
                value = mem.read_u64(ADDRESS)
                target.wait_for_change(value)
                mem.reset_stats()
                # Small, over pages, in bulk, as a string, physical, by drgn.
                for read in (
                    lambda: mem.read_u64(ADDRESS),
                    lambda: int.from_bytes(mem.read(ADDRESS, 5 * PAGE)[:8], "little"),
                    lambda: int.from_bytes(mem.read(ADDRESS, 1 << 20)[:8], "little"),
                    lambda: mem.read_u64(0x1000, physical=True),
                    lambda: prog.read_u64(ADDRESS),
                    lambda: prog.read_u64(0x1000, physical=True),
                ):
                    assert read() == value
                string = value.to_bytes(8, "little").split(b"\0")[0]
                assert mem.read_c_string(ADDRESS)[: len(string)] == string
                pages = (1 << 20) // PAGE
                stats = mem.stats
                assert stats.cache_misses == pages - 1
                assert stats.syscalls + stats.mapped_reads == pages - 1
            before = target.now()
            assert mem.read_u64(ADDRESS) >= before
            assert mem.read(ADDRESS, 1 << 20) != b""

    def test_blocks_may_be_nested_and_the_outermost_counts(self, target, reading):
        mem, read = reading
        snapshot = mem.snapshot()
        with snapshot:
            value = read()
            with mem.snapshot(), snapshot:
                target.wait_for_change(value)
                assert read() == value
            assert read() == value
        before = target.now()
        assert read() >= before

    def test_ends_with_an_exception(self, target, reading):
        mem, read = reading
        with pytest.raises(KeyError):
            with mem.snapshot():
                value = read()
                with mem.snapshot():
                    raise KeyError
        target.wait_for_change(value)
        before = target.now()
        assert read() >= before

    def test_ends_with_a_fault(self, target, reading):
        mem, read = reading
        with pytest.raises(fm.FaultError) as info:
            with mem.snapshot():
                mem.read_u64(ADDRESS - 8)
        assert info.value.address == ADDRESS - 8
        before = target.now()
        assert read() >= before

    def test_ends_with_a_generator_that_is_left_inside(self, target, reading):
        mem, read = reading

        def generator():
            with mem.snapshot():
                yield read()

        value = next(generator())
        gc.collect()
        target.wait_for_change(value)
        before = target.now()
        assert read() >= before

    def test_ends_when_its_object_goes(self, target, reading):
        mem, read = reading
        snapshot = mem.snapshot()
        snapshot.__enter__()
        snapshot.__enter__()
        value = read()
        target.wait_for_change(value)
        assert read() == value
        del snapshot
        before = target.now()
        assert read() >= before

    def test_age_and_invalidate_inside(self, target, reading):
        mem, read = reading
        with mem.snapshot():
            value = read()
            target.wait_for_change(value)
            for max_age in (0.01, 0):
                mem.max_age = max_age
                assert read() == value
            before = target.now()
            mem.invalidate()
            value = read()
            assert value >= before
            target.wait_for_change(value)
            assert read() == value

    def test_file_that_grew_gives_more_of_the_same_page(self, core_file):
        path = core_file(
            "core elf64 little x86_64\n"
            "load vaddr=0x10000 memsz=0x1000 offset=page fill=byte:1\n"
            "file size=0x1800\n"
        )
        with fm.open(path, mmap="never") as mem, mem.snapshot():
            assert mem.read(0x10000, 0x800) == b"\1" * 0x800
            with pytest.raises(fm.FaultError) as info:
                mem.read(0x10000, 0x801)
            assert info.value.address == 0x10800
            with open(path, "r+b") as file:
                file.seek(0x1000)
                file.write(b"\2" * 0x1000)
            assert mem.read(0x10000, 0x1000) == b"\1" * 0x800 + b"\2" * 0x800
            assert mem.read(0x10000, 0x1000) == b"\1" * 0x800 + b"\2" * 0x800

    def test_closed_inside(self, path):
        mem = fm.open(path, mmap="never")
        with pytest.raises(ValueError):
            with mem.snapshot():
                mem.close()
                mem.read_u64(ADDRESS)
        for call in (mem.snapshot, mem.invalidate, lambda: mem.max_age):
            with pytest.raises(ValueError, match="closed"):
                call()
        with pytest.raises(ValueError, match="closed"):
            mem.max_age = 1

    def test_closed_before_it_is_entered(self, path):
        mem = fm.open(path)
        snapshot = mem.snapshot()
        mem.close()
        with pytest.raises(ValueError, match="closed"):
            snapshot.__enter__()
        with pytest.raises(ValueError, match="not entered"):
            snapshot.__exit__(None, None, None)

    def test_no_address_space_for_it(self, path, tmp_path):
        code = """
import resource, sys
import drgn_fastmem as fm
mem = fm.open(sys.argv[1])
with mem.snapshot():
    pass
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
def limit(more):
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))
limit(100 << 20)
with mem.snapshot():
    first = mem.read_u64(0x10000)
limit(6 << 20)
with mem.snapshot():
    try:
        for page in range(2000):
            mem.read_u64(0x10000 + 4096 * page)
    except fm.FaultError as e:
        print(page, e.address == 0x10000 + 4096 * page, "no room" in str(e))
    print(mem.read_u64(0x10000) == first)
limit(1 << 20)
try:
    with mem.snapshot():
        print("entered")
except MemoryError:
    print("MemoryError", mem.read_u64(0x10000) == first)
"""
        process = subprocess.run(
            [sys.executable, "-c", code, path], capture_output=True, text=True
        )
        assert process.stderr == ""
        assert process.stdout == "1024 True True\nTrue\nMemoryError True\n"


@pytest.mark.parametrize("value", [-1, -1e-9, math.nan, -math.inf])
def test_age_that_makes_no_sense(path, value):
    with fm.open(path, max_age=3) as mem:
        with pytest.raises(ValueError, match="max_age must be 0 or more seconds"):
            mem.max_age = value
        assert mem.max_age == 3
        with pytest.raises(ValueError, match="max_age must be 0 or more seconds"):
            fm.open(path, max_age=value)


def test_age_that_is_no_number(path):
    with fm.open(path) as mem:
        for value in ("1", None, b"1", [1]):
            with pytest.raises(TypeError):
                mem.max_age = value
        with pytest.raises(TypeError):
            fm.open(path, max_age="10ms")
        with pytest.raises(AttributeError):
            del mem.max_age
        assert mem.max_age == math.inf


@pytest.mark.parametrize(
    "value, kept",
    [(0, 0), (1e-300, 1e-9), (1e-9, 1e-9), (0.01, 0.01), (1e300, math.inf), (True, 1)],
)
def test_age_is_kept_in_nanoseconds(path, value, kept):
    with fm.open(path, max_age=value) as mem:
        assert mem.max_age == pytest.approx(kept, rel=1e-6)
        assert isinstance(mem.max_age, float)


def test_attach_takes_the_age(path):
    for given, kept in ((None, math.inf), (0, 0), (0.5, 0.5)):
        prog = drgn.Program()
        prog.set_core_dump(path)
        assert fm.attach(prog, max_age=given).max_age == kept


def test_bulk_reads_leave_the_cache_alone(path):
    with fm.open(path, mmap="never") as mem:
        mem.read(ADDRESS, 8)
        mem.read(ADDRESS, 1 << 20)
        assert mem.stats.cache_misses == 1
        assert mem.stats.syscalls == 2
        mem.read(ADDRESS + PAGE, 8)
        assert mem.stats.cache_misses == 2


def test_pages_end_with_their_segment(core_file):
    path = core_file(
        """
        core elf64 little x86_64
        load vaddr=0x10100 memsz=0x80 offset=0x1003 fill=pattern:1
        load vaddr=0x10180 memsz=0x1000 offset=0x1083 fill=pattern:2
        load vaddr=0x20000 memsz=0x2000 filesz=0x10 offset=0x5007 fill=pattern:3
        """
    )
    with fm.open(path, mmap="never") as mem, fm.open(path) as mapped:
        for address, size in ((0x10100, 0x1080), (0x1017F, 2), (0x10FFF, 2), (0x20000, 16)):
            for _ in range(2):
                assert mem.read(address, size) == mapped.read(address, size)
        for address, size in ((0x100FF, 1), (0x11180, 1), (0x20000, 17), (0x2000F, 2)):
            with pytest.raises(fm.FaultError) as info:
                mem.read(address, size)
            with pytest.raises(fm.FaultError) as expected:
                mapped.read(address, size)
            assert info.value.address == expected.value.address


def test_more_pages_than_the_cache_holds(path):
    with fm.open(path, mmap="never") as mem, fm.open(path) as mapped:
        for round in range(3):
            for page in range(NR_PAGES):
                address = ADDRESS + page * PAGE + 8 * round
                assert mem.read_u64(address) == mapped.read_u64(address)
        # One that is used over and over stays.
        mem.reset_stats()
        for page in range(NR_PAGES):
            mem.read_u64(ADDRESS)
            mem.read_u64(ADDRESS + page * PAGE)
        assert mem.stats.cache_hits >= NR_PAGES


def test_threads_on_one_cache(path):
    with fm.open(path, mmap="never") as mem, fm.open(path) as mapped:
        expected = mapped.read(ADDRESS, NR_PAGES * PAGE)
        wrong = []
        stop = threading.Event()

        def read(seed):
            state = seed
            while not stop.is_set():
                state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
                at = (state >> 20) % (NR_PAGES * PAGE - 64)
                if mem.read(ADDRESS + at, 64) != expected[at : at + 64]:
                    wrong.append(at)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for round in range(200):
            mem.max_age = (0, math.inf, 0.001)[round % 3]
            with mem.snapshot():
                mem.invalidate()
                time.sleep(0.002)
        stop.set()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_fork_with_the_cache_warm_and_threads_reading(path):
    with fm.open(path, mmap="never") as mem, fm.open(path) as mapped:
        expected = mapped.read(ADDRESS, NR_PAGES * PAGE)
        stop = threading.Event()

        def read():
            page = 0
            while not stop.is_set():
                mem.read(ADDRESS + page * PAGE, 64)
                page = (page + 7) % NR_PAGES

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        statuses = set()
        with mem.snapshot():
            for _ in range(60):
                pid = os.fork()
                if pid == 0:
                    wrong = sum(
                        mem.read(ADDRESS + page * PAGE, 64)
                        != expected[page * PAGE : page * PAGE + 64]
                        for page in range(0, NR_PAGES, 11)
                    )
                    os._exit(bool(wrong))
                statuses.add(os.waitpid(pid, 0)[1])
        stop.set()
        for thread in threads:
            thread.join()
        assert statuses == {0}


# -- Strings that drgn reads byte by byte --------------------------------------


class TestStrings:
    TEXT = b"abcdefghij" * 20

    @pytest.fixture
    def string(self, core_file):
        """A strict Program and its Memory, over a string, and the string's file."""
        path = core_file(
            "core elf64 little x86_64\n"
            "load vaddr=0x10000 paddr=0x1000 memsz=0x3000 filesz=0x2000 offset=page "
            "fill=byte:97\n"
        )
        with open(path, "r+b") as file, fm.open(path, mmap="never", max_age=0) as mem:

            def write(offset, data):
                file.seek(PAGE + offset)
                file.write(data)
                file.flush()

            write(0x100, self.TEXT + b"\0")
            yield drgn_program(path, mem), mem, write

    def test_two_preads_at_most(self, string):
        prog, mem, _ = string
        for physical, base in ((False, 0x10100), (True, 0x1100)):
            best = []
            for _ in range(5):
                mem.reset_stats()
                assert prog.read_c_string(base, physical) == self.TEXT
                assert mem.stats.reads == len(self.TEXT) + 1
                best.append(mem.stats.syscalls)
            # A thread that has to wait for 100 microseconds reads again.
            assert min(best) == 2

    def test_to_the_end_of_the_page_and_of_what_was_saved(self, string):
        prog, mem, write = string
        for start, end in ((0x0F80, 0x1040), (0x1F80, 0x1FFF), (0x0FFF, 0x1001)):
            write(start, b"x" * (end - start) + b"\0")
            mem.reset_stats()
            assert prog.read_c_string(0x10000 + start) == b"x" * (end - start)
            assert mem.stats.syscalls <= 20
        write(0x1F80, b"y" * 0x80)
        with pytest.raises(fm.FaultError) as info:
            prog.read_c_string(0x11F80)
        assert info.value.address == 0x12000

    def test_bytes_that_are_not_one_after_the_other_are_as_they_are(self, string):
        prog, mem, write = string
        for value in range(200):
            write(0x200, bytes([value]) * 4)
            assert prog.read_u8(0x10200) == value
            assert prog.read_u8(0x10202) == value
            assert prog.read_u8(0x10201) == value
            assert prog.read_u8(0x10201) == value

    def test_nothing_older_than_100_microseconds(self, string):
        prog, mem, write = string
        for value in range(50):
            write(0x200, bytes([value]) * 4)
            prog.read_u8(0x10200)
            assert prog.read_u8(0x10201) == value
            write(0x202, bytes([value + 1]))
            time.sleep(0.0002)
            assert prog.read_u8(0x10202) == value + 1

    def test_invalidate_and_other_reads_are_not_served_from_it(self, string):
        prog, mem, write = string
        for value in range(50):
            write(0x200, bytes([value]) * 8)
            prog.read_u8(0x10200)
            assert prog.read_u8(0x10201) == value
            write(0x202, bytes([value + 1]) * 6)
            assert prog.read(0x10202, 2) == bytes([value + 1]) * 2
            mem.invalidate()
            assert prog.read_u8(0x10202) == value + 1

    def test_threads(self, string):
        prog, mem, write = string
        texts = {0x10200 + 0x80 * i: bytes([98 + i]) * 0x60 for i in range(4)}
        for address, text in texts.items():
            write(address - 0x10000, text + b"\0")
        wrong = []

        def read(address):
            for _ in range(300):
                if prog.read_c_string(address) != texts[address]:
                    wrong.append(address)

        threads = [threading.Thread(target=read, args=(address,)) for address in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
