# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The scripts of the demo, as anybody would write them for drgn. Each takes a
Program and yields lines of text."""

import hashlib

from drgn import cast


def objects_list(prog):
    """The list of objects.c: keys and names, node by node."""
    digest = hashlib.sha256()
    count = 0
    node = prog["list_head"].read_()
    while node:
        digest.update(b"%d %s\n" % (node.key.value_(), node.name.string_()))
        count += 1
        node = node.next.read_()
    yield f"list: {count} nodes, sha256 {digest.hexdigest()}"


def objects_tree(prog):
    """The tree of objects.c, in order."""
    digest = hashlib.sha256()
    count = 0
    stack = []
    node = prog["tree_root"].read_()
    while stack or node:
        while node:
            stack.append(node)
            node = node.left.read_()
        node = stack.pop()
        digest.update(b"%d\n" % node.key.value_())
        count += 1
        node = node.right.read_()
    yield f"tree: {count} nodes, sha256 {digest.hexdigest()}"


def kernel_tasks(prog):
    from drgn.helpers.linux.pid import for_each_task

    for task in for_each_task(prog):
        yield f"task {task.pid.value_()} {task.comm.string_().decode(errors='replace')}"


def kernel_dentries(prog):
    """The names of the first 20,000 dentries below the root."""
    from drgn.helpers.linux.list import hlist_for_each_entry, list_for_each_entry

    root = prog["init_task"].fs.root.dentry.read_()
    new = root.type_.type.has_member("d_children")
    todo = [root]
    left = 20000
    while todo and left:
        dentry = todo.pop()
        left -= 1
        yield "dentry " + dentry.d_name.name.string_().decode(errors="replace")
        if new:
            # Linux commit da549bdd15c2 (v6.8) made the children an hlist.
            children = hlist_for_each_entry(
                "struct dentry", dentry.d_children.address_of_(), "d_sib"
            )
        else:
            children = list_for_each_entry(
                "struct dentry", dentry.d_subdirs.address_of_(), "d_child"
            )
        todo.extend(cast("struct dentry *", child) for child in children)


OBJECTS = (objects_list, objects_tree)
KERNEL = (kernel_tasks, kernel_dentries)
