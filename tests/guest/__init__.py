# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Real kernels: Debian's stock ones, booted in an emulator, and their dumps."""
