# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The plugin as users meet it: drgn finds it by its entry point, DRGN_FASTMEM sets
it up, and whatever goes wrong, drgn goes on. Also ``python -m drgn_fastmem`` and the
Python of the README.

Each test starts a Python of its own, since a process loads plugins once.
"""

import logging
import math
import os
import re
import struct
import subprocess
import sys

import pytest

from conftest import CHECKOUT
import core_text
import drgn_fastmem as fm
from drgn_fastmem import _settings
from reference import Reference

drgn = pytest.importorskip("drgn", reason="the plugin is one of drgn")
if not hasattr(drgn.Program, "core_dump_path"):
    pytest.skip("this drgn has no plugins", allow_module_level=True)

CORE = """
core elf64 little x86_64
load vaddr=0x10000 paddr=0x1000 memsz=0x3000 offset=page fill=pattern:1
load vaddr=0x20000 memsz=0x2000 filesz=0x800 fill=pattern:2
"""
DATA = core_text.fill_bytes("pattern:1", 0x3000)
NUMBER = int.from_bytes(DATA[8:16], "little")

# The root of the page tables is in the file, so there is something to walk.
KERNEL = r"""
core elf64 little x86_64
note VMCOREINFO text="OSRELEASE=6.1.0\nPAGESIZE=4096\nSYMBOL(swapper_pg_dir)=ffffffff80001000\nNUMBER(phys_base)=0\n"
load vaddr=0xffff888000001000 paddr=0x1000 memsz=0x3000 offset=page fill=pattern:1
"""

# What the children below begin with. Records come out as "LOGGER LEVEL TEXT".
BEGIN = """
import logging, os, sys
logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
import drgn

path = sys.argv[1]

def program():
    prog = drgn.Program()
    prog.set_core_dump(path)
    return prog

def attachment(prog):
    import drgn_fastmem
    return drgn_fastmem.attachment(prog)
"""


@pytest.fixture
def child(run_python):
    def run(code, *args, setting=None, env={}, **kwargs):
        return run_python(
            BEGIN + code, *args, env={"DRGN_FASTMEM": setting, **env}, **kwargs
        )

    return run


# -- Being found ---------------------------------------------------------------


@pytest.mark.parametrize(
    "opened",
    [
        "prog = drgn.program_from_core_dump(path)",
        "prog = drgn.Program(); prog.set_core_dump(path)",
        "fd = os.open(path, os.O_RDONLY); prog = drgn.Program(); "
        "prog.set_core_dump(fd); os.close(fd)",
    ],
    ids=["program_from_core_dump", "set_core_dump", "descriptor"],
)
def test_drgn_finds_the_plugin_by_itself(child, core_file, opened):
    # A kernel's, since the first of these wants to know more of other programs.
    code = f"""
{opened}
print("drgn_fastmem" in sys.modules, attachment(prog))
print(prog.read_u64(0xffff888000001008))
"""
    process = child(code, core_file(KERNEL))
    assert process.stdout == f"True native\n{NUMBER}\n"
    assert "drgn_fastmem" not in process.stderr


def test_script_that_drgns_own_command_runs(core_file, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import drgn_fastmem\n"
        "print(drgn_fastmem.attachment(prog), prog.read_u64(0x10008))\n"
    )
    process = subprocess.run(
        [sys.executable, "-m", "drgn", "-q", "--no-default-symbols", "-c"]
        + [core_file(CORE), str(script)],
        env={**os.environ, "DRGN_FASTMEM": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.stdout == f"native {NUMBER}\n", process.stderr


def test_drgn_can_be_told_to_leave_it_out(child, core_file):
    code = """
prog = program()
print("drgn_fastmem" in sys.modules, attachment(prog), prog.read_u64(0x10008))
"""
    path = core_file(CORE)
    process = child(code, path, env={"DRGN_DISABLE_PLUGINS": "fastmem"})
    assert process.stdout == f"False None {NUMBER}\n"


def test_reads_are_counted_once_each(child, core_file):
    code = """
import drgn_fastmem
prog = program()
mem = drgn_fastmem.attach(prog)
for _ in range(5):
    prog.read_u64(0x10008)
prog.read(0x1000, 100, physical=True)
try:
    prog.read(0x20700, 0x200)
except drgn.FaultError as e:
    print(hex(e.address))
print(tuple(mem.stats)[:3], mem.stats.mapped_reads)
"""
    process = child(code, core_file(CORE))
    assert process.stdout == "0x20800\n(7, 140, 1) 6\n"


# -- Settings ------------------------------------------------------------------

SETTING = """
prog = program()
how = attachment(prog)
mem = None
if how is not None:
    import drgn_fastmem
    mem = drgn_fastmem.attach(prog)
    print(how, {s.access for s in mem.segments}, mem.translation)
else:
    print(how)
print(prog.read_u64(0x1008, physical=True))
"""
MMU = "x86-64, 4 levels"
OFF = "none: translation was turned off"


@pytest.mark.parametrize(
    "setting, result",
    [
        (None, f"native {{'mmap'}} {MMU}"),
        ("", f"native {{'mmap'}} {MMU}"),
        ("on", f"native {{'mmap'}} {MMU}"),
        (" , ,", f"native {{'mmap'}} {MMU}"),
        ("off", "None"),
        ("0", "None"),
        ("mmap=never,off", "None"),
        ("mmap=try", f"native {{'mmap'}} {MMU}"),
        ("mmap=never", f"native {{'pread'}} {MMU}"),
        ("mmap=always", f"native {{'mmap'}} {MMU}"),
        ("translate=auto", f"native {{'mmap'}} {MMU}"),
        ("translate=never", f"native {{'mmap'}} {OFF}"),
        ("mmap=never,translate=never", f"native {{'pread'}} {OFF}"),
        (" translate=never , mmap=never ", f"native {{'pread'}} {OFF}"),
        ("mmap=never,mmap=always", f"native {{'mmap'}} {MMU}"),
    ],
)
def test_setting(child, core_file, setting, result):
    process = child(SETTING, core_file(KERNEL), setting=setting)
    assert process.stdout == f"{result}\n{NUMBER}\n"
    assert process.stderr == ""


@pytest.mark.parametrize(
    "setting, max_age",
    [
        (None, math.inf),
        ("max_age=0", 0),
        ("max_age=10ms", 0.01),
        ("max_age=1.5ms", 0.0015),
        ("max_age=250us", 0.00025),
        ("max_age=2s", 2),
        ("max_age=0s", 0),
        ("max_age=inf", math.inf),
        ("mmap=never, max_age=10ms ,translate=never", 0.01),
        ("max_age=1s,max_age=10ms", 0.01),
    ],
)
def test_setting_of_the_maximum_age(child, core_file, setting, max_age):
    code = """
import drgn_fastmem
print(drgn_fastmem.attach(program()).max_age)
"""
    process = child(code, core_file(CORE), setting=setting)
    assert float(process.stdout) == pytest.approx(max_age)
    assert process.stderr == ""


NO_SETTING = "is not a setting (off, mmap=, translate=, max_age=, stats)"
NO_TIME = "a time is a number with us, ms or s, or 0, or inf"


@pytest.mark.parametrize(
    "setting, reason",
    [
        ("nonsense", f"'nonsense' {NO_SETTING}"),
        ("mmap", "'mmap': mmap is one of try, never, always"),
        ("mmap=yes", "'mmap=yes': mmap is one of try, never, always"),
        ("translate=always", "'translate=always': translate is one of auto, never"),
        ("off=1", f"'off=1' {NO_SETTING}"),
        ("MMAP=never", f"'MMAP=never' {NO_SETTING}"),
        ("mmap=never,what,stats", f"'what' {NO_SETTING}"),
        *(
            (f"max_age={time}", f"'max_age={time}': {NO_TIME}")
            for time in ("", "10", "ms", "10 ms", "-1ms", "1e3ms", "10min", "nan", ".5s")
        ),
    ],
)
def test_setting_that_makes_no_sense_is_one_line_and_drgn_goes_on(
    child, core_file, setting, reason
):
    code = """
for _ in range(3):
    prog = program()
    print(attachment(prog), prog.read_u64(0x10008))
"""
    process = child(code, core_file(CORE), setting=setting)
    assert process.stdout == f"None {NUMBER}\n" * 3
    assert process.stderr == (
        "drgn_fastmem WARNING DRGN_FASTMEM is ignored, and drgn left alone: "
        f"{reason}\n"
    )


def test_documentation_names_every_setting():
    text = _settings.__doc__
    readme = (CHECKOUT / "README.md").read_text()
    for name, values in _settings.CHOICES.items():
        assert f"{name}={'|'.join(values)}" in text
        assert f"{name}=" in readme
    for word in "off", "stats", "max_age=10ms":
        assert f"``{word}``" in text
        assert re.search(rf"DRGN_FASTMEM=\S*{word}", readme)


class TestStats:
    def test_are_printed_at_the_end(self, child, core_file):
        code = """
prog = program()
for _ in range(3):
    prog.read_u64(0x10008)
print("end")
"""
        path = core_file(CORE)
        process = child(code, path, setting="stats,mmap=never")
        assert process.stdout == "end\n"
        assert process.stderr == (
            f"drgn_fastmem: {path}: drgn_fastmem.Stats(reads=3, bytes=24, faults=0, "
            "syscalls=1, mapped_reads=0, sigbus=0, walks=0, tlb_hits=0, cache_hits=2, "
            "cache_misses=1, coalesced=0, gap_bytes=0)\n"
        )

    def test_of_each_program_also_of_those_that_are_gone(self, child, core_file):
        code = """
for path in sys.argv[1:]:
    prog = drgn.Program()
    prog.set_core_dump(path)
    prog.read_u8(0x10000)
    del prog
"""
        paths = [core_file(CORE, name) for name in ("one", "two")]
        lines = child(code, *paths, setting="stats").stderr.splitlines()
        assert len(lines) == 2
        for path, line in zip(paths, lines):
            assert line.startswith(f"drgn_fastmem: {path}: drgn_fastmem.Stats(reads=1,")

    def test_of_a_memory_that_the_script_closed_are_left_out(self, child, core_file):
        code = """
import drgn_fastmem
prog = program()
drgn_fastmem.attach(prog).close()
"""
        process = child(code, core_file(CORE), setting="stats")
        assert (process.stdout, process.stderr) == ("", "")

    def test_are_not_printed_unless_asked(self, child, core_file):
        assert child("program().read_u8(0x10000)", core_file(CORE)).stderr == ""


# -- What is left to drgn ------------------------------------------------------


def kdump(pages):
    """A kdump-compressed dump (makedumpfile's diskdump_mod.h) of x86-64 pages that
    are not compressed, with header version 3."""
    block = 4096
    names = ("Linux", "guest", "6.1.0", "#1", "x86_64", "")
    uts = b"".join(name.encode().ljust(65, b"\0") for name in names)
    # timestamp, status, block_size, sub_hdr_size, bitmap_blocks, max_mapnr, counts of
    # blocks, current_cpu, nr_cpus.
    numbers = struct.pack(
        "<QQIiiIIIIIIi", 0, 0, 0, block, 1, 2, *[len(pages)] * 3, 0, 0, 1
    )
    header = b"KDUMP   " + struct.pack("<i", 3) + uts + bytes(6) + numbers
    note = core_text.linux_note().desc
    note += b"NUMBER(phys_base)=0\nNUMBER(pgtable_l5_enabled)=0\n"
    # phys_base, dump_level, split, start_pfn, end_pfn, place of VMCOREINFO.
    sub_header = struct.pack("<QiiQQQQ", 0, 0, 0, 0, 0, block + 128, len(note))
    bitmap = bytes([(1 << len(pages)) - 1])
    parts = [header, sub_header.ljust(128, b"\0") + note, bitmap, bitmap]
    head = b"".join(part.ljust(block, b"\0") for part in parts)
    first = len(head) + 24 * len(pages)
    # offset, size, flags, page_flags.
    descriptors = [
        struct.pack("<QIIQ", first + i * block, block, 0, 0) for i in range(len(pages))
    ]
    return b"".join([head, *descriptors, *pages])


def flattened(data):
    """makedumpfile -F: big-endian pieces (offset, size) behind a block."""
    header = b"makedumpfile".ljust(16, b"\0") + struct.pack(">qq", 1, 1)
    piece = struct.pack(">qq", 0, len(data)) + data
    return header.ljust(4096, b"\0") + piece + struct.pack(">qq", -1, -1)


NEEDS_LIBKDUMPFILE = pytest.mark.skipif(
    not getattr(drgn, "_with_libkdumpfile", False),
    reason="this drgn was built without libkdumpfile",
)


class TestNotAttached:
    @NEEDS_LIBKDUMPFILE
    @pytest.mark.parametrize("flat", [False, True], ids=["compressed", "flattened"])
    def test_to_a_kdump_compressed_dump(self, child, tmp_path, flat):
        pages = [bytes([number]) * 4096 for number in (1, 2, 3)]
        data = kdump(pages)
        path = tmp_path / "vmcore"
        path.write_bytes(flattened(data) if flat else data)
        code = """
prog = program()
print(attachment(prog), prog.read(0x1ffc, 8, physical=True).hex())
"""
        process = child(code, path)
        assert process.stdout == "None 0202020203030303\n"
        what = "flattened makedumpfile" if flat else "kdump-compressed"
        assert process.stderr.splitlines()[-1].endswith(
            f"drgn_fastmem INFO not attached: {path}: not an ELF core file but "
            f"a {what} dump"
        )

    @NEEDS_LIBKDUMPFILE
    @pytest.mark.parametrize("value", ["1", "yes"])
    def test_where_drgn_was_told_to_use_libkdumpfile(self, child, core_file, value):
        code = "prog = program(); print(attachment(prog))"
        process = child(
            code, core_file(KERNEL), env={"DRGN_USE_LIBKDUMPFILE_FOR_ELF": value}
        )
        assert process.stdout == "None\n"
        assert process.stderr == (
            "drgn_fastmem INFO not attached: drgn was told to read this dump with "
            "libkdumpfile\n"
        )

    @pytest.mark.parametrize("value", ["", "0"])
    def test_but_it_is_where_that_was_taken_back(self, child, core_file, value):
        code = "prog = program(); print(attachment(prog))"
        process = child(
            code, core_file(KERNEL), env={"DRGN_USE_LIBKDUMPFILE_FOR_ELF": value}
        )
        assert process.stdout == "native\n"

    def test_to_a_running_process(self, child):
        code = """
import ctypes
text = ctypes.create_string_buffer(b"a string of its own")
prog = drgn.program_from_pid(os.getpid())
print(attachment(prog), prog.read_c_string(ctypes.addressof(text)))
"""
        process = child(code, "")
        assert process.stdout == "None b'a string of its own'\n"
        # drgn's own lines are about missing debug info.
        lines = [li for li in process.stderr.splitlines() if "drgn_fastmem INFO" in li]
        assert lines == [
            "drgn_fastmem INFO not attached: the memory of a running process is left "
            "to drgn"
        ]

    def test_to_a_program_that_has_only_segments_of_its_own(self, child, core_file):
        # Another file that is a core dump is open, and is none of its business.
        code = """
file = open(path, "rb")
prog = drgn.Program(drgn.host_platform)
prog.add_memory_segment(
    0x10000, 0x1000, lambda address, count, offset, physical: b"m" * count, False
)
print(attachment(prog), prog.read(0x10000, 4))
"""
        process = child(code, core_file(CORE))
        assert process.stdout == "None b'mmmm'\n"
        assert process.stderr == ""

    def test_segments_that_are_added_later_win(self, child, core_file):
        code = """
prog = program()
prog.add_memory_segment(
    0x10004, 8, lambda address, count, offset, physical: b"m" * count, False
)
print(attachment(prog), prog.read(0x10000, 16).hex())
"""
        process = child(code, core_file(CORE))
        expected = DATA[:4] + b"m" * 8 + DATA[12:16]
        assert process.stdout == f"native {expected.hex()}\n"


# -- What goes wrong -----------------------------------------------------------


class TestWhateverGoesWrong:
    HOOK = """
del os.environ["DRGN_FASTMEM"]
import drgn_fastmem._plugin as plugin
"""

    @pytest.mark.parametrize("now", ["another file", "deleted", "a directory"])
    def test_file_that_was_replaced_before_attaching(self, child, core_file, now):
        code = f"""
prog = program()
if {now!r} == "another file":
    os.rename(sys.argv[2], path)
else:
    os.unlink(path)
    if {now!r} == "a directory":
        os.mkdir(path)
{self.HOOK}
for _ in range(2):
    plugin.drgn_prog_set(prog)
    print(attachment(prog), prog.read_u64(0x10008))
"""
        other = core_file(CORE.replace("pattern:1", "pattern:9"), "other")
        process = child(code, core_file(CORE), other, setting="off")
        assert process.stdout == f"None {NUMBER}\n" * 2
        # Not drgn's memory, so there is nothing to warn of.
        assert process.stderr == 2 * (
            "drgn_fastmem INFO not attached: the file that the program reads is not "
            "among our open files\n"
        )

    def test_file_that_was_renamed_and_put_back(self, child, core_file):
        code = f"""
prog = program()
os.rename(path, path + ".away")
{self.HOOK}
plugin.drgn_prog_set(prog)
print(attachment(prog))
os.rename(path + ".away", path)
plugin.drgn_prog_set(prog)
print(attachment(prog), prog.read_u64(0x10008))
"""
        process = child(code, core_file(CORE), setting="off")
        assert process.stdout == f"None\nnative {NUMBER}\n"

    def test_file_that_is_written_anew_in_place_is_the_same_file(
        self, child, core_file
    ):
        code = f"""
prog = program()
with open(sys.argv[2], "rb") as new, open(path, "r+b") as file:
    file.write(new.read())
before = prog.read_u64(0x10008)
{self.HOOK}
plugin.drgn_prog_set(prog)
print(attachment(prog), prog.read_u64(0x10008) == before != {NUMBER})
"""
        other = core_file(CORE.replace("pattern:1", "pattern:9"), "other")
        process = child(code, core_file(CORE), other, setting="off")
        assert process.stdout == "native True\n"

    @pytest.mark.parametrize(
        "module", ["_core", "_plugin", "_attach", "_settings", "_target", "_fault"]
    )
    def test_module_that_can_not_be_imported(self, child, core_file, module):
        # None makes the import fail, as a library that is not there would.
        code = f"""
sys.modules["drgn_fastmem.{module}"] = None
for _ in range(2):
    prog = program()
    print(prog.read_u64(0x10008))
"""
        process = child(code, core_file(CORE))
        assert process.stdout == f"{NUMBER}\n" * 2
        assert process.stderr.startswith(
            "drgn.plugins WARNING failed to load 'fastmem = drgn_fastmem._plugin':\n"
        )
        assert process.stderr.count("failed to load") == 1
        assert f"drgn_fastmem.{module}" in process.stderr

    @pytest.mark.parametrize(
        "error, line",
        [
            ("RuntimeError('boom')", "RuntimeError: boom"),
            ("OSError(5, 'I/O error')", "OSError: [Errno 5] I/O error"),
            ("MemoryError()", "MemoryError: "),
            ("drgn.FaultError('text', 1)", "FaultError: text: 0x1"),
        ],
    )
    def test_any_exception_is_one_warning(self, child, core_file, error, line):
        code = f"""
import drgn_fastmem._core
def fail(*args):
    raise {error}
drgn_fastmem._core.open = fail
for _ in range(3):
    prog = program()
    print(attachment(prog), prog.read_u64(0x10008))
"""
        process = child(code, core_file(CORE))
        assert process.stdout == f"None {NUMBER}\n" * 3
        assert process.stderr == f"drgn_fastmem WARNING not attached: {line}\n"

    def test_mapping_that_must_be_but_can_not(self, child, core_file):
        code = """
import resource
with open("/proc/self/statm") as statm:
    size = int(statm.read().split()[0]) * resource.getpagesize()
limit = size + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
prog = program()
how = attachment(prog)
if how:
    import drgn_fastmem
    how = how, drgn_fastmem.attach(prog).segments[1].access
print(how, prog.read_u64(0x10008), prog.read_u64(0xfffffff8 + 0x100000))
"""
        path = core_file(
            CORE + "load vaddr=0x100000 memsz=0x100000000 offset=page fill=hole\n"
        )
        process = child(code, path, setting="mmap=always")
        assert process.stdout == f"None {NUMBER} 0\n"
        assert process.stderr == (
            "drgn_fastmem WARNING not attached: OSError: [Errno 12] Cannot allocate "
            f"memory: '{path}'\n"
        )
        # Some of it may be mapped; what can't be is read with pread.
        process = child(code, path)
        assert re.fullmatch(
            rf"\('native', '(mmap|pread)'\) {NUMBER} 0\n", process.stdout
        )
        assert process.stderr == ""

    def test_programs_own_exceptions_are_not_ours(self, child, tmp_path):
        code = """
try:
    program()
except Exception as e:
    print(type(e).__name__)
"""
        path = tmp_path / "none"
        process = child(code, path)
        assert process.stdout == "FileNotFoundError\n"
        assert process.stderr == ""

    def test_logger_is_silent_below_warnings_by_default(self, run_python):
        # Nothing is wrong, so there is nothing for a user to see.
        code = """
import os, drgn
prog = drgn.Program()
prog.set_pid(os.getpid())
"""
        process = run_python(code, env={"DRGN_FASTMEM": ""})
        assert (process.stdout, process.stderr) == ("", "")
        assert logging.getLogger("drgn_fastmem").handlers == []


# -- python -m drgn_fastmem ----------------------------------------------------


class TestCommand:
    @pytest.fixture
    def command(self):
        def run(*args):
            return subprocess.run(
                [sys.executable, "-m", "drgn_fastmem", *args],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
            )

        return run

    @property
    def first_line(self):
        ours, theirs = fm.__version__, drgn.__version__
        return f"drgn-fastmem {ours}, drgn {theirs}, native callback"

    def test_core_of_a_process(self, command, core_file):
        path = core_file(CORE)
        process = command(path)
        assert process.stdout.splitlines() == [
            self.first_line,
            f"{path}: 64 bits, little-endian",
            "page tables: none: not the memory of a 64-bit kernel",
            "           address       size           physical kind     access",
            "           0x10000   12.0 KiB             0x1000 user     mmap",
            "           0x20000    8.0 KiB                  - user     mmap",
            "mmap: 20.0 KiB",
        ]
        assert (process.returncode, process.stderr) == (0, "")

    def test_kernel_dump_without_mapping_and_with_a_limit(self, command, core_file):
        more = "load vaddr=0xffffffff90000000 memsz=0x80000000 filesz=0\n"
        path = core_file(KERNEL + more)
        process = command("--mmap", "never", "--limit=1", path)
        assert process.stdout.splitlines() == [
            self.first_line,
            f"{path}: 64 bits, little-endian",
            f"page tables: {MMU}",
            "           address       size           physical kind     access",
            "0xffff888000001000   12.0 KiB             0x1000 ram      pread",
            "... and 1 more",
            "pread: 2.0 GiB",
        ]
        assert process.returncode == 0

    def test_32_bits_big_endian(self, command, core_file):
        path = core_file("core elf32 big ppc64\nload vaddr=0x1000 memsz=0x10")
        assert f"{path}: 32 bits, big-endian\n" in command(path).stdout

    def test_file_that_is_none_of_ours(self, command, tmp_path):
        missing, text = str(tmp_path / "missing"), tmp_path / "text"
        text.write_text("text" * 100)
        for path, reason in (
            (missing, f"[Errno 2] No such file or directory: '{missing}'"),
            (str(text), f"{text}: not an ELF core file"),
        ):
            process = command(path)
            assert process.returncode == 1
            assert process.stdout == self.first_line + "\n"
            assert process.stderr == f"{path} can't be read: {reason}\n"

    def test_without_drgn(self, run_python, core_file):
        code = """
import sys
sys.modules["drgn"] = sys.modules["_drgn"] = None
import drgn_fastmem.__main__ as command
sys.exit(command.main(sys.argv[1:]))
"""
        process = run_python(code, core_file(CORE))
        assert process.stdout.startswith(
            f"drgn-fastmem {fm.__version__}, drgn not installed ("
        )
        assert process.stdout.endswith("mmap: 20.0 KiB\n")

    def test_wrong_arguments(self, command):
        process = command("--mmap=maybe")
        assert process.returncode == 2
        assert "invalid choice: 'maybe'" in process.stderr


# -- The README ----------------------------------------------------------------


def readme_blocks():
    text = (CHECKOUT / "README.md").read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class TestReadme:
    def test_has_the_blocks_that_are_tested_here(self):
        blocks = readme_blocks()
        assert len(blocks) == 2
        assert "for_each_task" in blocks[0]
        assert "fm.open" in blocks[1]

    def test_script_for_a_kernel_up_to_the_first_that_needs_debug_info(
        self, child, core_file, tmp_path
    ):
        # Tasks need a kernel's types; here is none.
        block = readme_blocks()[0]
        compile(block, "README.md", "exec")
        before, found, _ = block.partition("prog.load_default_debug_info()")
        assert found
        core_file(KERNEL, "vmcore")
        code = before + "print(attachment(prog), callable(for_each_task))"
        process = child(code, "", cwd=tmp_path)
        assert process.stdout == "native True\n"

    def test_script_for_a_memory_as_it_is(self, child, core_file, tmp_path):
        path = core_file(CORE, "vmcore")
        code = "path = 'vmcore'\nprog = program()\n" + readme_blocks()[1]
        code += "\nread = mem.read(0x10000, 8)"
        code += "\nprint(attachment(prog), prog.read(0x10000, 8) == read)"
        process = child(code, "", cwd=tmp_path, setting="off")
        with fm.open(path) as mem, Reference(path) as reference:
            segment = mem.segments[0]
            expected = [
                repr(segment),
                str(reference.read_u64(segment.address)),
                str(reference.read(0x1000, 64, physical=True)),
                "drgn_fastmem.Stats(reads=2, bytes=72, faults=0, syscalls=3, "
                "mapped_reads=2, sigbus=0, walks=0, tlb_hits=0, cache_hits=0, "
                "cache_misses=0, coalesced=0, gap_bytes=0)",
                str([reference.read(segment.address + n, s) for n, s in ((0, 16), (256, 4))]),
                "native True",
            ]
        assert segment.access == "mmap"
        assert process.stdout.splitlines() == expected
        assert process.stderr == ""
