# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""What the code keeps to: one-way layers, nothing exported but the module's init
function, no state that is not a Python object's, a licence in every file.

Each check is a function from a tree or a library to a list of complaints, so that
the last tests here can show that each can fail.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
EXT = CHECKOUT / "ext"

# A file belongs to the layer whose prefix is the longest that fits its name.
LAYERS = [
    ("util", "alloc", "cleanup", "error", "radix"),
    ("source", "fault_guard", "file_lock"),
    ("segment_index", "elf_core", "vmcoreinfo"),
    ("page_cache", "mmu"),
    ("translate", "tlb", "planner"),
    ("memory",),
    ("overlay", "drgn_api"),
    ("py", "module"),
]
PYTHON_LAYER = len(LAYERS) - 1
MOST_LINES = 800

# What may be written to while the extension runs, and why.
WRITABLE = {
    "fm_fault_guard": "the state of the process-wide signal handler",
    "fm_fault_guard_passed_on": "per thread: a foreign signal on its way",
    r"fm_py_(\w+_)?(functions|methods|members|getset)": "PyMethodDef and the like: "
    "CPython takes no const ones",
    r"fm_py_(\w+_)?(slots|spec|fields|desc)": "what types are made of, the same",
    "fm_py_module": "PyModuleDef, which CPython counts references of",
    r"__dso_handle|__TMC_END__|completed\.\d+": "of the compiler's start files",
}


def layer_of(name):
    """The layer of a file in ext/, None if it has no place."""
    stem = name.rsplit(".", 1)[0]
    found = [
        (len(prefix), number)
        for number, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if stem == prefix or stem.startswith(prefix + "_")
    ]
    return max(found)[1] if found else None


def sources(directory):
    return sorted(path for path in directory.iterdir() if path.suffix in (".c", ".h"))


def includes(path, pattern):
    return re.findall(rf"^\s*#\s*include\s+{pattern}", path.read_text(), re.MULTILINE)


def wrong_includes(ext):
    complaints = []
    for path in sources(ext):
        layer = layer_of(path.name)
        if layer is None:
            complaints.append(f"{path.name} has no place in LAYERS")
            continue
        for name in includes(path, '"([^"]+)"'):
            if not (ext / name).exists():
                complaints.append(f"{path.name} includes {name}, which is not there")
            elif layer_of(name) is None or layer_of(name) > layer:
                complaints.append(f"{path.name} includes {name} of a higher layer")
        if layer != PYTHON_LAYER and includes(path, r"[<\"](Python|structmember)\.h"):
            complaints.append(f"{path.name} includes Python's headers")
    return complaints


def circular_includes(ext):
    graph = {path.name: includes(path, '"([^"]+)"') for path in sources(ext)}
    complaints = []
    done = set()

    def visit(name, above):
        if name in above:
            circle = [*above[above.index(name) :], name]
            complaints.append(" -> ".join(circle))
        elif name not in done:
            for included in graph.get(name, ()):
                visit(included, [*above, name])
            done.add(name)

    for name in graph:
        visit(name, [])
    return complaints


def exported(library):
    text = run("nm", "--dynamic", "--defined-only", "--format=posix", library)
    return sorted(line.split()[0] for line in text.splitlines())


def writable(library):
    """Names of what is in memory that stays writable after loading."""
    sections = {}
    for number, name, flags in re.findall(
        r"^ +\[ *(\d+)\] (\S+) +\S+ +\w+ +\w+ +\w+ +\w+ +(\w*) ",
        run("readelf", "--sections", "--wide", library),
        re.MULTILINE,
    ):
        sections[number] = name, flags
    # .data.rel.ro is read-only once it is relocated.
    written = {
        number
        for number, (name, flags) in sections.items()
        if "W" in flags and re.match(r"\.(data|bss|tdata|tbss)(?!\.rel\.ro)", name)
    }
    assert written
    return sorted(
        name
        for section, name in re.findall(
            r"^ *\d+: \w+ +\w+ +(?:OBJECT|TLS) +\w+ +\w+ +(\d+) (\S+)",
            run("readelf", "--symbols", "--wide", library),
            re.MULTILINE,
        )
        if section in written
    )


def wrong_state(library):
    return [
        name
        for name in writable(library)
        if not any(re.fullmatch(pattern, name) for pattern in WRITABLE)
    ]


def without_licence(root, names):
    complaints = []
    for name in names:
        head = "\n".join((root / name).read_text().splitlines()[:4])
        if "SPDX-License-Identifier: " not in head or "Copyright (c) " not in head:
            complaints.append(name)
    return complaints


def too_long(ext):
    return [
        path.name
        for path in sources(ext)
        if len(path.read_text().splitlines()) > MOST_LINES
    ]


def run(*command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not there (Debian package binutils)")
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        [str(word) for word in command],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    ).stdout


@pytest.fixture
def library():
    import drgn_fastmem._core

    return drgn_fastmem._core.__file__


def test_a_file_includes_only_its_own_and_lower_layers():
    assert wrong_includes(EXT) == []


def test_every_layer_has_files():
    assert {layer_of(path.name) for path in sources(EXT)} == set(range(len(LAYERS)))


def test_no_file_includes_itself_through_others():
    assert circular_includes(EXT) == []


def test_no_file_is_too_long():
    assert too_long(EXT) == []


def test_only_the_init_function_is_exported(library):
    assert exported(library) == ["PyInit__core"]


def test_nothing_is_writable_but_what_has_a_reason(library):
    assert wrong_state(library) == []
    # Else the symbols were not read.
    assert "fm_fault_guard" in writable(library)


def test_every_source_file_says_its_licence():
    names = [
        str(path.relative_to(CHECKOUT))
        for directory in ("ext", "python/drgn_fastmem", "tests", "benchmarks", "tools")
        for path in sorted((CHECKOUT / directory).rglob("*"))
        if path.suffix in (".c", ".h", ".py", ".pyi", ".sh")
        and "egg-info" not in str(path)
    ]
    assert len(names) > 60
    names += ["setup.py", "pyproject.toml", "Makefile", ".ci/run", "tests/c/Makefile"]
    assert without_licence(CHECKOUT, names) == []


class TestEachCheckCanFail:
    @pytest.fixture
    def ext(self, tmp_path):
        """A tree without complaints."""
        for name, text in (
            ("util.h", ""),
            ("memory.h", '#include "util.h"\n'),
            ("py.h", '#include <Python.h>\n#include "memory.h"\n'),
        ):
            (tmp_path / name).write_text(text)
        assert wrong_includes(tmp_path) == circular_includes(tmp_path) == []
        return tmp_path

    def test_on_an_include_of_a_higher_layer(self, ext):
        (ext / "util.h").write_text('#  include "memory.h"\n')
        assert wrong_includes(ext) == ["util.h includes memory.h of a higher layer"]
        assert circular_includes(ext) == ["memory.h -> util.h -> memory.h"]

    def test_on_python_below_its_layer(self, ext):
        (ext / "memory.c").write_text("#include <Python.h>\n")
        assert wrong_includes(ext) == ["memory.c includes Python's headers"]

    def test_on_a_file_without_a_place(self, ext):
        (ext / "helpers.c").write_text("")
        assert wrong_includes(ext) == ["helpers.c has no place in LAYERS"]

    def test_on_a_file_that_is_too_long(self, ext):
        (ext / "memory.c").write_text("\n" * (MOST_LINES + 1))
        assert too_long(ext) == ["memory.c"]

    def test_on_a_file_without_a_licence(self, ext):
        assert without_licence(ext, ["util.h"]) == ["util.h"]

    def test_on_an_export_and_on_state(self, tmp_path):
        if shutil.which("gcc") is None:
            pytest.skip("gcc is not there")
        source = tmp_path / "state.c"
        source.write_text(
            "static int counter, fm_py_counter, fm_py_methods[4];\n"
            "static _Thread_local int per_thread;\n"
            "const int constant = 1;\n"
            "static const int *const relocated[] = {&constant};\n"
            "int fm_count(int i) "
            "{ return ++counter + ++fm_py_counter + ++fm_py_methods[i] + ++per_thread"
            " + *relocated[i]; }\n"
        )
        library = tmp_path / "state.so"
        run("gcc", "-shared", "-fPIC", source, "-o", library)
        assert exported(library) == ["constant", "fm_count"]
        assert wrong_state(library) == ["counter", "fm_py_counter", "per_thread"]
