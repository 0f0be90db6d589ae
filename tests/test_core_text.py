# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The builder of core files writes what its text says, checked field by field
with struct and, for the files that drgn should accept, by drgn."""

import os
import struct

import pytest

import core_text
from core_text import Core, CoreTextError, Load, Note, parse

drgn = pytest.importorskip("drgn", reason="drgn says whether a core is a core")


def open_drgn(path):
    prog = drgn.Program()
    prog.set_core_dump(path)
    return prog


def test_program_header_fields_64_bit_little_endian(core_file):
    path = core_file(
        """
        core elf64 little x86_64
        load vaddr=0x1122334455667788 paddr=0x99 memsz=0x30 filesz=0x20 flags=5 align=0x10
        """
    )
    data = open(path, "rb").read()
    assert data[:7] == b"\x7fELF\x02\x01\x01"
    assert struct.unpack_from("<HHIQQQIHHHHHH", data, 16) == (
        *(4, 62, 1, 0, 64, 0, 0, 64, 56, 1),
        *(0, 0, 0),
    )
    assert struct.unpack_from("<IIQQQQQQ", data, 64) == (
        *(1, 5, 64 + 56, 0x1122334455667788, 0x99, 0x20, 0x30, 0x10),
    )
    assert data[120:] == core_text.fill_bytes("pattern:0", 0x20)


def test_program_header_fields_32_bit_big_endian(core_file):
    path = core_file(
        """
        core elf32 big arm
        load vaddr=0x11223344 memsz=0x30 offset=page fill=byte:0x41
        """
    )
    data = open(path, "rb").read()
    assert data[:7] == b"\x7fELF\x01\x02\x01"
    assert struct.unpack_from(">HHIIII", data, 16) == (4, 40, 1, 0, 52, 0)
    assert struct.unpack_from(">IIIIIIII", data, 52) == (
        *(1, 4096, 0x11223344, 0xFFFFFFFF, 0x30, 0x30, 7, 0),
    )
    assert data[4096:] == b"A" * 0x30


def test_segments_lie_where_they_are_told(core_file):
    path = core_file(
        """
        core elf64 little x86_64
        load vaddr=0x1000 memsz=3 fill=text:abc
        load vaddr=0x2000 memsz=3 offset=0x2000 fill=text:def
        load vaddr=0x3000 memsz=3 fill=text:ghi
        data offset=0x3000 size=4 fill=text:jkl
        file size=0x3002
        """
    )
    data = open(path, "rb").read()
    after_headers = 64 + 3 * 56
    assert data[after_headers : after_headers + 6] == b"abcghi"
    assert data[0x2000:0x2003] == b"def"
    assert data[0x3000:] == b"jk"


def test_many_headers_use_the_extended_number(core_file):
    path = core_file(
        """
        core elf64 little x86_64
        load vaddr=0x1000 memsz=1 repeat=65536 step=0x1000 fill=hole offset=0
        """
    )
    data = open(path, "rb").read()
    (shoff,) = struct.unpack_from("<Q", data, 40)
    phnum, shentsize, shnum = struct.unpack_from("<HHH", data, 56)
    assert (phnum, shentsize, shnum) == (0xFFFF, 64, 1)
    assert struct.unpack_from("<IIQQQQII", data, shoff)[7] == 65536
    assert open_drgn(path).read(65536 * 0x1000, 1) == b"\x7f"


def test_extended_number_on_request(core_file):
    path = core_file(
        """
        core elf32 big ppc64
        load vaddr=0x1000 memsz=4 fill=text:abcd
        header extended=yes
        """
    )
    assert struct.unpack_from(">H", open(path, "rb").read(), 44) == (0xFFFF,)
    assert open_drgn(path).read(0x1000, 4) == b"abcd"


def test_hole_is_not_written(core_file):
    path = core_file(
        """
        core elf64 little x86_64
        load vaddr=0 memsz=0x1000000000 fill=hole
        """
    )
    assert os.stat(path).st_size == 64 + 56 + 0x1000000000
    assert os.stat(path).st_blocks * 512 < 1 << 20


def test_repeat_steps_addresses_and_seeds():
    first, second = parse(
        """
        core elf64 little x86_64
        load vaddr=0x1000 paddr=0x10 memsz=1 repeat=2 step=0x100 fill=pattern:5
        """
    ).loads
    assert (first.vaddr, first.paddr, first.fill) == (0x1000, 0x10, "pattern:5")
    assert (second.vaddr, second.paddr, second.fill) == (0x1100, 0x110, "pattern:6")


@pytest.mark.parametrize("align", [4, 8])
def test_linux_note_makes_a_kernel_of_it(core_file, align):
    note = core_text.linux_note()
    core = Core(
        parts=(
            Note("CORE", 1, b"12345", align),
            Note("VMCOREINFO", 0, note.desc, align),
            Load(0x1000, 0x20, filesz=0x10),
        )
    )
    prog = open_drgn(core_file(str(core)))
    assert prog.flags & drgn.ProgramFlags.IS_LINUX_KERNEL
    assert prog.read(0x1010, 0x10) == bytes(0x10)


def test_text_and_object_are_the_same():
    text = """
        core elf32 big 0x1234     # a comment
        linux osrelease=5.10.0-1 pagesize=0x10000 swapper_pg_dir=0xc0001000

        note CORE type=4 text="it's \\x00 a \\"note\\""
        load vaddr=0x1000 paddr=0 memsz=0x3000 filesz=0x2000 offset=page
        load type=2 vaddr=1 memsz=2 offset=0x77 flags=1 align=8 fill="text:a \\\\b#"
        data offset=0x5000 size=2 fill=hole
        header e_phentsize=0x30 sh_info=7 ei_class=3 extended=yes
        file size=0x123
        """
    core = parse(text)
    assert parse(str(core)) == core
    assert eval(repr(core)) == core
    assert core.parts[1].desc == b'it\'s \0 a "note"'
    assert core.header == {"e_phentsize": 0x30, "sh_info": 7, "ei_class": 3}


@pytest.mark.parametrize(
    "line, message",
    [
        ("load vaddr=1", "line 2: load without memsz="),
        ("load vaddr=x memsz=1", "line 2: vaddr='x' is not a number"),
        ("load vaddr=1 memsz=1 size=1", "line 2: unknown word 'size=1'"),
        ("load vaddr=1 vaddr=2 memsz=1", "line 2: vaddr= twice"),
        ("load vaddr=1 memsz=-1", "line 2: memsz=-1 is not in 0..0xff"),
        ("lode vaddr=1", "line 2: unknown statement 'lode'"),
        ("note", "line 2: usage: note NAME"),
        ("note CORE align=3", "line 2: notes are aligned to 4 or 8"),
        ("data offset=1 size=1", "line 2: data without fill="),
        ("file size=", "line 2: size='' is not a number"),
        ("core elf64 little x86_64", "line 2: a second core"),
        ("header e_phnom=1", "line 2: unknown word 'e_phnom=1'"),
        ('load vaddr="1', "line 2: No closing quotation"),
    ],
)
def test_bad_line_gets_a_clear_error(line, message):
    with pytest.raises(CoreTextError) as error:
        parse("core elf64 little x86_64\n" + line)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "no core statement"),
        ("load vaddr=1 memsz=1", "line 1: the first statement must be core"),
        ("core elf128 little x86_64", "line 1: usage: core"),
        ("core elf64 middle x86_64", "line 1: byte order 'middle'"),
        ("core elf64 little vax", "line 1: machine='vax' is not a number"),
    ],
)
def test_bad_start_gets_a_clear_error(text, message):
    with pytest.raises(CoreTextError) as error:
        parse(text)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "line, message",
    [
        ("load vaddr=0x100000000 memsz=1", "program header of load"),
        ("load vaddr=1 memsz=1 offset=there", "offset='there' is not a number"),
        ("load vaddr=1 memsz=1 fill=patern:1", "unknown fill 'patern:1'"),
        ("load vaddr=1 memsz=1 fill=text:abc", "text of 3 bytes in 1"),
        ("load vaddr=1 memsz=0x10000000", "0x10000000 bytes to write; use fill=hole"),
        ("header e_phoff=0x100000000", "ELF header"),
    ],
)
def test_core_that_cannot_be_written_gets_a_clear_error(core_file, line, message):
    with pytest.raises(CoreTextError) as error:
        core_file("core elf32 little i386\n" + line)
    assert message in str(error.value)


def test_fill_kinds():
    assert core_text.fill_bytes("hole", 1 << 60) is None
    assert core_text.fill_bytes("byte:0xff", 2) == b"\xff\xff"
    assert core_text.fill_bytes("text:a\\x00b", 4) == b"a\0b\0"
    pattern = core_text.fill_bytes("pattern:1", 64)
    assert pattern != core_text.fill_bytes("pattern:2", 64)
    # The same bytes for everybody, whatever the version of Python.
    assert pattern[:8].hex() == "f5b165224a58b791"
    strings = core_text.fill_bytes("strings:1", 4096)
    assert 100 < strings.count(0) < 1000
