# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""What the tests on real kernels share. live/ is for the inside of a guest; outside
test_live.py boots one and reports what its tests said."""

import os

import pytest

if "GUEST_SERIES" not in os.environ:
    collect_ignore = ["live"]


@pytest.fixture(scope="session")
def dumps():
    from . import dump

    return dump.make()
