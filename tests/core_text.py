# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

r"""ELF core files written from readable text, for the tests.

    core elf64 little x86_64
    linux osrelease=6.1.0
    load vaddr=0xffff888000000000 paddr=0 memsz=0x3000 filesz=0x2000 fill=pattern:7
    load vaddr=0xffffffff81000000 paddr=none memsz=0x1000 offset=page fill="text:Hello\0"
    file size=0x2400

One statement a line, words as in a shell, `#` starts a comment. The program
headers come out in the order of the lines. Statements:

core CLASS ORDER MACHINE
    elf32|elf64, little|big, a name in MACHINES or a number. Comes first.
linux [osrelease=] [pagesize=] [swapper_pg_dir=]
    a VMCOREINFO note with all that drgn wants to see in one. See linux_note().
note NAME [type=0] [text=] [align=4]
    notes that follow each other share one PT_NOTE.
load vaddr= memsz= [filesz=memsz] [paddr=none] [offset=auto] [fill=pattern:0]
     [flags=7] [align=0] [type=1] [repeat=1] [step=0]
    one program header, or `repeat` of them whose p_vaddr and p_paddr are `step`
    apart and whose seeds count up. offset=auto puts the bytes right after what is
    there so far, offset=page at the next multiple of 4096, a number right there.
data offset= size= fill=
    bytes in the file that no program header stands for.
header FIELD=VALUE ...
    a field of the ELF header (or sh_info of section header 0) that lies.
    extended=yes uses PN_XNUM although the headers would fit.
file size=N
    the file is cut, or grown by a hole, to this size.

fill is pattern:SEED (random bytes), strings:SEED (short C strings), byte:N,
text:TEXT (then zeros), or hole (nothing is written). Core is the same thing as
an object; str(core) is its text and parse() reads that back.

Builds input only: it never reads a core file. That is reference.py.
"""

from dataclasses import dataclass, field, replace
import random
import re
import shlex
import struct
from typing import Dict, List, Optional, Tuple, Union

# ELF specification (gABI 4.1) and its registry of machines.
MACHINES = {
    "i386": 3,
    "ppc64": 21,
    "s390": 22,
    "arm": 40,
    "x86_64": 62,
    "aarch64": 183,
    "riscv": 243,
    "loongarch": 258,
}
ET_CORE = 4
PT_LOAD = 1
PT_NOTE = 4
PN_XNUM = 0xFFFF
PAGE = 4096
# Include/uapi/linux/elf.h; in /proc/kcore since its first version.
NT_TASKSTRUCT = 4

# A test that wants more than this in a file has made a mistake; fill=hole is
# there for large segments.
MAX_WRITTEN = 64 << 20

EHDR_FIELDS = (
    "e_type e_machine e_version e_entry e_phoff e_shoff e_flags e_ehsize "
    "e_phentsize e_phnum e_shentsize e_shnum e_shstrndx"
).split()
IDENT_FIELDS = {"ei_mag0": 0, "ei_class": 4, "ei_data": 5, "ei_version": 6}


class CoreTextError(ValueError):
    """The text, or the core that it describes, makes no sense."""


def fill_bytes(fill: str, size: int) -> Optional[bytes]:
    """The bytes that a fill stands for, None for a hole."""
    kind, colon, argument = fill.partition(":")
    if kind == "hole" and not colon:
        return None
    if size > MAX_WRITTEN:
        raise CoreTextError(f"{size:#x} bytes to write; use fill=hole")
    if kind == "pattern":
        return random.Random(_number("seed", argument)).randbytes(size)
    if kind == "strings":
        generator = random.Random(_number("seed", argument))
        result = bytearray()
        while len(result) < size:
            result += bytes(
                generator.randrange(1, 256) for _ in range(generator.randrange(24))
            )
            result.append(0)
        return bytes(result[:size])
    if kind == "byte":
        return bytes([_number("byte", argument, 0xFF)]) * size
    if kind == "text" and colon:
        text = _unescape(argument)
        if len(text) > size:
            raise CoreTextError(f"text of {len(text)} bytes in {size}")
        return text.ljust(size, b"\0")
    raise CoreTextError(f"unknown fill {fill!r}")


def linux_note(
    osrelease: str = "6.1.0",
    pagesize: int = PAGE,
    swapper_pg_dir: int = 0xFFFFFFFF82000000,
) -> "Note":
    """The smallest VMCOREINFO note that drgn 0.3.0 accepts.

    It wants OSRELEASE, PAGESIZE (a power of two) and SYMBOL(swapper_pg_dir):
    libdrgn/drgn_program_parse_vmcoreinfo.inc.strswitch.
    """
    return Note(
        "VMCOREINFO",
        desc=(
            f"OSRELEASE={osrelease}\n"
            f"PAGESIZE={pagesize}\n"
            f"SYMBOL(swapper_pg_dir)={swapper_pg_dir:x}\n"
        ).encode(),
    )


@dataclass(frozen=True)
class Note:
    name: str
    type: int = 0
    desc: bytes = b""
    align: int = 4

    def __str__(self) -> str:
        words = ["note", self.name]
        if self.type:
            words.append(f"type={self.type}")
        if self.desc:
            words.append(f"text={_escape(self.desc)}")
        if self.align != 4:
            words.append(f"align={self.align}")
        return _join(words)


@dataclass(frozen=True)
class Load:
    vaddr: int
    memsz: int
    filesz: Optional[int] = None  # None: memsz
    paddr: Optional[int] = None  # None: all ones, "no physical address"
    offset: Union[int, str] = "auto"
    fill: str = "pattern:0"
    flags: int = 7
    align: int = 0
    type: int = PT_LOAD

    @property
    def file_size(self) -> int:
        return self.memsz if self.filesz is None else self.filesz

    def __str__(self) -> str:
        words = ["load"]
        if self.type != PT_LOAD:
            words.append(f"type={self.type:#x}")
        words.append(f"vaddr={self.vaddr:#x}")
        if self.paddr is not None:
            words.append(f"paddr={self.paddr:#x}")
        words.append(f"memsz={self.memsz:#x}")
        if self.filesz is not None:
            words.append(f"filesz={self.filesz:#x}")
        if self.offset != "auto":
            offset = self.offset
            words.append(
                f"offset={offset if isinstance(offset, str) else hex(offset)}"
            )
        words.append(f"fill={self.fill}")
        if self.flags != 7:
            words.append(f"flags={self.flags}")
        if self.align:
            words.append(f"align={self.align:#x}")
        return _join(words)


@dataclass(frozen=True)
class Data:
    offset: int
    size: int
    fill: str

    def __str__(self) -> str:
        return _join(
            ["data", f"offset={self.offset:#x}", f"size={self.size:#x}"]
            + [f"fill={self.fill}"]
        )


@dataclass(frozen=True)
class Core:
    bits: int = 64
    order: str = "little"
    machine: int = MACHINES["x86_64"]
    parts: Tuple[Union[Note, Load, Data], ...] = ()
    header: Dict[str, int] = field(default_factory=dict)
    extended: bool = False
    size: Optional[int] = None

    def __str__(self) -> str:
        names = {number: name for name, number in MACHINES.items()}
        machine = names.get(self.machine, f"{self.machine:#x}")
        lines = [f"core elf{self.bits} {self.order} {machine}"]
        lines += map(str, self.parts)
        header = [f"{key}={value:#x}" for key, value in self.header.items()]
        if self.extended:
            header.append("extended=yes")
        if header:
            lines.append(_join(["header"] + header))
        if self.size is not None:
            lines.append(f"file size={self.size:#x}")
        return "\n".join(lines) + "\n"

    # So that a failing example of hypothesis can be pasted into a test.
    def __repr__(self) -> str:
        return f'parse(r"""\n{self}""")'

    def _repr_pretty_(self, printer, cycle) -> None:
        printer.text(repr(self))

    @property
    def loads(self) -> List[Load]:
        return [part for part in self.parts if isinstance(part, Load)]

    def write(self, path) -> "Core":
        """Write the core to a new file at path; holes stay holes."""
        size, chunks = self._layout()
        with open(path, "wb") as file:
            for offset, data in chunks:
                if self.size is None or offset < self.size:
                    file.seek(offset)
                    file.write(data)
            file.truncate(size if self.size is None else self.size)
        return self

    def _layout(self) -> Tuple[int, List[Tuple[int, bytes]]]:
        """The size of the whole file, and the bytes to write in order."""
        word = "I" if self.bits == 32 else "Q"
        endian = "<" if self.order == "little" else ">"
        ehdr = struct.Struct(f"{endian}16sHHI{word * 3}IHHHHHH")
        shdr = struct.Struct(f"{endian}II{word * 4}II{word * 2}")
        phdr = struct.Struct(endian + ("IIQQQQQQ" if self.bits == 64 else "IIIIIIII"))

        groups = self._program_headers()
        extended = self.extended or len(groups) >= PN_XNUM
        position = ehdr.size + phdr.size * len(groups)
        shoff = position if extended else 0
        position += shdr.size if extended else 0

        chunks: List[Tuple[int, bytes]] = []
        headers: List[bytes] = []
        for group in groups:
            if isinstance(group, Load):
                offset, data = self._place(group, position)
            else:
                data = b"".join(_note_bytes(note, endian) for note in group)
                offset = _round_up(position, group[0].align)
                group = Load(
                    vaddr=0,
                    paddr=0,
                    memsz=0,
                    filesz=len(data),
                    flags=4,
                    align=group[0].align,
                    type=PT_NOTE,
                )
            headers.append(self._phdr(phdr, group, offset))
            if data is not None:
                chunks.append((offset, data))
            # A segment at a place of its own does not move the ones after it.
            if not isinstance(group.offset, int):
                position = offset + group.file_size
        for part in self.parts:
            if isinstance(part, Data):
                data = fill_bytes(part.fill, part.size)
                if data is not None:
                    chunks.append((part.offset, data))
                position = max(position, part.offset + part.size)

        fields = {
            "e_type": ET_CORE,
            "e_machine": self.machine,
            "e_version": 1,
            "e_phoff": ehdr.size if groups else 0,
            "e_shoff": shoff,
            "e_ehsize": ehdr.size,
            "e_phentsize": phdr.size,
            "e_phnum": PN_XNUM if extended else len(groups),
            "e_shentsize": shdr.size if extended else 0,
            "e_shnum": 1 if extended else 0,
        }
        fields.update((k, v) for k, v in self.header.items() if k in EHDR_FIELDS)
        ident = bytearray(b"\x7fELF".ljust(16, b"\0"))
        ident[4:7] = bytes([self.bits // 32, 1 if self.order == "little" else 2, 1])
        for name, index in IDENT_FIELDS.items():
            ident[index] = self.header.get(name, ident[index])
        head = _pack(
            "ELF header", ehdr, bytes(ident), *(fields.get(f, 0) for f in EHDR_FIELDS)
        )
        head += b"".join(headers)
        if extended:
            # The kernel (fs/binfmt_elf.c, fill_extnum_info) puts the number of
            # program headers into sh_info of section header 0.
            info = self.header.get("sh_info", len(groups))
            head += _pack("section header", shdr, *([0] * 5), 1, 0, info, 0, 0)
        end = max([position, len(head)] + [o + len(d) for o, d in chunks])
        # The headers first: a segment may lie on top of them.
        return end, [(0, head)] + chunks

    def _program_headers(self) -> List[Union[Load, List[Note]]]:
        groups: List[Union[Load, List[Note]]] = []
        for part in self.parts:
            if isinstance(part, Load):
                groups.append(part)
            elif isinstance(part, Note):
                if groups and isinstance(groups[-1], list):
                    groups[-1].append(part)
                else:
                    groups.append([part])
        return groups

    @staticmethod
    def _place(load: Load, position: int) -> Tuple[int, Optional[bytes]]:
        if load.offset == "auto":
            offset = position
        elif load.offset == "page":
            offset = _round_up(position, PAGE)
        elif isinstance(load.offset, int):
            offset = load.offset
        else:
            raise CoreTextError(f"offset={load.offset!r} is not auto, page or a number")
        return offset, fill_bytes(load.fill, load.file_size)

    def _phdr(self, phdr: struct.Struct, load: Load, offset: int) -> bytes:
        paddr = (1 << self.bits) - 1 if load.paddr is None else load.paddr
        values = [offset, load.vaddr, paddr, load.file_size, load.memsz]
        if self.bits == 64:
            values = [load.type, load.flags] + values + [load.align]
        else:
            values = [load.type] + values + [load.flags, load.align]
        return _pack(f"program header of {load}", phdr, *values)


def parse(text: str) -> Core:
    """The core that the text describes, or a CoreTextError with the line."""
    core: Optional[Core] = None
    parts: List[Union[Note, Load, Data]] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
            if not words:
                continue
            if words[0] == "core":
                if core is not None:
                    raise CoreTextError("a second core")
                core = _parse_core(words[1:])
            elif core is None:
                raise CoreTextError("the first statement must be core")
            elif words[0] in _PARTS:
                parts += _PARTS[words[0]](words[1:])
            elif words[0] == "header":
                core = _parse_header(core, _options(words[1:], EHDR_FIELDS))
            elif words[0] == "file":
                options = _options(words[1:], ["size"])
                core = replace(core, size=_number("size", options.get("size", "")))
            else:
                raise CoreTextError(f"unknown statement {words[0]!r}")
        except ValueError as error:
            raise CoreTextError(f"line {number}: {error}") from None
    if core is None:
        raise CoreTextError("no core statement")
    return replace(core, parts=tuple(parts))


def write(path, text: str) -> Core:
    """parse() and Core.write() in one."""
    return parse(text).write(path)


def _parse_core(words: List[str]) -> Core:
    if len(words) != 3 or words[0] not in ("elf32", "elf64"):
        raise CoreTextError("usage: core elf32|elf64 little|big MACHINE")
    if words[1] not in ("little", "big"):
        raise CoreTextError(f"byte order {words[1]!r} is not little or big")
    machine = MACHINES.get(words[2])
    if machine is None:
        machine = _number("machine", words[2], 0xFFFF)
    return Core(bits=int(words[0][3:]), order=words[1], machine=machine)


def _parse_header(core: Core, options: Dict[str, str]) -> Core:
    if options.pop("extended", None):
        core = replace(core, extended=True)
    header = {key: _number(key, value) for key, value in options.items()}
    return replace(core, header={**core.header, **header})


def _parse_linux(words: List[str]) -> List[Note]:
    options = _options(words, ["osrelease", "pagesize", "swapper_pg_dir"])
    numbers = {k: _number(k, v) for k, v in options.items() if k != "osrelease"}
    return [linux_note(options.get("osrelease", "6.1.0"), **numbers)]


def _parse_note(words: List[str]) -> List[Note]:
    if not words or "=" in words[0]:
        raise CoreTextError("usage: note NAME [type=] [text=] [align=]")
    options = _options(words[1:], ["type", "text", "align"])
    align = _number("align", options.get("align", "4"))
    if align not in (4, 8):
        raise CoreTextError("notes are aligned to 4 or 8")
    return [
        Note(
            words[0],
            _number("type", options.get("type", "0"), 0xFFFFFFFF),
            _unescape(options.get("text", "")),
            align,
        )
    ]


def _parse_load(words: List[str]) -> List[Load]:
    numbers = ["vaddr", "memsz", "filesz", "flags", "align", "type"]
    options = _options(
        words, numbers + ["paddr", "offset", "fill", "repeat", "step"]
    )
    for key in "vaddr", "memsz":
        if key not in options:
            raise CoreTextError(f"load without {key}=")
    values = {k: _number(k, options[k]) for k in numbers if k in options}
    paddr = options.get("paddr", "none")
    load = Load(
        paddr=None if paddr == "none" else _number("paddr", paddr),
        fill=options.get("fill", "pattern:0"),
        **values,
    )
    offset = options.get("offset", "auto")
    if offset not in ("auto", "page"):
        load = replace(load, offset=_number("offset", offset))
    else:
        load = replace(load, offset=offset)
    repeat = _number("repeat", options.get("repeat", "1"))
    step = _number("step", options.get("step", "0"))
    kind, _, seed = load.fill.partition(":")
    seeded = kind in ("pattern", "strings")
    return [
        replace(
            load,
            vaddr=load.vaddr + i * step,
            paddr=None if load.paddr is None else load.paddr + i * step,
            fill=f"{kind}:{_number('seed', seed) + i}" if seeded and i else load.fill,
        )
        for i in range(repeat)
    ]


def _parse_data(words: List[str]) -> List[Data]:
    options = _options(words, ["offset", "size", "fill"])
    try:
        return [
            Data(
                _number("offset", options["offset"]),
                _number("size", options["size"]),
                options["fill"],
            )
        ]
    except KeyError as missing:
        raise CoreTextError(f"data without {missing.args[0]}=") from None


_PARTS = {
    "linux": _parse_linux,
    "note": _parse_note,
    "load": _parse_load,
    "data": _parse_data,
}


def _options(words: List[str], known) -> Dict[str, str]:
    options: Dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        header = known is EHDR_FIELDS and (
            key in ("extended", "sh_info") or key in IDENT_FIELDS
        )
        if not equals or not (key in known or header):
            raise CoreTextError(f"unknown word {word!r}")
        if key in options:
            raise CoreTextError(f"{key}= twice")
        options[key] = value
    return options


def _number(name: str, text: str, maximum: int = (1 << 64) - 1) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        raise CoreTextError(f"{name}={text!r} is not a number") from None
    if not 0 <= value <= maximum:
        raise CoreTextError(f"{name}={text} is not in 0..{maximum:#x}")
    return value


def _pack(what: str, layout: struct.Struct, *values) -> bytes:
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise CoreTextError(f"{what}: {error}") from None


def _note_bytes(note: Note, endian: str) -> bytes:
    name = note.name.encode() + b"\0"
    data = struct.pack(f"{endian}III", len(name), len(note.desc), note.type) + name
    data = data.ljust(_round_up(len(data), note.align), b"\0") + note.desc
    return data.ljust(_round_up(len(data), note.align), b"\0")


def _round_up(value: int, align: int) -> int:
    return (value + align - 1) // align * align


def _unescape(text: str) -> bytes:
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1")


def _escape(data: bytes) -> str:
    text = data.decode("latin-1").encode("unicode_escape").decode("ascii")
    # shlex leaves a backslash alone between single quotes.
    return text.replace("'", r"\x27")


def _join(words: List[str]) -> str:
    plain = re.compile(r"[\w=:.,+-]+\Z")
    return " ".join(w if plain.match(w) else f"'{w}'" for w in words)
