# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors
#
# "make help" lists the targets. Everything is built into .venv and build.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/installed
PACKAGES := tools/install-debian-packages.sh

SOURCES := $(wildcard ext/*.c ext/*.h python/drgn_fastmem/*) \
	setup.py pyproject.toml MANIFEST.in

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := build
.PHONY: help build demo test py-test c-test asan fuzz guest-dump guest-test \
	guest-test-all bench dist format clean packages-build

help:
	@echo "make             build and install into .venv"
	@echo "make demo        one script, drgn's reader and ours, compared"
	@echo "make test        the test suite"
	@echo "make asan        the C tests and the Python tests under sanitizers"
	@echo "make fuzz        fuzz the ELF reader for a minute"
	@echo "make guest-dump  dumps of a real kernel in build/guest"
	@echo "make guest-test  tests on real kernels and on those dumps"
	@echo "make guest-test-all  the same on dumps of every page table geometry (GBs)"
	@echo "make bench       benchmarks against drgn"
	@echo "make dist        sdist and wheel, each tried in a clean venv"
	@echo "make format      clang-format"

build: packages-build $(STAMP)

packages-build:
	@$(PACKAGES) tools/packages-build.txt

$(PY):
	@$(PACKAGES) tools/packages-build.txt
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(PY) $(SOURCES)
	$(PY) -m pip install -q '.[drgn,test]'
	@touch $@

demo: build
	@$(PACKAGES) tools/packages-demo.txt
	$(PY) benchmarks/demo/demo.py $(if $(DUMP),--dump $(DUMP)) \
		$(if $(VMLINUX),--vmlinux $(VMLINUX))

# Runs everything even if something fails, and adds up what the parts say.
test: build
	@$(PACKAGES) tools/packages-test.txt
	$(PY) tools/run_tests.py python c

py-test: build
	$(PY) -m pytest tests --ignore=tests/guest

c-test:
	$(MAKE) -C tests/c test

asan: build
	$(MAKE) -C tests/c asan
	tests/c/python-asan.sh

fuzz:
	$(MAKE) -C tests/c fuzz

guest-dump: build
	@$(PACKAGES) tests/guest/packages.txt
	$(PY) -m tests.guest dump

guest-test: build
	@$(PACKAGES) tests/guest/packages.txt
	$(PY) tools/run_tests.py guest

guest-test-all:
	GUEST_DUMPS=all $(MAKE) guest-test

bench: build
	@$(PY) -c 'import pyperf' 2>/dev/null || $(PY) -m pip install -q '.[bench]'
	@status=0; for name in read attach dump vector; do \
		$(PY) benchmarks/bench_$$name.py || status=1; \
	done; exit $$status

dist: build
	tools/check-dist.sh $(PYTHON)

format:
	clang-format -i ext/*.c ext/*.h tests/c/*.c tests/c/*.h

clean:
	rm -rf $(VENV) build dist python/*.egg-info
