// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * The program whose core file the demo reads: 200,000 nodes, each on a linked
 * list and in a binary tree, each with a string.
 */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NR_NODES = 200000 };

struct node {
	struct node *next;
	struct node *left, *right;
	unsigned long key;
	const char *name;
};

struct node *list_head;
struct node *tree_root;
unsigned long nr_nodes;

static void insert(struct node *node)
{
	struct node **link = &tree_root;

	while (*link)
		link = node->key < (*link)->key ? &(*link)->left :
						  &(*link)->right;
	*link = node;
}

int main(void)
{
	unsigned long key = 1;

	for (nr_nodes = 0; nr_nodes < NR_NODES; nr_nodes++) {
		struct node *node = calloc(1, sizeof(*node));
		char *name = malloc(32);

		if (!node || !name)
			return 1;
		/* Knuth's multiplier: keys in no order, the same each time. */
		key = key * 6364136223846793005UL + 1442695040888963407UL;
		node->key = key >> 16;
		snprintf(name, 32, "node %lu", node->key % 1000000);
		node->name = name;
		node->next = list_head;
		list_head = node;
		insert(node);
	}
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
