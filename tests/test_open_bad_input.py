# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Files that are no core files, or broken ones: a clear error, or a fault at the first
address that can't be read. drgn goes on working, and so does Python."""

import errno
import os
import random
import re
import shutil
import socket
import stat
import subprocess
import sys

import pytest

from compare import Read, outcome
import core_text
from core_text import parse
import drgn_fastmem as fm
from reference import Reference

PAGE = 4096

GOOD = """
core elf64 little x86_64
load vaddr=0x10000 memsz=0x3000 fill=pattern:1
load vaddr=0x20000 memsz=0x2000 filesz=0x1000 fill=pattern:2
"""


@pytest.fixture(autouse=True)
def everything_still_works_afterwards(tmp_path):
    yield
    path = tmp_path / "good-after"
    core_text.write(path, GOOD)
    expected = core_text.fill_bytes("pattern:1", 0x3000)
    with fm.open(path) as mem:
        assert mem.read(0x10000, 0x3000) == expected
    drgn = pytest.importorskip("drgn")
    prog = drgn.Program()
    prog.set_core_dump(path)
    fm.attach(prog)
    assert prog.read(0x10000, 0x3000) == expected


def open_error(file, **kwargs):
    with pytest.raises((OSError, ValueError, TypeError, OverflowError)) as info:
        fm.open(file, **kwargs)
    return info.value


class TestWhatIsNoCoreFile:
    @pytest.mark.parametrize(
        "data, reason",
        [
            (b"", "it is empty"),
            (b"\x7f", "not an ELF core file"),
            (b"\x7fELF", "not an ELF core file"),
            (b"plain text\n" * 100, "not an ELF core file"),
            (b"KDUMP   " + bytes(8192), "a kdump-compressed dump"),
            (b"DISKDUMP" + bytes(8192), "a diskdump dump"),
            (b"makedumpfile" + bytes(8192), "a flattened makedumpfile dump"),
        ],
    )
    def test_is_refused_by_its_contents(self, tmp_path, data, reason):
        path = tmp_path / "file"
        path.write_bytes(data)
        for file in (str(path), os.fsencode(path), path):
            error = open_error(file)
            assert type(error) is ValueError
            assert reason in str(error)
            assert "not an ELF core file" in str(error)
            assert str(path) in str(error)

    def test_is_refused_when_it_is_another_kind_of_elf_file(self, core_file):
        # ET_DYN or ET_EXEC; and a core file whose type is ET_REL.
        assert "its type is" in str(open_error(sys.executable))
        error = open_error(core_file(GOOD + "header e_type=1\n"))
        assert str(error).endswith("not an ELF core file: its type is 1")

    def test_is_refused_when_it_is_a_directory(self, tmp_path):
        error = open_error(tmp_path)
        assert type(error) is IsADirectoryError
        assert error.filename == str(tmp_path)

    def test_is_refused_at_once_when_it_is_a_fifo_without_a_writer(self, tmp_path):
        path = tmp_path / "fifo"
        os.mkfifo(path)
        assert "neither a regular file nor a block device" in str(open_error(path))

    def test_is_refused_when_it_is_a_socket(self, tmp_path):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "socket"))
            assert open_error(tmp_path / "socket").errno == errno.ENXIO
            assert "neither a regular" in str(open_error(server.fileno()))

    @pytest.mark.parametrize("path", ["/dev/null", "/dev/zero", "/dev/tty"])
    def test_is_refused_when_it_is_a_character_device(self, path):
        error = open_error(path)
        if isinstance(error, OSError):
            # No terminal here.
            assert path == "/dev/tty" and error.errno == errno.ENXIO
        else:
            assert "neither a regular file nor a block device" in str(error)

    def test_is_refused_when_it_is_not_there(self, tmp_path):
        error = open_error(tmp_path / "missing")
        assert type(error) is FileNotFoundError
        assert error.filename == str(tmp_path / "missing")
        assert type(open_error("")) is FileNotFoundError

    @pytest.mark.parametrize(
        "name, number",
        [
            ("x" * 300, errno.ENAMETOOLONG),
            ("loop", errno.ELOOP),
            ("file/below", errno.ENOTDIR),
        ],
        ids=["long", "loop", "below a file"],
    )
    def test_is_refused_when_its_name_leads_nowhere(self, tmp_path, name, number):
        (tmp_path / "file").write_bytes(b"")
        (tmp_path / "loop").symlink_to("loop")
        error = open_error(tmp_path / name)
        assert isinstance(error, OSError)
        assert (error.errno, error.filename) == (number, str(tmp_path / name))

    def test_is_refused_when_its_name_has_a_zero(self):
        assert "null" in str(open_error("core\0file"))
        assert "null" in str(open_error(b"core\0file"))

    def test_is_refused_when_not_even_its_first_byte_can_be_read(self):
        # Nothing is mapped at address 0 (mem_rw in fs/proc/base.c, Linux 6.1).
        error = open_error("/proc/self/mem")
        assert isinstance(error, OSError)
        assert (error.errno, error.filename) == (errno.EIO, "/proc/self/mem")


class TestDescriptors:
    def test_that_is_closed(self):
        fd = os.open(os.devnull, os.O_RDONLY)
        os.close(fd)
        assert open_error(fd).errno == errno.EBADF

    @pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_PATH])
    def test_that_can_not_be_read(self, core_file, flags):
        fd = os.open(core_file(GOOD), flags)
        assert open_error(fd).errno == errno.EBADF
        # It is the caller's.
        os.fstat(fd)
        os.close(fd)

    def test_of_a_pipe(self):
        receiver, sender = os.pipe()
        assert "neither a regular file" in str(open_error(receiver))
        os.close(receiver)
        os.close(sender)

    def test_of_a_fifo_without_a_writer(self, tmp_path):
        os.mkfifo(tmp_path / "fifo")
        fd = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        assert "neither a regular file" in str(open_error(fd))
        os.close(fd)

    def test_that_is_closed_afterwards_and_whose_file_is_gone(self, core_file):
        path = core_file(GOOD)
        fd = os.open(path, os.O_RDONLY)
        with fm.open(fd) as mem:
            os.close(fd)
            os.unlink(path)
            expected = core_text.fill_bytes("pattern:1", 0x3000)
            assert mem.read(0x10000, 0x3000) == expected

    def test_that_is_negative_or_too_large(self):
        assert type(open_error(-1)) is ValueError
        assert type(open_error(2**31)) is OverflowError
        assert type(open_error(2**100)) is OverflowError

    @pytest.mark.parametrize("file", [None, 1.5, True, [], object()])
    def test_of_the_wrong_type(self, file):
        assert type(open_error(file)) is TypeError

    def test_is_not_moved_by_reading(self, core_file):
        with open(core_file(GOOD), "rb") as file:
            file.seek(77)
            with fm.open(file.fileno()) as mem:
                mem.read(0x10000, 100)
            assert file.tell() == 77


class TestOptions:
    def test_that_do_not_exist(self, core_file):
        path = core_file(GOOD)
        assert "'sometimes'" in str(open_error(path, mmap="sometimes"))
        assert "'sometimes'" in str(open_error(path, translate="sometimes"))
        assert type(open_error(path, mmap=None)) in (TypeError, ValueError)


class TestAttaching:
    """attach() refuses, and the Program reads as before."""

    @pytest.fixture
    def prog(self, core_file):
        drgn = pytest.importorskip("drgn")
        prog = drgn.Program()
        prog.set_core_dump(core_file(GOOD))
        yield prog
        assert fm.attachment(prog) is None
        assert prog.read(0x10000, 8) == core_text.fill_bytes("pattern:1", 8)

    @pytest.mark.parametrize("mem", ["core", 1, b"", object(), fm, fm.Memory])
    def test_what_is_no_memory(self, prog, mem):
        with pytest.raises(TypeError, match="Memory"):
            fm.attach(prog, mem)

    @pytest.mark.parametrize("option", ["mmap", "translate"])
    def test_with_options_that_do_not_exist(self, prog, option):
        with pytest.raises(ValueError, match="'sometimes'"):
            fm.attach(prog, **{option: "sometimes"})

    @pytest.mark.parametrize("other", [None, 1, "core", object()])
    def test_to_what_is_no_program(self, prog, other):
        with pytest.raises(TypeError, match="drgn.Program"):
            fm.attach(other)
        assert fm.attachment(other) is None

    def test_to_a_running_process(self, prog):
        drgn = pytest.importorskip("drgn")
        process = drgn.Program()
        process.set_pid(os.getpid())
        with pytest.raises(ValueError, match="running process"):
            fm.attach(process)
        assert fm.attachment(process) is None

    def test_to_a_core_whose_name_another_file_has_now(self, prog, core_file):
        os.unlink(prog.core_dump_path)
        core_file(GOOD.replace("pattern:1", "pattern:9"))
        with pytest.raises(ValueError, match="not among our open files"):
            fm.attach(prog)


CHILD = """
import sys
import drgn_fastmem as fm
try:
    fm.open(sys.argv[1])
except OSError as e:
    print(type(e).__name__, e.errno, e.filename)
else:
    print("opened")
"""


def test_without_permission(run_python, core_file):
    path = core_file(GOOD)
    os.chmod(path, 0)
    become = ""
    if os.geteuid() == 0:
        # From the parts of the path that are root's own, to the file by descriptor
        # of its directory.
        become = "import os\nos.chdir(os.path.dirname(sys.argv[1]))\n" + (
            "os.setgid(65534); os.setuid(65534)\nsys.argv[1] = 'core'\n"
        )
    code = CHILD.replace("try:", become + "try:", 1)
    assert run_python(code, path).stdout.split()[:2] == [
        "PermissionError",
        str(errno.EACCES),
    ]


def strace(*options):
    """A command prefix that makes system calls fail; skips where that can't be."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not there")
    probe = ["strace", "-qq", "-o", os.devnull, "-e", "inject=uname:error=EPERM"]
    if subprocess.call([*probe, "true"], stderr=subprocess.DEVNULL) != 0:
        pytest.skip("processes can't be traced here")
    return ["strace", "-f", "-qq", "-o", os.devnull, *options]


def run_traced(prefix, code, *args):
    environment = {**os.environ, "DRGN_FASTMEM": "off"}
    return subprocess.run(
        [*prefix, sys.executable, "-c", code, *map(str, args)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_lockdown_that_forbids_to_open(core_file):
    # What open() of /proc/kcore says then (security_locked_down in open_kcore,
    # fs/proc/kcore.c, Linux 6.1).
    path = core_file(GOOD)
    prefix = strace("-P", path, "-e", "inject=open,openat:error=EPERM")
    result = run_traced(prefix, CHILD, path)
    assert result.stdout == f"PermissionError {errno.EPERM} {path}\n", result.stderr


READ_CHILD = """
import sys
import drgn_fastmem as fm
if sys.argv[2] == "memory":
    mem = fm.open(sys.argv[1], mmap="never")
else:
    import drgn
    mem = drgn.Program()
    mem.set_core_dump(sys.argv[1])
    if sys.argv[2] != "drgn":
        fm.attach(mem, mmap="never", _native=sys.argv[2] == "native")
print("opened", flush=True)
for read in (
    lambda: mem.read(0x10ffe, 8),
    lambda: mem.read_u64(0x10000),
    lambda: mem.read(0x10000, 100),
    lambda: mem.read_c_string(0x10000),
):
    try:
        print(read())
    except fm.FaultError as e:
        print(hex(e.address), e)
    except OSError as e:
        print(type(e).__name__, e.errno)
"""


@pytest.mark.parametrize("reader", ["memory", "native", "callable", "drgn"])
def test_io_error_while_reading(core_file, reader):
    if reader != "memory":
        pytest.importorskip("drgn")
    path = core_file(GOOD)
    # libelf's own reads come first; how many is seen without any error.
    counting = strace("-P", path, "-e", "trace=pread64")
    counting[counting.index(os.devnull)] = path + ".trace"
    code = READ_CHILD.split("for read in")[0]
    result = run_traced(counting, code, path, reader)
    assert result.stdout == "opened\n", result.stderr
    with open(path + ".trace") as file:
        opening = sum("pread64(" in line for line in file)
    prefix = strace("-P", path, "-e", f"inject=pread64:error=EIO:when={opening + 1}+")
    result = run_traced(prefix, READ_CHILD, path, reader)
    lines = result.stdout.splitlines()
    assert lines[0] == "opened", result.stderr
    if reader == "drgn":
        # docs/differences.md; and the errors did come.
        assert lines[1:] == [f"OSError {errno.EIO}"] * 4
        return
    assert [line.split()[0] for line in lines[1:]] == (
        ["0x10ffe", "0x10000", "0x10000", "0x10000"]
    ), lines
    assert all(os.strerror(errno.EIO) in line for line in lines[1:]), lines


class TestCut:
    """The file ends somewhere: it is refused, or its reads are drgn's."""

    @pytest.fixture
    def whole(self, tmp_path):
        path = tmp_path / "whole"
        core_text.write(
            path,
            """
            core elf64 little x86_64
            note CORE type=1 text=abc
            load vaddr=0x10000 paddr=0x1000 memsz=0x80 fill=pattern:1
            load vaddr=0x20000 memsz=0x60 filesz=0x40 fill=pattern:2
            """,
        )
        return path.read_bytes()

    def test_at_every_length(self, tmp_path, whole):
        drgn = pytest.importorskip("drgn")
        reads = [
            Read("read", 0x10000, 0x80),
            Read("read", 0x20000, 0x40),
            Read("read", 0x2003C, 8),
            *(Read("read_u64", 0x10000 + offset) for offset in range(0, 0x80, 8)),
            *(Read("read_u8", 0x20000 + offset) for offset in range(0x60)),
            *(Read("read_c_string", 0x10000 + offset) for offset in (0, 0x30, 0x7F)),
            *(Read("read_u32", 0x1000 + offset, None, True) for offset in (0, 0x7E)),
        ]
        opened = []
        for length in range(len(whole) + 1):
            path = tmp_path / f"cut-{length}"
            path.write_bytes(whole[:length])
            prog = drgn.Program()
            try:
                prog.set_core_dump(path)
            except Exception:
                prog = None
            for mmap in ("try", "never"):
                try:
                    mem = fm.open(path, mmap=mmap)
                except ValueError as e:
                    assert re.search("not an ELF core file|can't be read", str(e))
                    # What drgn reads we read.
                    assert prog is None, (length, e)
                    continue
                opened.append(length)
                # Where drgn refuses the file, what the headers say counts.
                right = Reference(str(path)) if prog is None else prog
                readers = [mem]
                if prog is not None:
                    for native in (True, False):
                        attached = drgn.Program()
                        attached.set_core_dump(path)
                        fm.attach(attached, mem, _native=native)
                        readers.append(attached)
                for read in reads:
                    expected = outcome(right, read)
                    assert expected.kind in ("value", "fault")
                    for reader in readers:
                        assert outcome(reader, read) == expected, (length, read)
                mem.close()
            path.unlink()
        # Both happened.
        assert 0 < opened[0] < len(whole)
        assert opened[-1] == len(whole)


class TestFileThatChanges:
    SIZE = 0x6000

    @pytest.fixture(params=["try", "never"])
    def opened(self, request, core_file):
        path = core_file(
            "core elf64 little x86_64\n"
            f"load vaddr=0x10000 memsz={self.SIZE:#x} offset=page fill=strings:5\n"
        )
        with fm.open(path, mmap=request.param, max_age=0) as mem:
            yield path, mem

    def test_cut_while_it_is_open_gives_the_first_address_that_is_gone(self, opened):
        path, mem = opened
        data = mem.read(0x10000, self.SIZE)
        end = 0x3000
        os.truncate(path, PAGE + end)
        gone = 0x10000 + end
        assert mem.read(0x10000, end) == data[:end]
        for read in (
            lambda: mem.read(gone - 16, 32),
            lambda: mem.read(gone - 0x2000, 0x2001),
            lambda: mem.read_u64(gone - 4),
            lambda: mem.read_into(gone - 1, bytearray(2)),
            lambda: mem.read_u8(gone),
        ):
            with pytest.raises(fm.FaultError) as info:
                read()
            assert info.value.address == gone
        with pytest.raises(fm.FaultError) as info:
            mem.read(gone + 5, 1)
        assert info.value.address == gone + 5
        # A string that ends before is not touched by it.
        start = data.rindex(b"\0", 0, end - 1) + 1
        last = data.rindex(b"\0", 0, start - 1) + 1
        assert mem.read_c_string(0x10000 + last) == data[last : start - 1]

    def test_cut_in_the_middle_of_a_string_gives_the_first_address_that_is_gone(
        self, core_file
    ):
        path = core_file(
            "core elf64 little x86_64\n"
            "load vaddr=0x10000 memsz=0x6000 offset=page fill=byte:97\n"
        )
        for mmap in ("try", "never"):
            with fm.open(path, mmap=mmap) as mem:
                os.truncate(path, PAGE + 0x3000)
                for start in (0x10000, 0x12F00, 0x12FFF, 0x13000):
                    with pytest.raises(fm.FaultError) as info:
                        mem.read_c_string(start)
                    assert info.value.address == 0x13000
                assert mem.read_c_string(0x12F00, max_size=0x100) == b"a" * 0x100
            core_file(
                "core elf64 little x86_64\n"
                "load vaddr=0x10000 memsz=0x6000 offset=page fill=byte:97\n"
            )

    def test_cut_in_the_middle_of_a_page(self, opened):
        path, mem = opened
        data = mem.read(0x10000, self.SIZE)
        os.truncate(path, PAGE + 0x2345)
        # Over the end of that page the mapping can't go, and the file is asked.
        with pytest.raises(fm.FaultError) as info:
            mem.read(0x12000, 0x2000)
        assert info.value.address == 0x12345
        # From then on that is so within the page too.
        for address, size in (0x12345, 1), (0x12340, 16), (0x12FFF, 1):
            with pytest.raises(fm.FaultError) as info:
                mem.read(address, size)
            assert info.value.address == max(address, 0x12345)
        assert mem.read(0x10000, 0x2345) == data[:0x2345]

    def test_cut_in_the_middle_of_a_page_that_alone_is_read(self, opened):
        # docs/differences.md, "What a mapping can't tell": zeros until the size is
        # looked at, which is every 1,024 mapped reads.
        path, mem = opened
        mapped = mem.segments[0].access == "mmap"
        data = mem.read(0x10000, self.SIZE)
        os.truncate(path, PAGE + 0x2345)
        zeros = 0
        for _ in range(1025):
            try:
                assert mem.read_u8(0x12345) == 0
            except fm.FaultError as e:
                assert e.address == 0x12345
                break
            zeros += 1
        assert zeros <= (1024 if mapped else 0)
        for _ in range(3):
            with pytest.raises(fm.FaultError) as info:
                mem.read_u64(0x12340)
            assert info.value.address == 0x12345
        assert mem.read(0x12000, 0x345) == data[0x2000:0x2345]

    def test_cut_and_attached_to_drgn(self, opened):
        drgn = pytest.importorskip("drgn")
        path, mem = opened
        progs = []
        for native in (True, False):
            prog = drgn.Program()
            prog.set_core_dump(path)
            fm.attach(prog, mem, _native=native)
            progs.append(prog)
        data = prog.read(0x10000, self.SIZE)
        os.truncate(path, PAGE + 0x2000)
        for prog in progs:
            with pytest.raises(drgn.FaultError) as info:
                prog.read(0x11FF8, 16)
            assert info.value.address == 0x12000
            with pytest.raises(drgn.FaultError) as info:
                prog.read_u32(0x14000)
            assert info.value.address == 0x14000
            assert prog.read(0x10000, 0x2000) == data[:0x2000]

    def test_cut_to_nothing(self, opened):
        path, mem = opened
        os.truncate(path, 0)
        with pytest.raises(fm.FaultError) as info:
            mem.read(0x10123, 1000)
        assert info.value.address == 0x10123

    def test_cut_and_grown_again(self, opened):
        path, mem = opened
        data = mem.read(0x10000, self.SIZE)
        os.truncate(path, PAGE)
        with pytest.raises(fm.FaultError):
            mem.read_u8(0x10000)
        with open(path, "r+b") as file:
            file.seek(PAGE)
            file.write(data)
        assert mem.read(0x10000, self.SIZE) == data

    @pytest.mark.parametrize("mmap", ["try", "never"])
    def test_still_being_written(self, core_file, mmap):
        path = core_file(
            "core elf64 little x86_64\n"
            "load vaddr=0x10000 memsz=0x6000 offset=page fill=pattern:5\n"
            "file size=0x2800\n"
        )
        data = core_text.fill_bytes("pattern:5", 0x6000)
        with fm.open(path, mmap=mmap) as mem:
            with pytest.raises(fm.FaultError) as info:
                mem.read(0x10000, 0x6000)
            assert info.value.address == 0x11800
            with open(path, "r+b") as file:
                file.seek(0x2800)
                file.write(data[0x1800:])
            assert mem.read(0x10000, 0x6000) == data


HOSTILE = {
    "e_phnum-of-all-ones-without-a-section": "header e_phnum=0xfffe",
    "e_phoff-behind-the-end": "header e_phoff=0x7fffffffffffffff",
    "e_phoff-that-wraps": "header e_phoff=0xffffffffffffffc8",
    "e_phentsize-of-zero": "header e_phentsize=0",
    "e_phentsize-of-one": "header e_phentsize=1",
    "e_phentsize-that-is-huge": "header e_phentsize=0xffff",
    "sh_info-of-4-billion": "header extended=yes sh_info=0xffffffff",
    "e_shoff-behind-the-end": "header extended=yes e_shoff=0x7ffffffffffffff0",
    "e_shoff-that-wraps": "header extended=yes e_shoff=0xfffffffffffffff0",
    "e_machine-unknown": "header e_machine=0xffff",
    "ei_class-unknown": "header ei_class=3",
    "ei_class-of-32-bit": "header ei_class=1",
    "ei_data-unknown": "header ei_data=3",
    "ei_data-of-the-other-order": "header ei_data=2",
    "ei_version-unknown": "header ei_version=9",
    "notes-larger-than-the-file": "load type=4 vaddr=0 memsz=0 offset=page"
    " filesz=0xffffffffffff fill=hole\nfile size=0x8000",
    "notes-behind-the-end": "load type=4 vaddr=0 memsz=0 offset=0xfffffffffffff000"
    " filesz=0x100 fill=hole\nfile size=0x8000",
    "notes-that-are-all-ones": "load type=4 vaddr=0 memsz=0 offset=page"
    " filesz=0x70 fill=byte:255",
    "segment-of-all-addresses": "load vaddr=0 memsz=0xffffffffffffffff"
    " filesz=0xffffffffffffffff offset=0 fill=hole\nfile size=0x8000",
}

LIMITED = """
import os, resource, sys
import drgn_fastmem as fm
# AddressSanitizer has taken terabytes of addresses already.
if "libasan" not in os.environ.get("LD_PRELOAD", ""):
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    with fm.open(sys.argv[1]) as mem:
        for segment in mem.segments:
            for address in (segment.address, segment.address + segment.size - 1):
                try:
                    mem.read(address % 2**64, 16)
                except fm.FaultError as e:
                    pass
        print("opened", len(mem.segments))
except ValueError as e:
    print("refused:", e)
with open("/proc/self/status") as f:
    peak = [line for line in f if line.startswith("VmHWM:")][0].split()[1]
print(peak)
"""


class TestHeadersThatLie:
    @pytest.mark.parametrize("header", HOSTILE.values(), ids=HOSTILE)
    def test_are_refused_or_read_without_much_memory(
        self, run_python, core_file, header
    ):
        # Virtual machine size counts the mapping too: the file is small.
        lines = run_python(LIMITED, core_file(GOOD + header + "\n")).stdout.split("\n")
        assert lines[0].startswith(("opened", "refused: "))
        assert int(lines[1]) < 64 << 10

    @pytest.mark.parametrize("offset", [2**64 - 1, 2**64 - 0x1000, 2**63, 2**63 - 1])
    def test_offset_at_the_end_of_the_numbers_is_a_fault(self, core_file, offset):
        path = core_file(
            "core elf64 little x86_64\n"
            f"load vaddr=0x10000 memsz=0x2000 offset={offset:#x} fill=hole\n"
            "load vaddr=0x20000 memsz=0x10 fill=pattern:3\n"
            "file size=0x3000\n"
        )
        with fm.open(path) as mem:
            for address in (0x10000, 0x10001, 0x11FFF):
                with pytest.raises(fm.FaultError) as info:
                    mem.read(address, 1)
                assert info.value.address == address
            assert mem.read(0x20000, 0x10) == core_text.fill_bytes("pattern:3", 0x10)

    def test_notes_of_gigabytes_in_a_sparse_file(self, run_python, core_file):
        # What counts of the notes is near their beginning; the rest is not loaded.
        path = core_file(
            GOOD
            + "load type=4 vaddr=0 memsz=0 offset=page filesz=0x200000000 fill=hole\n"
            + "file size=0x200010000\n"
        )
        # The mapping needs no more than the segments.
        lines = run_python(LIMITED, path).stdout.split("\n")
        assert lines[0] == "opened 2"
        assert int(lines[1]) < 256 << 10

    def test_random_bytes_in_the_headers(self, tmp_path):
        core = parse(GOOD)
        path = tmp_path / "core"
        core.write(path)
        good = path.read_bytes()
        generator = random.Random(9)
        opened = refused = 0
        for _ in range(1500):
            data = bytearray(good)
            for _ in range(generator.randrange(1, 6)):
                data[generator.randrange(64 + 2 * 56)] = generator.randrange(256)
            path.write_bytes(data)
            try:
                mem = fm.open(path)
            except ValueError:
                refused += 1
                continue
            opened += 1
            with mem:
                for segment in mem.segments:
                    for address in (
                        segment.address,
                        (segment.address + segment.size - 4) % 2**64,
                    ):
                        kind = outcome(mem, Read("read", address, 100)).kind
                        assert kind in ("value", "fault")
        assert opened > 100 and refused > 100


BOTH = """
import sys
import drgn, drgn_fastmem
prog = drgn.Program()
try:
    prog.set_core_dump(sys.argv[1])
except Exception as e:
    print(type(e).__name__, e)
else:
    print(drgn_fastmem.attachment(prog))
    try:
        print(prog.read(0x10000, 8))
    except Exception as e:
        # Of a fault the address counts, not the text.
        print(type(e).__name__, getattr(e, "address", e))
"""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text" * 1000,
        b"KDUMP   " + bytes(8192),
        b"DISKDUMP" + bytes(8192),
        b"makedumpfile" + bytes(8192),
    ],
    ids=["empty", "text", "kdump", "diskdump", "flattened"],
)
def test_with_the_plugin_drgn_says_what_it_says_without(run_python, tmp_path, data):
    pytest.importorskip("drgn")
    path = tmp_path / "file"
    path.write_bytes(data)
    alone = run_python(BOTH, path, env={"DRGN_FASTMEM": "off"})
    plugin = run_python(BOTH, path, env={"DRGN_FASTMEM": ""})
    assert (plugin.stdout, plugin.stderr) == (alone.stdout, alone.stderr)
    assert "Error" in alone.stdout or "Exception" in alone.stdout


@pytest.mark.parametrize("header", HOSTILE.values(), ids=HOSTILE)
def test_with_the_plugin_drgn_reads_lying_headers_as_without(
    run_python, core_file, header
):
    pytest.importorskip("drgn")
    path = core_file(GOOD + header + "\n")
    alone = run_python(BOTH, path, env={"DRGN_FASTMEM": "off"}).stdout.splitlines()
    plugin = run_python(BOTH, path, env={"DRGN_FASTMEM": ""}).stdout.splitlines()
    # The line in between says whether it is attached.
    assert (plugin[0], plugin[-1]) == (alone[0], alone[-1]) or alone[0] == "None"
    assert plugin[-1] == alone[-1]


def test_mode_of_a_good_file_does_not_change(core_file):
    path = core_file(GOOD)
    before = os.stat(path)
    with fm.open(path) as mem:
        assert outcome(mem, Read("read", 0x10000, 16)) == outcome(
            Reference(path), Read("read", 0x10000, 16)
        )
    after = os.stat(path)
    assert stat.S_IMODE(after.st_mode) == stat.S_IMODE(before.st_mode)
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
