# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The pure-Python reader gives answers that a person worked out by hand.

One test a rule, so that whoever doubts the oracle can read what it should say.
"""

import errno
import os

import pytest

from reference import Fault, Reference


@pytest.fixture
def reference(core_file):
    opened = []

    def make(text):
        opened.append(Reference(core_file(text)))
        return opened[-1]

    yield make
    for item in opened:
        item.close()


def fault_address(function, *args, **kwargs):
    with pytest.raises(Fault) as fault:
        function(*args, **kwargs)
    return fault.value.address


def test_last_header_wins_and_the_first_goes_on_behind_it(reference):
    memory = reference(
        """
        core elf64 little x86_64
        load vaddr=0x1000 memsz=6 fill=text:aaaaaa
        load vaddr=0x1002 memsz=2 fill=text:bb
        """
    )
    assert memory.read(0x1000, 6) == b"aabbaa"


def test_last_header_wins_with_its_hole(reference):
    memory = reference(
        """
        core elf64 little x86_64
        load vaddr=0x1000 memsz=6 fill=text:aaaaaa
        load vaddr=0x1002 memsz=3 filesz=1 fill=text:b
        """
    )
    assert memory.read(0x1000, 3) == b"aab"
    assert fault_address(memory.read, 0x1000, 6) == 0x1003
    assert memory.read(0x1005, 1) == b"a"


def test_filler_of_a_user_core_is_a_fault(reference):
    memory = reference(
        """
        core elf64 little x86_64
        load vaddr=0x1000 memsz=8 filesz=2 fill=text:ab
        """
    )
    assert memory.read(0x1000, 2) == b"ab"
    assert fault_address(memory.read, 0x1000, 3) == 0x1002
    assert fault_address(memory.read, 0x1004, 1) == 0x1004


def test_filler_of_a_kernel_dump_is_zeros(reference):
    memory = reference(
        """
        core elf64 little x86_64
        linux
        load vaddr=0x1000 memsz=4 filesz=2 fill=text:ab
        """
    )
    assert memory.read(0x1000, 4) == b"ab\0\0"
    assert fault_address(memory.read, 0x1000, 5) == 0x1004


def test_not_saved_is_decided_before_the_file_is_read(reference):
    memory = reference(
        """
        core elf64 little x86_64
        load vaddr=0x1000 memsz=0x20 filesz=0x10 offset=0x200 fill=byte:1
        file size=0x208
        """
    )
    # The file ends at 0x1008, but the read is refused at 0x1010 before that.
    assert fault_address(memory.read, 0x1000, 0x10) == 0x1008
    assert fault_address(memory.read, 0x1000, 0x11) == 0x1010


def test_short_file_of_an_earlier_segment_comes_first(reference):
    memory = reference(
        """
        core elf64 little x86_64
        load vaddr=0x1000 memsz=0x10 offset=0x200 fill=byte:1
        load vaddr=0x1010 memsz=0x20 filesz=0x10 offset=0x100 fill=hole
        file size=0x208
        """
    )
    assert fault_address(memory.read, 0x1000, 0x30) == 0x1008


def test_saved_bytes_beyond_the_segment_are_not_memory(reference):
    memory = reference(
        """
        core elf64 little x86_64
        load vaddr=0x1000 memsz=2 filesz=4 fill=text:abcd
        """
    )
    assert fault_address(memory.read, 0x1000, 3) == 0x1002


def test_read_wraps_at_the_end_of_the_address_space(reference):
    memory = reference(
        """
        core elf64 little x86_64
        load vaddr=0xfffffffffffffffe memsz=2 fill=text:ab
        load vaddr=0 memsz=2 fill=text:cd
        """
    )
    assert memory.read(0xFFFFFFFFFFFFFFFE, 4) == b"abcd"
    assert fault_address(memory.read, 0xFFFFFFFFFFFFFFFE, 5) == 2


def test_32_bit_addresses_are_cut_to_32_bits(reference):
    memory = reference(
        """
        core elf32 little i386
        load vaddr=0xfffffffe memsz=2 fill=text:ab
        load vaddr=0 memsz=2 fill=text:cd
        """
    )
    assert memory.read(0xFFFFFFFE, 4) == b"abcd"
    assert memory.read(0x12345FFFFFFFF, 2) == b"bc"


def test_segment_ends_with_the_address_space(reference):
    memory = reference(
        """
        core elf32 little i386
        load vaddr=0xfffffffe memsz=4 fill=text:abcd
        """
    )
    assert memory.read(0xFFFFFFFE, 2) == b"ab"
    assert fault_address(memory.read, 0xFFFFFFFE, 3) == 0


def test_physical_address_of_all_ones_is_none(reference):
    memory = reference(
        """
        core elf32 little i386
        load vaddr=0x1000 paddr=0xffffffff memsz=1 fill=text:a
        load vaddr=0x2000 paddr=0x10 memsz=1 fill=text:b
        """
    )
    assert fault_address(memory.read, 0xFFFFFFFF, 1, True) == 0xFFFFFFFF
    assert memory.read(0x10, 1, True) == b"b"


def test_physical_address_zero_counts_once_another_is_set(reference):
    text = """
        core elf64 little x86_64
        load vaddr=0x1000 paddr=0 memsz=1 fill=text:a
        load vaddr=0x2000 paddr={} memsz=1 fill=text:b
        """
    assert fault_address(reference(text.format(0)).read, 0, 1, True) == 0
    assert reference(text.format(5)).read(0, 1, True) == b"a"
    # All ones is not zero, so the other header's zero counts.
    assert reference(text.format("none")).read(0, 1, True) == b"a"


def test_physical_address_zero_counts_in_a_kernel_dump(reference):
    memory = reference(
        """
        core elf64 little x86_64
        linux
        load vaddr=0x1000 paddr=0 memsz=1 fill=text:a
        """
    )
    assert memory.read(0, 1, True) == b"a"


def test_aarch64_addresses_lose_their_tag(reference):
    memory = reference(
        """
        core elf64 little aarch64
        load vaddr=0x1000 memsz=2 fill=text:ab
        load vaddr=0xff80000000000000 memsz=2 fill=text:cd
        """
    )
    assert memory.read(0x5A00000000001000, 2) == b"ab"
    assert memory.read(0x5A80000000000000, 2) == b"cd"
    # The tag goes at the start of a read only; a string looks at each byte.
    assert fault_address(memory.read, 0x007FFFFFFFFFFFFF, 2) == 0x007FFFFFFFFFFFFF


def test_aarch64_string_loses_the_tag_of_each_byte(reference):
    memory = reference(
        """
        core elf64 little aarch64
        load vaddr=0x007fffffffffffff memsz=1 fill=text:a
        load vaddr=0xff80000000000000 memsz=2 fill="text:b\\0"
        """
    )
    assert memory.read_c_string(0x007FFFFFFFFFFFFF) == b"ab"
    assert fault_address(memory.read, 0x007FFFFFFFFFFFFF, 2) == 0x0080000000000000


def test_bad_file_offset_is_a_fault_with_an_errno(reference):
    memory = reference(
        """
        core elf64 little x86_64
        load vaddr=0x1000 memsz=0x1000 offset=0x8000000000000000 fill=hole
        load vaddr=0x2000 memsz=0x1000 offset=0xffffffffffffff00 fill=hole
        load vaddr=0x3000 memsz=0x1000 offset=0x7fffffffffff0000 fill=hole
        file size=0x400
        """
    )
    for address, error in (0x1000, errno.EINVAL), (0x2100, errno.EOVERFLOW), (0x3000, 0):
        with pytest.raises(Fault) as fault:
            memory.read(address, 8)
        assert (fault.value.address, fault.value.errno) == (address, error)


def test_integers_have_the_byte_order_and_word_of_the_target(reference):
    data = "fill='text:\\x01\\x02\\x03\\x04\\x05\\x06\\x07\\x08'"
    little = reference(f"core elf64 little x86_64\nload vaddr=0 memsz=8 {data}")
    assert little.read_u8(0) == 0x01
    assert little.read_u16(0) == 0x0201
    assert little.read_u32(0) == 0x04030201
    assert little.read_u64(0) == little.read_word(0) == 0x0807060504030201
    big = reference(f"core elf32 big ppc64\nload vaddr=0 memsz=8 {data}")
    assert big.read_u16(0) == 0x0102
    assert big.read_u64(0) == 0x0102030405060708
    assert big.read_word(0) == 0x01020304


def test_string_ends_at_its_zero_or_the_largest_size(reference):
    memory = reference(
        """
        core elf64 little x86_64
        load vaddr=0x1000 memsz=6 fill="text:abc\\0de"
        """
    )
    assert memory.read_c_string(0x1000) == b"abc"
    assert memory.read_c_string(0x1000, max_size=2) == b"ab"
    assert memory.read_c_string(0x1004, max_size=2) == b"de"
    assert memory.read_c_string(0x9999, max_size=0) == b""
    assert fault_address(memory.read_c_string, 0x1004) == 0x1006


def test_headers_that_are_cut_off_or_lie(core_file):
    text = """
        core elf64 little x86_64
        note CORE type=1 text=abcd
        load vaddr=0x1000 memsz=16
        """
    whole = open(core_file(text), "rb").read()
    for size in range(len(whole) - 16):
        with pytest.raises(ValueError):
            Reference(core_file(text + f"file size={size}"))
    Reference(core_file(text + f"file size={len(whole) - 16}")).close()
    for header in ("e_type=2", "ei_class=3", "ei_data=0", "e_phentsize=55", "e_phnum=9"):
        with pytest.raises(ValueError):
            Reference(core_file(text + f"header {header}"))


def test_closes_its_file(core_file):
    with Reference(core_file("core elf64 little x86_64")) as memory:
        fd = memory.fd
        os.fstat(fd)
    with pytest.raises(OSError):
        os.fstat(fd)
