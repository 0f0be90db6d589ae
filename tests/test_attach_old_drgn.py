# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""A drgn without plugins, C API and core_dump_path: 0.0.22, as Debian 12 has it.

Attaching goes through a Python callable there, and the file is looked for among our
open ones. The code runs in an environment of its own in build/ with Debian's Python,
made by venvs.py. What the answers have to be says drgn itself, not attached, and
reference.py.
"""

from dataclasses import replace
import os
from pathlib import Path
import random
import subprocess
import textwrap

import pytest

from compare import compare, interesting_reads
import core_text
import page_tables
from reference import Reference
import venvs

PYTHON = "/usr/bin/python3"
VERSION = "0.0.22"


def debians_drgn():
    """The version of Debian's drgn, None if it is not installed."""
    try:
        process = subprocess.run(
            [PYTHON, "-I", "-c"]
            + ["import drgn, importlib.metadata as m; print(m.version('drgn'))"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except OSError:
        return None
    return process.stdout.strip() if process.returncode == 0 else None


CORE = r"""
core elf64 little x86_64
load vaddr=0x10000 paddr=0x1000 memsz=0x3000 offset=page fill=pattern:1
load vaddr=0x20000 paddr=0x8000 memsz=0x2000 filesz=0x800 fill=strings:2
load vaddr=0x30000 memsz=0x20 fill="text:twelve bytes\0and then some more."
"""
DATA = core_text.fill_bytes("pattern:1", 0x3000)

# What the children below begin with.
BEGIN = """
import gc, logging, os, random, sys
logging.basicConfig(level=logging.DEBUG, format="%(name)s %(levelname)s %(message)s")
import drgn, drgn_fastmem as fm
from compare import Read, compare, interesting_reads, outcome
from reference import Reference

path = sys.argv[1]

def program(path=path):
    prog = drgn.Program()
    prog.set_core_dump(path)
    assert fm.attachment(prog) is None
    return prog

def refused(function, *args, error=ValueError, **kwargs):
    try:
        function(*args, **kwargs)
    except error as e:
        return str(e)
    raise AssertionError("it was not refused")

# A Program with the method that this drgn lacks, done as it reads strings.
class Reader:
    def __init__(self, prog):
        self.prog = prog
        self.char = prog.int_type("char", 1, True, "little")

    def __getattr__(self, name):
        return getattr(self.prog, name)

    def read_c_string(self, address, physical=False, *, max_size):
        if not physical and max_size:
            type = self.prog.array_type(self.char, max_size)
            return drgn.Object(self.prog, type, address=address).string_()
        string = b""
        while len(string) < max_size:
            byte = self.prog.read_u8((address + len(string)) % 2**64, physical)
            if byte == 0:
                break
            string += bytes([byte])
        return string

def mappings():
    gc.collect()
    with open("/proc/self/maps") as maps:
        return sum(path in line for line in maps)

def descriptors():
    gc.collect()
    return sorted(os.listdir("/proc/self/fd"))
"""


@pytest.fixture(scope="module")
def python():
    found = debians_drgn()
    if found is None:
        pytest.skip(f"{PYTHON} has no drgn (Debian package python3-drgn)")
    if found != VERSION:
        pytest.skip(f"{PYTHON} has drgn {found}; this is about {VERSION}")
    return venvs.make("venv-debian", [], python=PYTHON, system_packages=True)


@pytest.fixture
def child(python):
    def run(code, *args, env={}):
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), **env}
        process = subprocess.run(
            [str(python), "-c", BEGIN + textwrap.dedent(code), *map(str, args)],
            env={k: v for k, v in environment.items() if v is not None},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return process

    return run


def test_the_environment_has_this_package_and_the_old_drgn(child, core_file):
    code = """
    from importlib import metadata
    import _drgn
    print(metadata.version("drgn"), fm.__version__)
    print(_drgn.__file__)
    print(fm.__file__)
    print(fm.FaultError is drgn.FaultError)
    print(hasattr(drgn.Program, "core_dump_path"))
    """
    import drgn_fastmem

    lines = child(code, core_file(CORE)).stdout.splitlines()
    assert lines[0] == f"{VERSION} {drgn_fastmem.__version__}"
    assert lines[1].startswith("/usr/lib/python3/dist-packages/_drgn.")
    assert lines[2].startswith(str(venvs.CHECKOUT / "build" / "venv-debian"))
    assert lines[3:] == ["True", "False"]


@pytest.mark.parametrize("setting", [None, "", "stats", "off"])
def test_nothing_is_attached_by_itself(child, core_file, setting):
    code = """
    prog = program()
    print(fm.attachment(prog), prog.read_u8(0x10000))
    # By hand it is, whatever the variable says: that is for the plugin.
    fm.attach(prog)
    print(fm.attachment(prog), prog.read_u8(0x10000))
    """
    process = child(code, core_file(CORE), env={"DRGN_FASTMEM": setting})
    assert process.stdout == f"None {DATA[0]}\ncallable {DATA[0]}\n"


@pytest.mark.parametrize("native", [True, False])
def test_attaching_falls_back_to_a_callable_and_is_used(child, core_file, native):
    code = f"""
    prog = program()
    mem = fm.attach(prog, _native={native})
    print(fm.attachment(prog))
    mem.reset_stats()
    assert prog.read(0x10000, 0x3000) == prog.read(0x1000, 0x3000, physical=True)
    print(prog.read(0x10004, 8).hex())
    print(prog.read_u64(0x10008), prog.read_u32(0x10008), prog.read_u16(0x10008))
    print(prog.read_word(0x10009), prog.read_u8(0x3fff, True))
    print(mem.stats.reads, mem.stats.bytes, mem.stats.mapped_reads)
    """
    process = child(code, core_file(CORE))

    def number(first, size):
        return int.from_bytes(DATA[first : first + size], "little")

    assert process.stdout.splitlines() == [
        "callable",
        DATA[4:12].hex(),
        f"{number(8, 8)} {number(8, 4)} {number(8, 2)}",
        f"{number(9, 8)} {DATA[-1]}",
        f"8 {0x6000 + 8 + 8 + 4 + 2 + 8 + 1} 8",
    ]
    reason = "drgn_fastmem DEBUG no native callback: this drgn does not export "
    assert process.stderr.startswith(reason) == native
    assert len(process.stderr.splitlines()) == native


# Every way to read random places, by everybody who has to agree.
RANDOM = """
import contextlib
count = int(sys.argv[2])
seen = {}
with contextlib.ExitStack() as stack:
    reference = stack.enter_context(Reference(path))
    memory = stack.enter_context(fm.open(path))
    attached = {}
    for mmap in "try", "never":
        prog = program()
        fm.attach(prog, mmap=mmap)
        assert fm.attachment(prog) == "callable"
        attached[mmap] = Reader(prog)
    alone = {"drgn alone": Reader(program())}
    if len(sys.argv) > 3:
        # One that has to be noticed.
        class Defective:
            def __getattr__(self, name):
                def read(address, *args, **kwargs):
                    return getattr(memory, name)(address ^ 1, *args, **kwargs)
                return read
        attached["defective"] = Defective()
    for read in interesting_reads(reference, random.Random(3), count):
        kind = compare(
            reference, alone, {"open": memory}, read, attached=attached
        ).kind
        seen[kind] = seen.get(kind, 0) + 1
print(seen["value"], seen["fault"])
"""

CORES = {
    "process": CORE,
    "kernel of a machine without walker": """
        core elf64 little riscv
        linux
        load vaddr=0xffff888000000000 paddr=0 memsz=0x4000 filesz=0x3000 offset=page
        load vaddr=0xffffffff81000000 paddr=0x1000000 memsz=0x2001 fill=strings:5
        load vaddr=0xffffc90000000000 memsz=0x2000
        """,
    "overlaps": """
        core elf64 little riscv
        load vaddr=0x1000 paddr=0x1000 memsz=0x4000 filesz=0x3800 fill=pattern:1
        load vaddr=0x2800 paddr=0x2000 memsz=0x1000 filesz=0x10 fill=pattern:2
        load vaddr=0x1ff8 paddr=0x6000 memsz=0x10 fill=strings:3
        load vaddr=0xfffffffffffff000 paddr=0x9000 memsz=0x1000 fill=pattern:4
        load vaddr=0 memsz=0x800 fill=pattern:5
        """,
    "32 bits, big-endian": """
        core elf32 big ppc64
        load vaddr=0xc0000000 paddr=0 memsz=0x2000 filesz=0x1234 fill=strings:1
        load vaddr=0xfffffff0 paddr=0x5000 memsz=0x10 fill=pattern:2
        """,
    "cut": CORE + "file size=0x2800\n",
    "cut kernel": """
        core elf64 little riscv
        linux
        load vaddr=0x1000 paddr=0x1000 memsz=0x3000 filesz=0x2000 offset=page
        load vaddr=0x4000 paddr=0x8000 memsz=0x1000 filesz=0
        load vaddr=0x5000 paddr=0x10000 memsz=0x1000 filesz=0x800
        file size=0x2345
        """,
    "all addresses": """
        core elf64 little riscv
        linux
        load vaddr=0 paddr=0 memsz=0xffffffffffffffff filesz=0x2000 fill=pattern:1
        load vaddr=0xffffffffffffffff paddr=0xffffffffffffffff memsz=1 filesz=0
        """,
}


@pytest.mark.parametrize("text", CORES.values(), ids=CORES)
def test_random_reads_are_the_same_with_and_without(child, core_file, text):
    values, faults = map(int, child(RANDOM, core_file(text), 2000).stdout.split())
    assert values + faults == 2000
    assert values > 300


def test_random_reads_would_notice_a_wrong_byte(child, core_file):
    with pytest.raises(AssertionError, match="wrong: defective"):
        child(RANDOM, core_file(CORE), 200, "defective")


@pytest.mark.parametrize("text", CORES.values(), ids=CORES)
def test_what_is_laid_over_an_old_drgn_is_right_over_this_one(core_file, text):
    # So that there is a test where Debian's drgn is not.
    drgn = pytest.importorskip("drgn")
    import drgn_fastmem as fm
    from drgn_fastmem import _core

    path = core_file(text)

    def program():
        prog = drgn.Program()
        prog.set_core_dump(path)
        return prog

    attached = program()
    with Reference(path) as reference, fm.open(path) as memory:
        _core.attach(attached, memory, None, False)
        assert fm.attachment(attached) == "callable"
        alone = {"drgn alone": program()}
        for read in interesting_reads(reference, random.Random(4), 2000):
            faults = memory.stats.faults
            compare(reference, alone, {}, read, attached={"attached": attached})
            # What is a fault was left to drgn.
            assert memory.stats.faults == faults, read
        assert memory.stats.reads > 300


def test_tags_of_addresses_are_what_they_are_to_drgn(child, core_file):
    # This drgn does not know them yet, and looks the address up before we see it.
    code = """
    alone, attached = program(), program()
    fm.attach(attached)
    seen = set()
    for tag in 0, 0x5a, 0xff:
        for address in 0x1000, 0x80000000001000, 0x80000000002ff8:
            read = Read("read_u64", tag << 56 | address)
            expected = outcome(alone, read)
            assert outcome(attached, read) == expected, str(read)
            seen.add(expected.kind)
    print(sorted(seen))
    """
    path = core_file(
        """
        core elf64 little aarch64
        load vaddr=0xff80000000001000 paddr=0x40000000 memsz=0x2000 fill=strings:1
        load vaddr=0x1000 memsz=0x1800
        """
    )
    assert child(code, path).stdout == "['fault', 'value']\n"


def test_page_tables_stay_drgns(child, tmp_path):
    # It has to raise what is a fault in them itself. It reads them through us.
    tables = page_tables.parse(
        """
        mmu x86_64 levels=4
        ram 0 size=0x80000
        map 0xffffc90000000000 to 0x40000 size=4K count=3
        map 0xffffc90000004000 to 0x9000000 size=4K
        map 0xffffc90000200000 to 0x0 size=2M
        """
    )
    path = tmp_path / "core"
    # This drgn wants the root in a segment of the kernel's image.
    image = core_text.Load(
        page_tables.START_KERNEL_MAP,
        tables.ram[0][1],
        paddr=0,
        offset="page",
        fill="hole",
    )
    core = tables.core(direct_map=True)
    core = replace(core, parts=(*core.parts[:-1], image))
    tables.core = lambda direct_map: core
    tables.write(str(path))
    code = """
    alone, attached = Reader(program()), Reader(program())
    mem = fm.attach(attached.prog)
    print(fm.attachment(attached.prog), mem.translation)
    rng = random.Random(1)
    seen = set()
    for _ in range(1500):
        address = 0xffffc90000000000 + rng.choice(
            [0, 0x1000, 0x2ff8, 0x3000, 0x4000, 0x200000, 0x27fff0, 0x400000]
        ) + rng.randrange(-16, 0x1000)
        read = rng.choice([
            Read("read", address, rng.randrange(0x2000)),
            Read("read_u64", address),
            Read("read_c_string", address, 100),
        ])
        expected = outcome(alone, read)
        assert outcome(attached, read) == expected, (str(read), expected)
        seen.add(expected.kind)
    print(sorted(seen), mem.stats.walks, mem.stats.reads > 1000)
    """
    assert child(code, path).stdout.splitlines() == [
        "callable x86-64, 4 levels",
        "['fault', 'value'] 0 True",
    ]


def test_c_strings(child, core_file):
    # This drgn reads them as objects only.
    code = """
    def string(prog, address, size=None):
        char = prog.int_type("char", 1, True, "little")
        if size is None:
            return drgn.Object(prog, prog.pointer_type(char), address).string_()
        return drgn.Object(prog, prog.array_type(char, size), address=address).string_()

    alone, attached = program(), program()
    fm.attach(attached)
    for prog in alone, attached:
        print(string(prog, 0x30000), string(prog, 0x3000d, 3), string(prog, 0x3000c))
        assert string(prog, 0x20000) == string(alone, 0x20000)
        try:
            string(prog, 0x3000d)
        except drgn.FaultError as e:
            print(hex(e.address))
    """
    expected = "b'twelve bytes' b'and' b''\n0x30020\n"
    assert child(code, core_file(CORE)).stdout == expected * 2


# What scripts do to an object whose memory can't be read.
USES = """
def uses(prog, address):
    long = prog.int_type("unsigned long", 8, False, "little")
    char = prog.int_type("char", 1, True, "little")
    struct = prog.struct_type("s", 8, (drgn.TypeMember(long, "x"),))
    number = drgn.Object(prog, long, address=address)
    pointer = drgn.Object(prog, prog.pointer_type(struct), address)
    array = drgn.Object(prog, prog.array_type(char, 10), address=address)
    return {
        "read": lambda: prog.read(address, 8),
        "read_u8": lambda: prog.read_u8(address),
        "read_u64": lambda: prog.read_u64(address),
        "read_word": lambda: prog.read_word(address),
        "value_": number.value_,
        "read_": number.read_,
        "int": lambda: int(number),
        "bool": lambda: bool(number),
        "==": lambda: number == 5,
        "+": lambda: (number + 1).value_(),
        "str": lambda: str(number),
        "member": lambda: pointer.x.value_(),
        "item": lambda: array[3].value_(),
        "array": array.value_,
        "string_": array.string_,
    }

def result(function):
    try:
        return str, str(function())
    except Exception as e:
        return type(e), getattr(e, "address", None)
"""


def test_faults_are_drgns_whatever_a_script_does(child, core_file):
    # This drgn makes a plain Exception of what a callable raises.
    code = """
    alone, attached = program(), program()
    fm.attach(attached)
    kinds = {}
    for address in 0x10010, 0x12ffa, 0x20100, 0x207fc, 0x20900, 0x40000, 0x30018:
        expected, found = uses(alone, address), uses(attached, address)
        for name in expected:
            right = result(expected[name])
            assert result(found[name]) == right, (name, hex(address), right)
            kinds.setdefault(name, set()).add(right[0])
    print(all(kind == {str, drgn.FaultError} for kind in kinds.values()), len(kinds))

    # With all of the segment laid over drgn's, to see that it would be noticed.
    from drgn_fastmem import _attach, _core
    assert not _attach._callables_can_fault()
    careless = program()
    _core.attach(careless, fm.open(path), None, True)
    for name, use in uses(careless, 0x20900).items():
        if result(use)[0] is not drgn.FaultError:
            kinds.pop(name)
    print(sorted(kinds))
    """
    process = child(USES + textwrap.dedent(code), core_file(CORE))
    assert process.stdout == "True 15\n['read']\n"


def test_file_that_is_cut_after_attaching_gives_an_exception(child, core_file):
    # A deliberate difference (docs/differences.md): not a FaultError everywhere.
    code = """
    prog = program()
    mem = fm.attach(prog)
    os.truncate(path, 0x2000)
    print(refused(prog.read, 0x11ffc, 8, error=drgn.FaultError).split(": ")[-1])
    print(refused(prog.read_u64, 0x12000, error=Exception).split(": ")[0])
    print(refused(mem.read_u64, 0x12000, error=fm.FaultError).split(": ")[-1])
    print(prog.read_u64(0x10008))
    """
    value = int.from_bytes(DATA[8:16], "little")
    lines = child(code, core_file(CORE)).stdout.splitlines()
    # The file has 0x1000 bytes of headers.
    assert lines == ["0x11ffc", "_drgn.FaultError", "0x12000", str(value)]


class TestTheTarget:
    """Which file a Program reads, found through /proc/self/fd."""

    def test_is_found_whatever_happened_to_its_name(self, child, core_file):
        code = """
        for change in "nothing", "renamed", "deleted":
            prog = program()
            if change == "renamed":
                os.rename(path, path + ".away")
            elif change == "deleted":
                os.unlink(path)
            mem = fm.attach(prog)
            print(fm.attachment(prog), prog.read_u8(0x10000), mem.path.split()[0])
            if change == "renamed":
                os.rename(path + ".away", path)
            del prog, mem
            gc.collect()
        """
        expected = f"callable {DATA[0]} descriptor\n"
        assert child(code, core_file(CORE)).stdout == expected * 3

    def test_is_one_file_however_often_it_is_open(self, child, core_file):
        code = """
        again = open(path, "rb")
        os.link(path, path + ".link")
        link = open(path + ".link", "rb")
        progs = [program(), program()]
        for prog in progs:
            fm.attach(prog)
            print(fm.attachment(prog), prog.read_u8(0x10000))
        """
        expected = f"callable {DATA[0]}\n"
        assert child(code, core_file(CORE)).stdout == expected * 2

    def test_is_not_guessed_where_two_files_are_open(self, child, core_file):
        code = """
        one, two = program(), program(sys.argv[2])
        print(refused(fm.attach, one))
        print(fm.attachment(one), one.read_u8(0x10000), two.read_u8(0x10000))
        for prog, path in (one, path), (two, sys.argv[2]):
            mem = fm.open(path)
            assert fm.attach(prog, mem) is mem
            print(fm.attachment(prog), prog.read_u8(0x10000))
        """
        other = core_text.fill_bytes("pattern:9", 0x3000)[0]
        paths = core_file(CORE), core_file(CORE.replace("pattern:1", "pattern:9"), "2")
        assert child(code, *paths).stdout.splitlines() == [
            "more than one open file could be the one that the program reads; say "
            "which: attach(prog, drgn_fastmem.open(path))",
            f"None {DATA[0]} {other}",
            f"callable {DATA[0]}",
            f"callable {other}",
        ]

    def test_other_open_files_do_not_count(self, child, core_file):
        code = """
        others = [open("/proc/self/exe", "rb"), open(sys.argv[2], "rb"), os.pipe()]
        prog = program()
        fm.attach(prog)
        print(fm.attachment(prog))
        """
        assert child(code, core_file(CORE), __file__).stdout == "callable\n"

    def test_that_is_not_there_is_refused(self, child, core_file):
        code = """
        print(refused(fm.attach, drgn.Program()))
        own = drgn.Program(drgn.host_platform)
        own.add_memory_segment(
            0x1000, 16, lambda address, count, offset, physical: b"m" * count, False
        )
        print(refused(fm.attach, own), own.read(0x1000, 4), fm.attachment(own))
        live = drgn.program_from_pid(os.getpid())
        print(refused(fm.attach, live))
        """
        lines = child(code, core_file(CORE)).stdout.splitlines()
        assert lines == [
            "the program has no target yet",
            "the file that the program reads is not among our open files b'mmmm' None",
            "the memory of a running process is left to drgn",
        ]


class TestLifetime:
    def test_of_what_the_user_closes_and_clears(self, child, core_file):
        code = """
        prog = program()
        mem = fm.attach(prog)
        expected = prog.read(0x10000, 0x3000)
        assert fm.attach(prog) is mem and fm.attach(prog, mem) is mem
        mem.close()
        prog.cache.clear()
        del mem
        gc.collect()
        assert prog.read(0x10000, 0x3000) == expected
        again = fm.attach(prog)
        assert not again.closed and again.read(0x10000, 0x3000) == expected
        print(refused(fm.attach, prog, fm.open(path)))
        """
        process = child(code, core_file(CORE))
        assert process.stdout == "the program is attached to another Memory\n"

    def test_of_mappings_and_descriptors(self, child, core_file):
        code = """
        before = descriptors()
        for order in "prog first", "memory first", "closed":
            prog = program()
            mem = fm.attach(prog)
            prog.cache["mine"] = mem
            assert mappings() > 0
            prog.cache.clear()
            if order == "prog first":
                del prog
                assert mem.read_u8(0x10000) == mem.read_u8(0x1000, True)
                del mem
            else:
                if order == "closed":
                    mem.close()
                del mem
                assert mappings() > 0
                prog.read_u8(0x10000)
                del prog
            assert mappings() == 0, order
            assert descriptors() == before, order
        """
        child(code, core_file(CORE))

    def test_up_to_the_end_of_the_interpreter(self, child, core_file):
        code = """
        class Late:
            def __init__(self, prog):
                self.prog = prog
            def __del__(self):
                print(self.prog.read_u8(0x10000))
        prog = program()
        mem = fm.attach(prog)
        sys.modules["keep"] = [prog, mem]
        prog.cache["prog"] = prog
        late = Late(prog)
        late.itself = late
        """
        assert child(code, core_file(CORE)).stdout == f"{DATA[0]}\n"

    def test_of_one_that_is_attached_natively_by_force(self, child, core_file):
        # What the fallback rests on: the checks fail before anything is added.
        code = """
        import _drgn
        from drgn_fastmem import _core
        prog = program()
        expected = prog.read(0x10000, 0x3000)
        mem = fm.open(path)
        print(refused(_core.attach, prog, mem, _drgn.__file__, True))
        print(refused(_core.attach, prog, mem, "/nowhere/_drgn.so", True))
        print(fm.attachment(prog), prog.read(0x10000, 0x3000) == expected)
        print(mem.stats.reads)
        fm.attach(prog, mem)
        print(fm.attachment(prog), prog.read(0x10000, 0x3000) == expected)
        """
        lines = child(code, core_file(CORE)).stdout.splitlines()
        assert lines[0].startswith("this drgn does not export drgn_program_add_")
        assert lines[1:] == [
            "drgn's extension module is not loaded",
            "None True",
            "0",
            "callable True",
        ]


def test_command_says_how_it_would_be_attached(python, core_file):
    process = subprocess.run(
        [str(python), "-m", "drgn_fastmem", core_file(CORE)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    line = process.stdout.splitlines()[0]
    assert line.endswith(
        f"drgn {VERSION}, C callable (it exports no C API)"
    ), process.stderr
