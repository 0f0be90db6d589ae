# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Who lives how long: memories, Programs, threads, forks, the interpreter.

What could crash runs in a Python of its own. All of it runs under AddressSanitizer too
(tests/c/python-asan.sh).
"""

import gc
import os
import textwrap

import pytest

import core_text
import drgn_fastmem as fm

drgn = pytest.importorskip("drgn", reason="it is what memories are attached to")

# Some pages, so that there is something to unmap.
CORE = """
core elf64 little x86_64
load vaddr=0x10000 memsz=0x40000 offset=page fill=pattern:1
load vaddr=0x80000 paddr=0x1000 memsz=0x10000 offset=page fill=strings:2
"""
DATA = core_text.fill_bytes("pattern:1", 0x40000)

# What the children below begin with.
BEGIN = """
import faulthandler, gc, os, signal, sys, threading
import drgn, drgn_fastmem as fm
import core_text

path = sys.argv[1]
native = sys.argv[2] == "native"
DATA = core_text.fill_bytes("pattern:1", 0x40000)

def program():
    prog = drgn.Program()
    prog.set_core_dump(path)
    return prog

def attach(prog, mem=None):
    mem = fm.attach(prog, mem, _native=native)
    assert fm.attachment(prog) == ("native" if native else "callable")
    return mem

def check(reader):
    assert reader.read(0x10000, 0x40000) == DATA
    assert reader.read_u64(0x10008) == int.from_bytes(DATA[8:16], "little")
    try:
        reader.read_u64(0x50000)
    except fm.FaultError as e:
        assert e.address == 0x50000
    else:
        raise AssertionError("no fault")

def descriptors():
    gc.collect()
    return sorted(os.listdir("/proc/self/fd"))

def mappings():
    gc.collect()
    with open("/proc/self/maps") as maps:
        return sum(path in line for line in maps)
"""

WAYS = pytest.mark.parametrize("way", ["native", "callable"])


@pytest.fixture
def child(run_python, core_file):
    path = core_file(CORE)

    def run(code, way="native", timeout=120):
        code = BEGIN + textwrap.dedent(code) + '\nprint("to the end")\n'
        result = run_python(code, path, way, timeout=timeout)
        assert result.stdout.endswith("to the end\n"), result.stdout + result.stderr
        assert result.stderr == ""
        return result.stdout[: -len("to the end\n")]

    return run


class TestClosing:
    def test_a_closed_memory_says_so(self, core_file):
        mem = fm.open(core_file(CORE))
        assert not mem.closed
        mem.close()
        mem.close()
        assert mem.closed
        for read in (
            lambda: mem.read(0x10000, 1),
            lambda: mem.read(0x10000, 0),
            lambda: mem.read_into(0x10000, bytearray(1)),
            lambda: mem.read_u8(0x10000),
            lambda: mem.read_u64(0x10000),
            lambda: mem.read_word(0x10000),
            lambda: mem.read_c_string(0x80000),
            lambda: mem.translate(0x10000),
            lambda: mem.segments,
            lambda: mem.stats,
            lambda: mem.reset_stats(),
            lambda: mem.__enter__(),
        ):
            with pytest.raises(ValueError, match="closed"):
                read()
        assert "closed" in repr(mem)
        with pytest.raises(ValueError, match="closed"):
            fm.attach(program_of(core_file(CORE, "other")), mem)

    def test_at_the_end_of_a_with_block_also_after_an_exception(self, core_file):
        with pytest.raises(ZeroDivisionError):
            with fm.open(core_file(CORE)) as mem:
                1 / 0
        assert mem.closed

    def test_inside_of_a_with_block(self, core_file):
        with fm.open(core_file(CORE)) as mem:
            assert mem.read(0x10000, 8) == DATA[:8]
            mem.close()
            with pytest.raises(ValueError, match="closed"):
                mem.read(0x10000, 8)
        assert mem.closed
        with pytest.raises(ValueError, match="closed"):
            with mem:
                raise AssertionError("a closed memory was entered")

    @WAYS
    def test_leaves_the_programs_that_it_is_attached_to(self, child, way):
        child(
            """
            prog = program()
            mem = attach(prog)
            mem.close()
            check(prog)
            del mem
            gc.collect()
            check(prog)
            prog.cache.clear()
            gc.collect()
            check(prog)
            """,
            way,
        )

    @WAYS
    def test_in_one_thread_while_others_read(self, child, way):
        child(
            """
            for round in range(20):
                mem = fm.open(path, mmap="never" if round % 2 else "try")
                prog = program()
                attach(prog, mem)
                started = threading.Barrier(4)
                outcomes = []
                def work():
                    started.wait()
                    try:
                        while True:
                            assert mem.read(0x10000, 0x20000) == DATA[:0x20000]
                            assert mem.read_u8(0x10000) == DATA[0]
                    except ValueError as e:
                        outcomes.append(str(e))
                threads = [threading.Thread(target=work) for _ in range(3)]
                for thread in threads:
                    thread.start()
                started.wait()
                mem.close()
                for thread in threads:
                    thread.join()
                assert outcomes == ["the memory is closed"] * 3, outcomes
                check(prog)
            """,
            way,
        )

    def test_inside_a_buffers_own_code(self, child):
        # Getting the buffer runs Python code, which may close what is being read.
        child(
            """
            class Address:
                def __init__(self, mem):
                    self.mem = mem
                def __index__(self):
                    self.mem.close()
                    return 0x10000
            for call in (
                lambda mem: mem.read(Address(mem), 8),
                lambda mem: mem.read(0x10000, Address(mem)),
                lambda mem: mem.read_u64(Address(mem)),
                lambda mem: mem.read_into(Address(mem), bytearray(8)),
                lambda mem: mem.read_c_string(Address(mem)),
                lambda mem: mem.read_c_string(0x80000, max_size=Address(mem)),
                lambda mem: mem.translate(Address(mem)),
            ):
                mem = fm.open(path)
                try:
                    call(mem)
                except (ValueError, fm.FaultError):
                    pass
                assert mem.closed
            """
        )


def program_of(path):
    prog = drgn.Program()
    prog.set_core_dump(path)
    return prog


class TestAttaching:
    @WAYS
    def test_twice_is_once(self, child, way):
        child(
            """
            prog = program()
            mem = attach(prog)
            before = descriptors(), mappings()
            for _ in range(10):
                assert attach(prog) is mem
                assert attach(prog, mem) is mem
            assert (descriptors(), mappings()) == before
            reads = mem.stats.reads
            prog.read_u8(0x10000)
            assert mem.stats.reads == reads + 1
            other = fm.open(path)
            try:
                attach(prog, other)
            except ValueError as e:
                assert "another Memory" in str(e)
            else:
                raise AssertionError("attached twice")
            check(prog)
            """,
            way,
        )

    @WAYS
    def test_many_programs_to_one_memory(self, child, way):
        child(
            """
            mem = fm.open(path)
            progs = [program() for _ in range(20)]
            for prog in progs:
                assert attach(prog, mem) is mem
            for prog in progs:
                check(prog)
            mem.close()
            while progs:
                del progs[len(progs) // 2]
                gc.collect()
                for prog in progs:
                    check(prog)
            assert mappings() > 0
            del prog
            assert mappings() == 0
            """,
            way,
        )

    @WAYS
    def test_program_goes_before_the_memory(self, child, way):
        child(
            """
            prog = program()
            mem = attach(prog)
            del prog
            gc.collect()
            check(mem)
            assert mappings() > 0
            del mem
            assert mappings() == 0
            """,
            way,
        )

    @WAYS
    def test_memory_goes_before_the_program(self, child, way):
        child(
            """
            prog = program()
            attach(prog)
            gc.collect()
            check(prog)
            assert mappings() > 0
            del prog
            assert mappings() == 0
            """,
            way,
        )

    @WAYS
    def test_a_program_that_holds_itself_is_collected_with_its_memory(self, child, way):
        child(
            """
            gc.disable()
            before = sorted(os.listdir("/proc/self/fd")), mappings()
            prog = program()
            mem = attach(prog)
            prog.cache["itself"] = prog
            prog.cache["mem"] = mem
            del prog, mem
            # Only the collector finds it.
            assert sorted(os.listdir("/proc/self/fd")) != before[0]
            gc.collect()
            assert (sorted(os.listdir("/proc/self/fd")), mappings()) == before
            """,
            way,
        )

    @WAYS
    def test_leaks_neither_descriptors_nor_mappings(self, child, way):
        child(
            """
            attach(program())
            before = descriptors(), mappings()
            for number in range(200):
                prog = program()
                mem = attach(prog)
                check(prog)
                if number % 3 == 0:
                    mem.close()
                elif number % 3 == 1:
                    prog.cache.clear()
                fm.open(path, mmap="never").read(0x10000, 8)
                try:
                    fm.open("/proc/self/exe")
                except ValueError:
                    pass
            del prog, mem
            assert (descriptors(), mappings()) == before
            """,
            way,
        )

    @WAYS
    def test_memory_does_not_grow(self, child, way):
        child(
            """
            def resident():
                gc.collect()
                with open("/proc/self/statm") as statm:
                    return int(statm.read().split()[1]) * 4096
            def work():
                for _ in range(300):
                    prog = program()
                    mem = attach(prog)
                    for _ in range(30):
                        try:
                            mem.read_u64(0)
                        except fm.FaultError:
                            pass
                        mem.stats, mem.segments, mem.read(0x10000, 100)
            # With drgn's own part, which is not ours to judge: a Memory a Program
            # would be 300 times 80 KiB.
            work()
            before = resident()
            work()
            assert resident() - before < 8 << 20, (before, resident())
            """,
            way,
        )

    def test_failing_halfway_leaves_nothing(self, child):
        child(
            """
            prog = drgn.Program()
            before = descriptors(), mappings()
            for target in (prog, None, 1, "prog"):
                try:
                    fm.attach(target)
                except (ValueError, TypeError):
                    pass
                else:
                    raise AssertionError("attached")
            platform = drgn.Platform(drgn.Architecture.PPC64, drgn.PlatformFlags(0))
            other = drgn.Program(platform)
            with fm.open(path) as mem:
                try:
                    fm.attach(other, mem)
                except ValueError as e:
                    assert "platform" in str(e)
                else:
                    raise AssertionError("attached")
            del mem
            assert fm.attachment(prog) is None and fm.attachment(other) is None
            assert (descriptors(), mappings()) == before
            """
        )


class TestForks:
    @WAYS
    def test_both_sides_go_on(self, child, way):
        child(
            """
            prog = program()
            mem = attach(prog)
            never = fm.open(path, mmap="never")
            for _ in range(5):
                pid = os.fork()
                if pid == 0:
                    check(prog), check(mem), check(never)
                    mem.close()
                    check(prog)
                    del prog, mem
                    gc.collect()
                    os._exit(7)
                check(prog), check(mem), check(never)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            check(prog), check(mem), check(never)
            """,
            way,
        )

    def test_while_a_thread_reads(self, child):
        child(
            """
            never = fm.open(path, mmap="never")
            stop = threading.Event()
            def work():
                while not stop.is_set():
                    assert never.read(0x10000, 0x40000) == DATA
            thread = threading.Thread(target=work)
            thread.start()
            for _ in range(20):
                pid = os.fork()
                if pid == 0:
                    check(never)
                    os._exit(7)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            stop.set()
            thread.join()
            """
        )

    def test_child_that_exits_through_the_interpreter(self, child):
        output = child(
            """
            prog = program()
            mem = attach(prog)
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                check(prog)
                print("child", flush=True)
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            check(prog)
            """
        )
        assert output == "child\n"


class TestTheInterpretersEnd:
    @WAYS
    def test_with_everything_still_alive(self, child, way):
        child(
            """
            prog = program()
            mem = attach(prog)
            sys.modules["keep"] = [prog, mem]
            prog.cache["mem"] = mem
            prog.cache["prog"] = prog
            """,
            way,
        )

    @WAYS
    def test_with_a_reader_in_a_thread_that_goes_on(self, child, way):
        child(
            """
            prog = program()
            mem = attach(prog)
            def work():
                while True:
                    mem.read(0x10000, 0x40000)
                    prog.read(0x10000, 100)
            threading.Thread(target=work, daemon=True).start()
            """,
            way,
        )

    @WAYS
    def test_with_a_read_in_a_finalizer(self, child, way):
        child(
            """
            class Late:
                def __init__(self, prog, mem):
                    self.prog, self.mem = prog, mem
                def __del__(self):
                    assert self.prog.read(0x10000, 8) == DATA[:8]
                    assert self.mem.read(0x10000, 8) == DATA[:8]
            prog = program()
            late = Late(prog, attach(prog))
            late.itself = late
            """,
            way,
        )


class TestSignals:
    CUT = """
        os.truncate(path, 4096 + 0x2000)
        for reader in (mem, prog):
            try:
                reader.read(0x11ff0, 32)
            except fm.FaultError as e:
                assert e.address == 0x12000, hex(e.address)
            else:
                raise AssertionError("no fault")
            assert reader.read(0x10000, 0x2000) == DATA[:0x2000]
    """

    @pytest.mark.parametrize(
        "order",
        [
            "faulthandler.enable(); prog = program(); mem = attach(prog)",
            "prog = program(); mem = attach(prog)",
            "prog = program(); fm.open(path); faulthandler.enable(); "
            "mem = attach(prog)",
        ],
    )
    def test_a_cut_file_is_a_fault_whoever_handles_signals(self, child, order):
        child(order + "\n" + textwrap.dedent(self.CUT))

    def test_a_handler_put_on_top_is_noticed_after_1024_reads(self, child):
        # Between this and the last attach or open nothing tells us of it.
        code = """
            prog = program()
            mem = attach(prog)
            faulthandler.enable()
            for _ in range(1024):
                mem.read_u8(0x10000)
        """
        child(textwrap.dedent(code) + textwrap.dedent(self.CUT))

    @pytest.mark.parametrize("order", ["before", "after"])
    def test_sigbus_of_others_still_reaches_a_python_handler(self, child, order):
        code = f"""
            order = {order!r}
            def handler(signum, frame):
                print("handled", signum == signal.SIGBUS, flush=True)
            if order == "before":
                signal.signal(signal.SIGBUS, handler)
            prog = program()
            mem = attach(prog)
            if order == "after":
                signal.signal(signal.SIGBUS, handler)
                fm.open(path)
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGBUS)
        """
        code = textwrap.dedent(code) + textwrap.dedent(self.CUT)
        output = child(code + "os.kill(os.getpid(), signal.SIGBUS)\n")
        assert output == "handled True\n" * 4

    def test_sigbus_that_is_ignored_stays_ignored(self, child):
        code = """
            signal.signal(signal.SIGBUS, signal.SIG_IGN)
            prog = program()
            mem = attach(prog)
            os.kill(os.getpid(), signal.SIGBUS)
        """
        child(textwrap.dedent(code) + textwrap.dedent(self.CUT))

    def test_sigbus_of_others_still_reaches_their_handler(self, run_python, core_file):
        # faulthandler's, which says so and dies of it.
        code = """
import faulthandler, mmap, os, sys
import drgn_fastmem as fm
faulthandler.enable()
mem = fm.open(sys.argv[1])
with open(sys.argv[2], "w+b") as file:
    file.truncate(4096)
    mapping = mmap.mmap(file.fileno(), 4096)
    file.truncate(0)
    print(mem.read_u8(0x10000), flush=True)
    mapping[0]
"""
        path = core_file(CORE)
        result = run_python(code, path, path + ".other", check=False)
        assert result.returncode == -7
        assert result.stdout == f"{DATA[0]}\n"
        assert "Bus error" in result.stderr

    def test_faulthandler_above_and_below_ours_is_not_a_circle(
        self, run_python, core_file
    ):
        code = """
import faulthandler, os, signal, sys
import drgn_fastmem as fm
mem = fm.open(sys.argv[1])
faulthandler.enable()
again = fm.open(sys.argv[1])
os.kill(os.getpid(), signal.SIGBUS)
"""
        result = run_python(code, core_file(CORE), check=False)
        assert result.returncode == -7
        assert result.stderr.count("Bus error") == 1

    def test_sigbus_of_others_without_a_handler_kills(self, run_python, core_file):
        code = """
import os, signal, sys
import drgn_fastmem as fm
mem = fm.open(sys.argv[1])
os.kill(os.getpid(), signal.SIGBUS)
"""
        result = run_python(code, core_file(CORE), check=False)
        assert result.returncode == -7


class TestModules:
    def test_imported_anew_beside_the_old_one(self, child):
        child(
            """
            import importlib
            prog = program()
            mem = attach(prog)
            for name in [n for n in sys.modules if n.startswith("drgn_fastmem")]:
                del sys.modules[name]
            import drgn_fastmem as again
            assert again is not fm
            with again.open(path) as other:
                assert type(other) is not type(mem)
                check(other)
            check(prog)
            del fm
            gc.collect()
            check_again = prog.read(0x10000, 0x40000) == DATA
            assert check_again
            """
        )

    def test_in_a_subinterpreter_it_works_or_is_refused(self, child):
        child(
            """
            try:
                import _xxsubinterpreters as interpreters
            except ImportError:
                import _interpreters as interpreters
            number = interpreters.create()
            code = '''
            try:
                import drgn_fastmem._core as core
            except ImportError:
                pass
            else:
                mem = core.open(%r, "try", False, True, "")
                assert mem.read(0x10000, 0x40000)[:8] == %r
            ''' % (path, DATA[:8])
            import textwrap
            interpreters.run_string(number, textwrap.dedent(code))
            interpreters.destroy(number)
            with fm.open(path) as mem:
                check(mem)
            """
        )


def test_collecting_finds_no_cycle_that_keeps_a_mapping(core_file):
    path = core_file(CORE)
    gc.collect()
    prog = program_of(path)
    mem = fm.attach(prog)
    prog.cache["mine"] = mem
    del prog, mem
    gc.collect()
    with open("/proc/self/maps") as maps:
        assert not any(path in line for line in maps)
    assert not any(
        os.readlink(f"/proc/self/fd/{fd}") == path
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
    )
