# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""A Memory on its own: what each method takes, gives and refuses, to the text of
_core.pyi, with values that are written out here or come from reference.py.

Not random reads (test_oracle.py), bad files (test_open_bad_input.py), closing
(test_lifetime.py) or page tables (test_translate.py).
"""

import ast
import inspect
import itertools
from pathlib import Path
import random
import struct
import threading

import pytest

import core_text
import drgn_fastmem as fm
import drgn_fastmem._core as core
from reference import Reference

PAGE = 4096

# One of each: virtual and physical, saved in part, without a physical address.
CORE = r"""
core elf64 little x86_64
load vaddr=0x10000 paddr=0x1000 memsz=0x3000 offset=page fill=pattern:1
load vaddr=0x20000 paddr=0x8000 memsz=0x2000 filesz=0x800 fill=pattern:2
load vaddr=0x30000 memsz=0x20 fill="text:twelve bytes\0and then some more."
"""
DATA = core_text.fill_bytes("pattern:1", 0x3000)
WAYS = pytest.mark.parametrize("mmap", ["try", "never"])


@pytest.fixture
def path(core_file):
    return core_file(CORE)


@pytest.fixture
def mem(path):
    with fm.open(path) as memory:
        yield memory


# -- The stub and the types ----------------------------------------------------

STUB = Path(core.__file__).with_name("_core.pyi")
KINDS = inspect.Parameter


def stub_parameters(function):
    """(name, kind, default) of each parameter of a function in a stub."""
    arguments = function.args
    assert arguments.vararg is None and arguments.kwarg is None
    names = [(a.arg, KINDS.POSITIONAL_ONLY) for a in arguments.posonlyargs]
    names += [(a.arg, KINDS.POSITIONAL_OR_KEYWORD) for a in arguments.args]
    defaults = [KINDS.empty] * (len(names) - len(arguments.defaults))
    defaults += [ast.literal_eval(node) for node in arguments.defaults]
    result = [(*name, default) for name, default in zip(names, defaults)]
    for argument, node in zip(arguments.kwonlyargs, arguments.kw_defaults):
        default = KINDS.empty if node is None else ast.literal_eval(node)
        result.append((argument.arg, KINDS.KEYWORD_ONLY, default))
    return result


def without_self(parameters):
    # Its kind is the business of nobody.
    assert parameters[0][0] == "self"
    return parameters[1:]


def runtime_parameters(function):
    return [
        (p.name, p.kind, p.default)
        for p in inspect.signature(function).parameters.values()
    ]


def is_property(node):
    return "property" in map(ast.unparse, node.decorator_list)


def is_setter(node):
    return f"{node.name}.setter" in map(ast.unparse, node.decorator_list)


def public(names):
    """What users see. Of the special methods those that make a with block."""
    special = ("__enter__", "__exit__", "__call__", "__iter__", "__len__")
    return {name for name in names if not name.startswith("_") or name in special}


# What CPython gives every struct sequence.
STRUCT_SEQUENCE = {"n_fields", "n_sequence_fields", "n_unnamed_fields"}


def stub_complaints(stub, module):
    """Where the text of a stub and a module differ, in both directions."""
    complaints = []
    tree = ast.parse(stub)
    nodes = {
        node.name: node
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    for name in sorted(public(vars(module)) - set(nodes)):
        complaints.append(f"{name} is not in the stub")
    for name, node in nodes.items():
        thing = getattr(module, name, None)
        if thing is None:
            complaints.append(f"{name} is only in the stub")
        elif isinstance(node, ast.FunctionDef):
            expected = stub_parameters(node)
            if runtime_parameters(thing) != expected:
                complaints.append(f"{name} has other parameters")
        elif any(ast.unparse(base) == "NamedTuple" for base in node.bases):
            complaints += tuple_complaints(node, thing)
        else:
            complaints += class_complaints(node, thing)
    return complaints


def tuple_complaints(node, type):
    fields = [f.target.id for f in node.body if isinstance(f, ast.AnnAssign)]
    have = public(vars(type)) - STRUCT_SEQUENCE
    complaints = [
        f"{node.name}.{name} is only in the stub" for name in fields if name not in have
    ]
    complaints += [
        f"{node.name}.{name} is not in the stub" for name in sorted(have - set(fields))
    ]
    if not complaints:
        example = type(range(len(fields)))
        if [getattr(example, name) for name in fields] != list(range(len(fields))):
            complaints.append(f"{node.name} has its fields in another order")
    return complaints


def class_complaints(node, type):
    complaints = []
    members = {
        m.name: m
        for m in node.body
        if isinstance(m, ast.FunctionDef) and not is_setter(m)
    }
    for name in sorted(public(vars(type)) - set(members)):
        complaints.append(f"{node.name}.{name} is not in the stub")
    for name, member in members.items():
        thing = vars(type).get(name)
        if thing is None:
            complaints.append(f"{node.name}.{name} is only in the stub")
        elif is_property(member) != (not callable(thing)):
            complaints.append(f"{node.name}.{name} is a method and a property")
        elif callable(thing):
            expected = without_self(stub_parameters(member))
            if without_self(runtime_parameters(thing)) != expected:
                complaints.append(f"{node.name}.{name} has other parameters")
    return complaints


class TestTheStub:
    def test_says_what_is_there_and_nothing_else(self):
        assert stub_complaints(STUB.read_text(), core) == []

    @pytest.mark.parametrize(
        "old, new, complaint",
        [
            ("def translate(", "def walk(", "Memory.translate is not in the stub"),
            ("def closed(", "def shut(", "Memory.shut is only in the stub"),
            ("buffer: Any", "buf: Any", "Memory.read_into has other parameters"),
            (
                "read_u64(self, address: SupportsIndex, physical: bool = False)",
                "read_u64(self, address: SupportsIndex, physical: bool = True)",
                "Memory.read_u64 has other parameters",
            ),
            ("        *,\n", "", "Memory.read_c_string has other parameters"),
            (
                "    @property\n    def path(",
                "    def path(",
                "Memory.path is a method and a property",
            ),
            ("    path: Union[str, bytes],\n    /,\n", "    /,\n", "open has other"),
            ("class Stats(", "class Statistics(", "Stats is not in the stub"),
            ("    walks: int\n", "", "Stats.walks is not in the stub"),
            (
                "    reads: int\n",
                "    reads: int\n    misses: int\n",
                "Stats.misses is only in the stub",
            ),
            (
                '    bytes: int\n    """Bytes that were handed out."""\n'
                "    faults: int\n",
                "    faults: int\n    bytes: int\n",
                "Stats has its fields in another order",
            ),
        ],
        ids=itertools.count(),
    )
    def test_would_be_found_wrong(self, old, new, complaint):
        text = STUB.read_text()
        assert old in text
        complaints = stub_complaints(text.replace(old, new, 1), core)
        assert any(complaint in c for c in complaints), complaints

    def test_signatures_are_what_calls_take(self, mem):
        # The text that inspect reads is not what the C code parses; this is.
        values = {
            "address": 0x10000,
            "size": 8,
            "buffer": bytearray(8),
            "physical": False,
            "max_size": 8,
            "ranges": [(0x10000, 8)],
            "out": bytearray(8),
            "on_fault": "return",
            "status": bytearray(1),
            "addresses": [0x10000],
        }
        checked = 0
        for name, method in vars(fm.Memory).items():
            if not name.startswith(
                ("read", "translate", "gather", "prefetch")
            ):
                continue
            checked += 1
            parameters = without_self(runtime_parameters(method))
            call = getattr(mem, name)
            everything = {p[0]: values[p[0]] for p in parameters}
            call(**everything)
            required = [p[0] for p in parameters if p[2] is KINDS.empty]
            call(**{p: values[p] for p in required})
            positional = [p[0] for p in parameters if p[1] != KINDS.KEYWORD_ONLY]
            call(*(values[p] for p in positional))
            with pytest.raises(TypeError, match="at most|takes exactly"):
                call(*(values[p] for p in positional), None)
            with pytest.raises(TypeError, match="unexpected keyword.*'bytes'"):
                call(**everything, bytes=1)
            with pytest.raises(TypeError, match=f"multiple values.*'{positional[0]}'"):
                call(values[positional[0]], **everything)
            for missing in required:
                with pytest.raises(TypeError, match=f"missing.*'{missing}'"):
                    call(**{p: values[p] for p in everything if p != missing})
        assert checked == 13

    def test_defaults_are_what_calls_without_them_mean(self, mem):
        physical = mem.read(0x1000, 8, physical=True)
        assert mem.read(0x10000, 8, physical=False) == mem.read(0x10000, 8) == physical
        text = mem.read_c_string(0x30000)
        assert mem.read_c_string(0x30000, max_size=None) == text == b"twelve bytes"
        with pytest.raises(fm.FaultError):
            mem.read_u64(0x1000)
        with pytest.raises(fm.FaultError):
            mem.read_u64(0x1000, False)
        assert mem.read_u64(0x1000, True) == mem.read_u64(0x10000)


class TestWithoutArguments:
    @pytest.mark.parametrize(
        "method", ["close", "reset_stats", "__enter__", "snapshot", "invalidate"]
    )
    def test_takes_none(self, mem, method):
        with pytest.raises(TypeError):
            getattr(mem, method)(1)
        with pytest.raises(TypeError):
            getattr(mem, method)(address=1)


# -- Numbers and bytes ---------------------------------------------------------


@WAYS
@pytest.mark.parametrize("machine", ["aarch64", "ppc64"])
@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("bits", [32, 64])
def test_numbers_in_each_byte_order_and_word_size(
    core_file, bits, order, machine, mmap
):
    path = core_file(
        rf"""
        core elf{bits} {order} {machine}
        load vaddr=0x1000 paddr=0x5000 memsz=0x10 fill="text:\x01\x02\x03\x04\xf5\xf6\xf7\xf8\xff\xff\xff\xff\xff\xff\xff\xff"
        """
    )
    with fm.open(path, mmap=mmap) as mem:
        little = order == "little"
        assert mem.is_little_endian is little
        assert mem.is_64_bit is (bits == 64)
        u64 = 0xF8F7F6F504030201 if little else 0x01020304F5F6F7F8
        u32 = 0x04030201 if little else 0x01020304
        for address, physical in (0x1000, False), (0x5000, True):
            assert mem.read_u8(address, physical) == 1
            assert mem.read_u8(address + 7, physical) == 0xF8
            assert mem.read_u16(address, physical) == (0x0201 if little else 0x0102)
            assert mem.read_u32(address, physical) == u32
            assert mem.read_u64(address, physical) == u64
            assert mem.read_word(address, physical) == (u64 if bits == 64 else u32)
            # Unaligned, and the largest of each.
            unaligned = 0xF6F5040302 if little else 0x020304F5F6
            assert mem.read_u32(address + 1, physical) == (
                unaligned & 0xFFFFFFFF if little else unaligned >> 8
            )
            for size in 1, 2, 4, 8:
                largest = getattr(mem, f"read_u{8 * size}")(address + 8, physical)
                assert largest == (1 << (8 * size)) - 1
            assert mem.read_word(address + 8, physical) == (1 << bits) - 1


@WAYS
def test_bytes_and_buffers_are_the_references(path, mmap):
    generator = random.Random(1)
    with fm.open(path, mmap=mmap) as mem, Reference(path) as reference:
        for _ in range(300):
            offset = generator.randrange(0x3000)
            size = generator.randrange(0x3000 - offset + 1)
            expected = reference.read(0x10000 + offset, size)
            assert expected == DATA[offset : offset + size]
            assert mem.read(0x10000 + offset, size) == expected
            assert mem.read(0x1000 + offset, size, physical=True) == expected
            buffer = bytearray(b"\xaa" * (size + 2))
            mem.read_into(0x10000 + offset, memoryview(buffer)[1:-1])
            assert buffer == b"\xaa" + expected + b"\xaa"
            mem.read_into(0x1000 + offset, memoryview(buffer)[1:-1], physical=True)
            assert buffer == b"\xaa" + expected + b"\xaa"


class TestReadInto:
    @pytest.mark.parametrize(
        "make",
        [
            lambda: bytearray(16),
            lambda: memoryview(bytearray(16)),
            lambda: memoryview(bytearray(16)).cast("I"),
            lambda: memoryview(bytearray(16)).cast("B", (2, 8)),
            lambda: __import__("array").array("H", [0] * 8),
            lambda: (__import__("ctypes").c_char * 16)(),
            lambda: __import__("mmap").mmap(-1, 16),
        ],
        ids=["bytearray", "memoryview", "uint32", "2x8", "array", "ctypes", "mmap"],
    )
    def test_any_writable_contiguous_buffer(self, mem, make):
        buffer = make()
        assert mem.read_into(0x10004, buffer) is None
        assert memoryview(buffer).tobytes() == DATA[4:20]

    def test_a_slice_leaves_what_is_around_it(self, mem):
        buffer = bytearray(b"." * 12)
        mem.read_into(0x10000, memoryview(buffer)[4:8])
        assert buffer == b"...." + DATA[:4] + b"...."

    @pytest.mark.parametrize(
        "buffer",
        [bytes(8), memoryview(bytes(8)), memoryview(bytearray(8)).toreadonly()],
        ids=["bytes", "memoryview of bytes", "read-only view"],
    )
    def test_read_only_buffer_is_refused(self, mem, buffer):
        with pytest.raises(BufferError):
            mem.read_into(0x10000, buffer)
        assert bytes(buffer) == bytes(8)

    def test_buffer_with_gaps_is_refused(self, mem):
        buffer = bytearray(16)
        for view in memoryview(buffer)[::2], memoryview(buffer)[::-1]:
            with pytest.raises(BufferError):
                mem.read_into(0x10000, view)
        assert buffer == bytes(16)

    @pytest.mark.parametrize("buffer", [None, 8, "text", [0] * 8])
    def test_what_is_no_buffer_is_a_type_error(self, mem, buffer):
        with pytest.raises(TypeError, match="bytes-like|buffer"):
            mem.read_into(0x10000, buffer)

    def test_of_released_view_is_refused(self, mem):
        view = memoryview(bytearray(8))
        view.release()
        with pytest.raises(ValueError, match="released"):
            mem.read_into(0x10000, view)

    def test_buffer_can_be_resized_afterwards_also_after_a_fault(self, mem):
        # Else an export was forgotten.
        buffer = bytearray(8)
        mem.read_into(0x10000, buffer)
        with pytest.raises(fm.FaultError):
            mem.read_into(0, buffer)
        with pytest.raises(OverflowError):
            mem.read_into(1 << 64, buffer)
        buffer.extend(b"more")
        assert len(buffer) == 12

    def test_fault_has_the_first_address(self, mem):
        buffer = bytearray(0x20)
        with pytest.raises(fm.FaultError) as fault:
            mem.read_into(0x12FF0, buffer)
        assert fault.value.address == 0x13000


class TestSizes:
    @WAYS
    def test_zero_is_no_bytes_wherever_it_is(self, path, mmap):
        with fm.open(path, mmap=mmap) as mem:
            for address in 0, 0x10000, 0x13000, 0x5000000, (1 << 64) - 1:
                for physical in False, True:
                    assert mem.read(address, 0, physical) == b""
                    empty = bytearray()
                    mem.read_into(address, empty, physical)
                    assert empty == b""
                    assert mem.read_c_string(address, physical, max_size=0) == b""

    def test_negative_is_a_value_error(self, mem):
        for size in -1, -(1 << 62), -(1 << 63):
            with pytest.raises(ValueError, match="negative size"):
                mem.read(0x10000, size)
            with pytest.raises(ValueError, match="negative max_size"):
                mem.read_c_string(0x30000, max_size=size)

    def test_beyond_the_largest_is_an_overflow_error(self, mem):
        for size in 1 << 63, 1 << 64, 1 << 100, -(1 << 63) - 1, -(1 << 100):
            with pytest.raises(OverflowError):
                mem.read(0x10000, size)
            with pytest.raises(OverflowError):
                mem.read_c_string(0x30000, max_size=size)

    def test_more_than_there_is_memory_for(self, mem):
        # CPython's bytes: the largest can't have a header.
        with pytest.raises(OverflowError):
            mem.read(0x10000, (1 << 63) - 1)
        with pytest.raises(MemoryError):
            mem.read(0x10000, 1 << 62)

    def test_large_size_of_a_small_segment_costs_no_memory(self, run_python, path):
        # The kernel may promise so much, but nothing of it may be touched.
        code = """
import sys
import drgn_fastmem as fm
def resident():
    with open("/proc/self/status") as status:
        return [int(l.split()[1]) for l in status if l.startswith("VmHWM")][0]
mem = fm.open(sys.argv[1])
before = resident()
for size in 1 << 30, 1 << 36, 1 << 40, 1 << 46:
    try:
        mem.read(0x10000, size)
    except fm.FaultError as e:
        assert e.address == 0x13000
    except MemoryError:
        assert size > 1 << 30
    else:
        raise AssertionError(size)
try:
    mem.read_c_string(0x10000, max_size=(1 << 63) - 1)
except fm.FaultError:
    pass
print(resident() - before)
"""
        assert int(run_python(code, path).stdout) < 5 << 10

    @pytest.mark.parametrize("size", [8.0, "8", None, b"8", [8]])
    def test_what_is_no_size_is_a_type_error(self, mem, size):
        with pytest.raises(TypeError):
            mem.read(0x10000, size)
        if size is not None:
            with pytest.raises(TypeError):
                mem.read_c_string(0x30000, max_size=size)


class Index:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


# (method, arguments after the address)
READS = [
    ("read", (8,)),
    ("read_into", (bytearray(8),)),
    ("read_u8", ()),
    ("read_u16", ()),
    ("read_u32", ()),
    ("read_u64", ()),
    ("read_word", ()),
    ("read_c_string", ()),
    ("translate", ()),
]


@pytest.mark.parametrize("method, arguments", READS, ids=[name for name, _ in READS])
class TestAddresses:
    def test_outside_of_64_bits_is_an_overflow_error(self, mem, method, arguments):
        for address in (
            -1,
            -(1 << 63),
            -(1 << 64),
            1 << 64,
            (1 << 64) + 0x10000,
            1 << 200,
            Index(-1),
            Index(1 << 64),
        ):
            with pytest.raises(OverflowError):
                getattr(mem, method)(address, *arguments)

    def test_what_is_no_index_is_a_type_error(self, mem, method, arguments):
        for address in 65536.0, "65536", None, b"\0", [], Index("1"), Index(1.0):
            with pytest.raises(TypeError):
                getattr(mem, method)(address, *arguments)

    def test_index_objects_count(self, mem, method, arguments):
        call = getattr(mem, method)
        assert call(Index(0x10010), *arguments) == call(0x10010, *arguments)

    def test_bool_is_a_number(self, mem, method, arguments):
        with pytest.raises(fm.FaultError) as fault:
            getattr(mem, method)(True, *arguments)
        assert fault.value.address == 1

    def test_exception_of_an_index_comes_out(self, mem, method, arguments):
        class Broken:
            def __index__(self):
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            getattr(mem, method)(Broken(), *arguments)


class TestTheEndOfTheAddressSpace:
    def test_64_bit_reads_go_on_at_zero(self, core_file):
        path = core_file(
            """
            core elf64 little riscv
            load vaddr=0xfffffffffffff000 memsz=0x1000 fill=pattern:1
            load vaddr=0 memsz=0x1000 fill=pattern:2
            """
        )
        end = core_text.fill_bytes("pattern:1", 0x1000)
        begin = core_text.fill_bytes("pattern:2", 0x1000)
        with fm.open(path) as mem:
            assert mem.read((1 << 64) - 4, 8) == end[-4:] + begin[:4]
            assert mem.read_u8((1 << 64) - 1) == end[-1]
            number = int.from_bytes(end[-1:] + begin[:7], "little")
            assert mem.read_u64((1 << 64) - 1) == number
            buffer = bytearray(0x2000)
            mem.read_into((1 << 64) - 0x1000, buffer)
            assert buffer == end + begin
            with pytest.raises(fm.FaultError) as fault:
                mem.read((1 << 64) - 4, 0x1005)
            assert fault.value.address == 0x1000

    def test_32_bit_addresses_are_cut(self, core_file):
        path = core_file("core elf32 big ppc64\nload vaddr=0xfffffff0 memsz=0x10")
        data = core_text.fill_bytes("pattern:0", 0x10)
        with fm.open(path) as mem:
            assert mem.read(0xFFFFFFF0, 0x10) == data
            assert mem.read(0x12FFFFFFF0, 0x10) == data
            with pytest.raises(fm.FaultError) as fault:
                mem.read(0xFFFFFFFF, 2)
            assert fault.value.address == 0


@pytest.mark.parametrize(
    "value, physical",
    [
        (True, True),
        (False, False),
        (1, True),
        (0, False),
        ("yes", True),
        ("", False),
        (None, False),
        ([], False),
        ([0], True),
        (2.5, True),
    ],
)
def test_physical_is_anything_with_a_truth(core_file, value, physical):
    path = core_file(
        """
        core elf64 little riscv
        load vaddr=0x1000 paddr=0x2000 memsz=8 fill=text:virtual
        load vaddr=0x2000 paddr=0x1000 memsz=8 fill=text:physic.
        """
    )
    expected = b"physic.\0" if physical else b"virtual\0"
    with fm.open(path) as mem:
        assert mem.read(0x1000, 8, value) == expected
        assert mem.read(0x1000, 8, physical=value) == expected
        buffer = bytearray(8)
        mem.read_into(0x1000, buffer, value)
        assert buffer == expected
        assert mem.read_u64(0x1000, value) == int.from_bytes(expected, "little")
        assert mem.read_u8(0x1000, physical=value) == expected[0]
        assert mem.read_c_string(0x1000, value) == expected[:-1]


def test_physical_without_a_truth_is_its_own_exception(mem):
    class Neither:
        def __bool__(self):
            raise KeyError("mine")

    for method, arguments in READS:
        if method != "translate":
            with pytest.raises(KeyError, match="mine"):
                getattr(mem, method)(0x10000, *arguments, physical=Neither())


# -- Strings -------------------------------------------------------------------


@WAYS
class TestStrings:
    def test_max_size(self, path, mmap):
        with fm.open(path, mmap=mmap) as mem:
            string = b"twelve bytes"
            for max_size in range(15):
                expected = string[:max_size]
                assert mem.read_c_string(0x30000, max_size=max_size) == expected
            for max_size in (1 << 63) - 1, None, Index(12), True:
                limit = {True: 1}.get(max_size, 12)
                found = mem.read_c_string(0x30000, max_size=max_size)
                assert found == string[:limit]
            assert mem.read_c_string(0x3000C) == b""
            with pytest.raises(TypeError, match="at most 2 positional"):
                mem.read_c_string(0x30000, False, 4)

    def test_without_a_terminator_up_to_the_end_of_the_segment(self, core_file, mmap):
        path = core_file(
            """
            core elf64 little riscv
            load vaddr=0x1ff0 paddr=0x20 memsz=0x10 fill=byte:65
            """
        )
        with fm.open(path, mmap=mmap) as mem:
            for physical, first in (False, 0x1FF0), (True, 0x20):
                for size in 1, 0xF, 0x10:
                    read = mem.read_c_string(first, physical, max_size=size)
                    assert read == b"A" * size
                for size in 0x11, 0x1000, None:
                    with pytest.raises(fm.FaultError) as fault:
                        mem.read_c_string(first, physical, max_size=size)
                    assert fault.value.address == first + 0x10

    def test_over_pages_and_segments(self, core_file, mmap):
        path = core_file(
            r"""
            core elf64 little riscv
            load vaddr=0x1000 memsz=0x2100 fill=byte:66
            load vaddr=0x3100 memsz=0x400 fill="text:end\0"
            """
        )
        with fm.open(path, mmap=mmap) as mem:
            for first in 0x1000, 0x1001, 0x1FFF, 0x2F01, 0x30FF:
                expected = b"B" * (0x3100 - first) + b"end"
                assert mem.read_c_string(first) == expected
                exact = len(expected)
                assert mem.read_c_string(first, max_size=exact) == expected
                assert mem.read_c_string(first, max_size=exact - 1) == expected[:-1]

    def test_not_saved_bytes_are_a_fault_or_the_end(self, core_file, mmap):
        text = "load vaddr=0x1000 memsz=0x100 filesz=4 fill=text:abcd\n"
        user = core_file("core elf64 little riscv\n" + text, "user")
        with fm.open(user, mmap=mmap) as mem:
            assert mem.read_c_string(0x1000, max_size=4) == b"abcd"
            with pytest.raises(fm.FaultError) as fault:
                mem.read_c_string(0x1000)
            assert fault.value.address == 0x1004
        kernel = core_file("core elf64 little riscv\nlinux\n" + text, "kernel")
        with fm.open(kernel, mmap=mmap) as mem:
            assert mem.read_c_string(0x1000) == b"abcd"


# -- What a Memory says of itself ----------------------------------------------


class TestSegments:
    def test_each_field(self, path):
        with fm.open(path) as mem, fm.open(path, mmap="never") as never:
            expected = [
                (0x10000, 0x3000, 0x1000, PAGE, 0x3000, "user"),
                (0x20000, 0x2000, 0x8000, 4 * PAGE, 0x800, "user"),
                (0x30000, 0x20, None, 4 * PAGE + 0x800, 0x20, "user"),
            ]
            assert mem.segments == tuple((*s, "mmap") for s in expected)
            assert never.segments == tuple((*s, "pread") for s in expected)
            first = mem.segments[0]
            assert type(first) is fm.Segment
            assert (first.address, first.size) == (0x10000, 0x3000)
            assert (first.file_offset, first.file_size) == (PAGE, 0x3000)
            assert (first.kind, first.access) == ("user", "mmap")
            assert first.physical_address == 0x1000
            assert mem.segments[2].physical_address is None
            assert "physical_address=4096" in repr(first)

    def test_kinds_of_a_kernel_dump(self, core_file):
        path = core_file(
            """
            core elf64 little riscv
            linux
            load vaddr=0x1000 paddr=0 memsz=0x10
            load vaddr=0x2000 memsz=0x10
            load vaddr=0x3000 memsz=0x10 filesz=0
            """
        )
        with fm.open(path) as mem:
            assert [s.kind for s in mem.segments] == ["ram", "virtual", "virtual"]
            assert [s.physical_address for s in mem.segments] == [0, None, None]
            assert [s.access for s in mem.segments] == ["mmap", "mmap", "pread"]

    def test_physical_addresses_that_are_all_zero_are_none(self, core_file):
        path = core_file(
            """
            core elf64 little riscv
            load vaddr=0x1000 paddr=0 memsz=0x10
            load vaddr=0x2000 paddr=0 memsz=0x10
            """
        )
        with fm.open(path) as mem:
            assert [s.physical_address for s in mem.segments] == [None, None]

    def test_can_not_be_changed(self, mem):
        segments = mem.segments
        segment = segments[0]
        assert type(segments) is tuple
        with pytest.raises((AttributeError, TypeError)):
            segment.address = 0
        with pytest.raises(TypeError):
            segment[0] = 0
        with pytest.raises((AttributeError, TypeError)):
            segment.more = 0
        with pytest.raises((AttributeError, TypeError)):
            mem.segments = ()
        assert mem.segments == segments

    def test_none(self, core_file):
        with fm.open(core_file("core elf64 little x86_64")) as mem:
            assert mem.segments == ()
            with pytest.raises(fm.FaultError) as fault:
                mem.read_u8(5)
            assert fault.value.address == 5


PROPERTIES = [
    "segments",
    "stats",
    "path",
    "closed",
    "is_live",
    "translation",
    "is_64_bit",
    "is_little_endian",
]


class TestProperties:
    @pytest.mark.parametrize("name", PROPERTIES)
    def test_can_not_be_set_or_deleted(self, mem, name):
        before = getattr(mem, name)
        with pytest.raises((AttributeError, TypeError)):
            setattr(mem, name, before)
        with pytest.raises((AttributeError, TypeError)):
            delattr(mem, name)
        assert getattr(mem, name) == before

    def test_of_a_core_file(self, mem, path):
        assert mem.path == path
        assert mem.closed is False
        assert mem.is_live is False
        assert mem.is_64_bit is True
        assert mem.is_little_endian is True
        assert mem.translation == "none: not the memory of a 64-bit kernel"

    def test_path_in_each_form(self, path):
        with fm.open(path.encode()) as mem:
            assert mem.path == path.encode()
        with fm.open(Path(path)) as mem:
            assert mem.path == path
        with open(path, "rb") as file:
            with fm.open(file.fileno()) as mem:
                assert mem.path == f"descriptor {file.fileno()}"
                # The descriptor is its own.
                file.close()
                assert mem.read(0x10000, 8) == DATA[:8]

    def test_repr(self, path):
        with fm.open(path) as mem:
            assert repr(mem) == f"<drgn_fastmem.Memory of {path!r}, 3 segments, mapped>"
        assert repr(mem) == f"<drgn_fastmem.Memory of {path!r}, closed>"
        with fm.open(path.encode(), mmap="never") as mem:
            assert (
                repr(mem) == f"<drgn_fastmem.Memory of {path.encode()!r}, 3 segments>"
            )

    def test_with_block_gives_the_memory_itself(self, path):
        mem = fm.open(path)
        with mem as entered:
            assert entered is mem
            assert not mem.closed
        assert mem.closed
        # What stays true of a closed one.
        assert mem.path == path
        with pytest.raises(ValueError, match="closed"):
            with mem:
                raise AssertionError("entered")

    def test_exceptions_pass_through_a_with_block(self, path):
        assert fm.open(path).__exit__(None, None, None) is None
        with pytest.raises(KeyError, match="mine"):
            with fm.open(path):
                raise KeyError("mine")

    def test_type_can_not_be_called_or_given_attributes(self, mem):
        with pytest.raises(TypeError, match="cannot create"):
            fm.Memory()
        with pytest.raises(TypeError):
            type("Sub", (fm.Memory,), {})
        with pytest.raises(AttributeError):
            mem.mine = 1
        assert fm.Memory is core.Memory is type(mem)
        assert fm.Memory.__module__ == "drgn_fastmem"


# -- Counters ------------------------------------------------------------------


def stats(reads=0, bytes=0, faults=0, syscalls=0, mapped_reads=0, **others):
    counters = dict.fromkeys(STATS, 0)
    counters.update(reads=reads, bytes=bytes, faults=faults)
    counters.update(syscalls=syscalls, mapped_reads=mapped_reads, **others)
    assert list(counters) == STATS
    return fm.Stats(counters.values())


STATS = [
    "reads",
    "bytes",
    "faults",
    "syscalls",
    "mapped_reads",
    "sigbus",
    "walks",
    "tlb_hits",
    "cache_hits",
    "cache_misses",
    "coalesced",
    "gap_bytes",
]


class TestStats:
    def test_mapped(self, path):
        with fm.open(path) as mem:
            # fstat for the mapping's size, again for what it maps, mmap.
            assert mem.stats == stats(syscalls=3)
            assert type(mem.stats) is fm.Stats
            mem.read(0x10000, 100)
            assert mem.stats == stats(1, 100, 0, 3, 1)
            mem.read_into(0x10000, bytearray(50))
            mem.read_u8(0x10000)
            mem.read_u16(0x10000)
            mem.read_u32(0x10000)
            mem.read_u64(0x10000)
            mem.read_word(0x10000)
            mem.read_u32(0x1000, physical=True)
            assert mem.stats == stats(8, 177, 0, 3, 8)
            mem.read(0, 0)
            assert mem.stats == stats(8, 177, 0, 3, 8)
            # The terminator is not handed out.
            assert mem.read_c_string(0x30000) == b"twelve bytes"
            assert mem.stats == stats(9, 189, 0, 3, 9)

    def test_pread(self, path):
        with fm.open(path, mmap="never", max_age=0) as mem:
            assert mem.stats == stats()
            mem.read(0x10000, 100)
            mem.read_u64(0x10000)
            assert mem.stats == stats(2, 108, 0, 2, 0)
            assert mem.read_c_string(0x30000) == b"twelve bytes"
            assert mem.stats == stats(3, 120, 0, 3, 0)
            assert mem.reset_stats() is None
            assert mem.stats == stats()
            mem.read_u8(0x10000)
            assert mem.stats == stats(1, 1, 0, 1, 0)

    @WAYS
    def test_faults_hand_out_nothing(self, path, mmap):
        with fm.open(path, mmap=mmap, max_age=0) as mem:
            mem.reset_stats()
            for read in (
                lambda: mem.read(0, 8),
                lambda: mem.read_u64(0x40000),
                lambda: mem.read_into(0x20800, bytearray(8)),
                lambda: mem.read_c_string(0x40000),
                lambda: mem.read(0x207FF, 2),
                lambda: mem.read_u8(0x20000000, physical=True),
            ):
                with pytest.raises(fm.FaultError):
                    read()
            assert mem.stats == stats(6, 0, 6, 0, 0)
            # Refused before anything is read.
            for read in (
                lambda: mem.read(1 << 64, 8),
                lambda: mem.read(0x10000, -1),
                lambda: mem.read_u64("x"),
            ):
                with pytest.raises((OverflowError, ValueError, TypeError)):
                    read()
            assert mem.stats == stats(6, 0, 6, 0, 0)

    def test_a_read_over_two_segments_is_one_with_two_copies(self, core_file):
        path = core_file(
            """
            core elf64 little riscv
            load vaddr=0x1000 memsz=0x1000 fill=pattern:1
            load vaddr=0x2000 memsz=0x1000 fill=pattern:2
            """
        )
        with fm.open(path) as mem:
            mem.reset_stats()
            mem.read(0x1FF0, 0x20)
            assert mem.stats == stats(1, 0x20, 0, 0, 2)
            # One that ends in a fault has copied what is before it.
            with pytest.raises(fm.FaultError):
                mem.read(0x2FF0, 0x20)
            assert mem.stats == stats(2, 0x20, 1, 0, 3)
        with fm.open(path, mmap="never", max_age=0) as mem:
            mem.reset_stats()
            mem.read(0x1FF0, 0x20)
            assert mem.stats == stats(1, 0x20, 0, 2, 0)
        with fm.open(path, mmap="never") as mem:
            for _ in range(3):
                mem.read(0x1FF0, 0x20)
            assert mem.stats == stats(3, 0x60, 0, 2, 0, cache_hits=4, cache_misses=2)

    def test_from_64_kib_on_it_is_pread(self, core_file):
        path = core_file("core elf64 little riscv\nload vaddr=0 memsz=0x20000")
        with fm.open(path) as mem:
            mem.reset_stats()
            mem.read(0, 0xFFFF)
            assert mem.stats == stats(1, 0xFFFF, 0, 0, 1)
            mem.read(0, 0x10000)
            assert mem.stats == stats(2, 0x1FFFF, 0, 1, 1)

    def test_size_of_the_file_is_looked_at_every_1024_mapped_reads(self, path):
        with fm.open(path) as mem:
            mem.reset_stats()
            for _ in range(1023):
                mem.read_u8(0x10000)
            assert mem.stats.syscalls == 0
            mem.read_u8(0x10000)
            assert mem.stats == stats(1024, 1024, 0, 1, 1024)

    def test_are_a_snapshot_of_their_own_memory(self, path):
        with fm.open(path) as mem, fm.open(path) as other:
            before = mem.stats
            other_before = other.stats
            mem.read_u8(0x10000)
            assert before.reads == 0
            assert mem.stats.reads == 1
            assert other.stats == other_before
            other.reset_stats()
            assert mem.stats.reads == 1
            with pytest.raises((AttributeError, TypeError)):
                before.reads = 5


# -- Faults --------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize(
    "address, size, physical, fault",
    [
        (0x12FFF, 2, False, 0x13000),
        (0xFFFF, 2, False, 0xFFFF),
        (0x20000, 0x801, False, 0x20800),
        (0x20900, 1, False, 0x20900),
        (0x3FFF, 2, True, 0x4000),
        (0x8000, 0x2000, True, 0x8800),
        (0x30000, 8, True, 0x30000),
        ((1 << 64) - 1, 1, False, (1 << 64) - 1),
    ],
)
def test_fault_has_the_first_address_that_is_not_there(
    path, mmap, address, size, physical, fault
):
    with fm.open(path, mmap=mmap) as mem:
        with pytest.raises(fm.FaultError) as raised:
            mem.read(address, size, physical)
        assert raised.value.address == fault
        assert str(raised.value).endswith(f": {fault:#x}")


def test_fault_error_is_drgns():
    drgn = pytest.importorskip("drgn")
    assert fm.FaultError is drgn.FaultError


FAULT = """
import sys
if sys.argv[2] == "without":
    sys.modules["drgn"] = sys.modules["_drgn"] = None
import drgn_fastmem as fm
assert ("_drgn" in sys.modules and sys.modules["_drgn"] is not None) == (
    sys.argv[2] == "with"
)
mem = fm.open(sys.argv[1])
print(mem.read_u64(0x10000), mem.read_c_string(0x30000))
for read in (
    lambda: mem.read_u64(0xffffffffffffffff),
    lambda: mem.read(0x20000, 0x900),
    lambda: mem.read_c_string(0x1234, True),
    lambda: mem.translate(0x123),
):
    try:
        read()
    except fm.FaultError as e:
        print(str(e), repr(e), e.args, e.message, e.address)
        print(type(e).__name__, [t.__name__ for t in type(e).__mro__])
fault = fm.FaultError("text", 16)
print(fault, fault.args, fault.message, fault.address, repr(fault))
try:
    fm.FaultError("text")
except TypeError:
    print("wants an address")
try:
    fm.attach(None)
except (ImportError, TypeError) as e:
    print(sys.argv[2], type(e).__name__, file=sys.stderr)
"""


def test_without_drgn_everything_is_there_and_faults_look_the_same(run_python, path):
    pytest.importorskip("drgn")
    with_drgn = run_python(FAULT, path, "with")
    without = run_python(FAULT, path, "without")
    assert without.stdout == with_drgn.stdout
    lines = without.stdout.splitlines()
    assert lines[0] == f"{int.from_bytes(DATA[:8], 'little')} b'twelve bytes'"
    assert lines[1].endswith(" 18446744073709551615")
    assert lines[3].endswith(" 133120")
    assert lines[-2:] == [
        "text: 0x10 ('text', 16) text 16 FaultError('text', 16)",
        "wants an address",
    ]
    assert with_drgn.stderr == "with TypeError\n"
    assert without.stderr == "without ModuleNotFoundError\n"


# -- Threads and signals -------------------------------------------------------

# 128 MiB that cost nothing on disk.
BIG = """
core elf64 little riscv
load vaddr=0 memsz=0x8000000 fill=hole
"""

GIL = """
import sys, threading
import drgn_fastmem as fm

# Nobody is made to give the GIL up: who gets it was given it.
sys.setswitchinterval(1000)
mem = fm.open(sys.argv[1], mmap=sys.argv[2])
buffer = bytearray(16 << 20)
small = bytearray(0xffff)
go = threading.Lock()
go.acquire()
ran = []

def work():
    go.acquire()
    ran.append(True)

thread = threading.Thread(target=work)
thread.start()
go.release()
for _ in range(2000):
    mem.read_u64(0)
    mem.read_into(0, small)
print("small", bool(ran))
for count in range(200):
    mem.read_into(0, buffer)
    if ran:
        break
print("large", bool(ran))
thread.join()
"""


@WAYS
def test_other_threads_run_during_a_long_read_only(run_python, core_file, mmap):
    process = run_python(GIL, core_file(BIG), mmap)
    assert process.stdout == "small False\nlarge True\n"


SIGNAL = """
import mmap, os, signal, sys
import drgn_fastmem as fm

mem = fm.open(sys.argv[1])
size = 0x8000000
# Anonymous, so that only what was read costs memory; 0xff at both ends shows how
# far that is, since the file is zeros.
buffer = mmap.mmap(-1, size)
buffer[0] = buffer[-1] = 0xff

def where():
    return buffer[0] == 0, buffer[-1] == 0

seen = []
def handler(number, frame):
    seen.append(where())
    if sys.argv[2] == "raises" and seen[-1] == (True, False):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.default_int_handler(number, frame)

def alarm(number, frame):
    signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, handler)
signal.signal(signal.SIGALRM, alarm)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
try:
    mem.read_into(0, buffer)
except KeyboardInterrupt:
    print("interrupted")
else:
    signal.setitimer(signal.ITIMER_REAL, 0)
    print("read")
    assert buffer[-1] == 0
print(where(), (True, False) in seen)
# It goes on after that.
assert mem.read(size - 16, 16) == bytes(16)
buffer[0] = buffer[-1] = 0xff
mem.read_into(0, buffer)
assert where() == (True, True)
"""


def test_handler_of_a_signal_runs_during_a_long_read(run_python, core_file):
    process = run_python(SIGNAL, core_file(BIG), "returns")
    assert process.stdout == "read\n(True, True) True\n"


def test_sigint_ends_a_long_read(run_python, core_file):
    process = run_python(SIGNAL, core_file(BIG), "raises")
    assert process.stdout == "interrupted\n(True, False) True\n"


@WAYS
def test_threads_that_read_one_memory_get_right_bytes(core_file, mmap):
    path = core_file(
        "core elf64 little riscv\n"
        "load vaddr=0 paddr=0x1000000 memsz=0x8000 fill=pattern:1 repeat=32 "
        "step=0x8000\n"
    )
    size = 32 * 0x8000
    with Reference(path) as reference:
        data = reference.read(0, size)
    wrong = []
    begin = threading.Barrier(4)

    def work(seed):
        generator = random.Random(seed)
        begin.wait()
        for _ in range(3000):
            offset = generator.randrange(size - 8)
            what = generator.random()
            if what < 0.6:
                found = struct.pack("<Q", mem.read_u64(offset))
                count = 8
            elif what < 0.95:
                count = min(generator.randrange(1, 4096), size - offset)
                found = mem.read(offset + 0x1000000, count, physical=True)
            else:
                count = min(generator.randrange(0x10000, 0x30000), size - offset)
                found = bytearray(count)
                mem.read_into(offset, found)
            if found != data[offset : offset + count]:
                wrong.append((offset, count))

    with fm.open(path, mmap=mmap) as mem:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
