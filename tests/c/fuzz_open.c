// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Opens core files that nobody vouches for and reads around every edge of them.
 *
 * fuzz_open [SECONDS]: a mutator of its own over seeds that are built here,
 * with the same numbers each time; 20,000 files without an argument. With
 * clang, -fsanitize=fuzzer and -DFM_LIBFUZZER it is a libFuzzer target.
 *
 * What it looks for: crashes and sanitizer reports; reads through the mapping
 * and with pread that do not agree; faults outside of the range that was read.
 */

#include <elf.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "test.h"

enum { MAX_FILE = 1 << 16, MAX_READ = 9000 };

static struct fm_memory *open_bytes(int fd, enum fm_mmap_mode mode)
{
	struct fm_memory_options options = { .mmap = mode };
	struct fm_memory *memory;
	struct fm_error err;

	if (!fm_memory_open(fd, &options, &memory, &err))
		return memory;
	REQUIRE(err.code != FM_ERROR_NONE && err.message[0]);
	return NULL;
}

static void read_both(struct fm_memory *mapped, struct fm_memory *unmapped,
		      uint64_t address, size_t count, bool physical)
{
	static unsigned char a[MAX_READ], b[MAX_READ];
	struct fm_error err_a, err_b;
	int ret_a = fm_memory_read(mapped, a, address, count, physical, &err_a);
	int ret_b =
		fm_memory_read(unmapped, b, address, count, physical, &err_b);

	REQUIRE(ret_a == ret_b);
	if (ret_a)
		REQUIRE(err_a.code == err_b.code &&
			err_a.address == err_b.address);
	else
		REQUIRE(!memcmp(a, b, count));
}

static void string_both(struct fm_memory *mapped, struct fm_memory *unmapped,
			uint64_t address, bool physical)
{
	struct fm_error err;
	char *a = NULL, *b = NULL;
	size_t size_a = 0, size_b = 0;
	int ret_a = fm_memory_read_c_string(mapped, address, 300, physical, &a,
					    &size_a, &err);
	int ret_b = fm_memory_read_c_string(unmapped, address, 300, physical,
					    &b, &size_b, &err);

	REQUIRE(ret_a == ret_b && size_a == size_b);
	if (!ret_a)
		REQUIRE(!strcmp(a, b));
	free(a);
	free(b);
}

static void read_around(struct fm_memory *mapped, struct fm_memory *unmapped,
			uint64_t edge, bool physical)
{
	static const int offsets[] = { -4097, -8, -1, 0, 1, 100 };
	static const size_t counts[] = { 1, 8, 200, MAX_READ };

	for (size_t i = 0; i < FM_ARRAY_SIZE(offsets); i++) {
		for (size_t j = 0; j < FM_ARRAY_SIZE(counts); j++)
			read_both(mapped, unmapped, edge + offsets[i],
				  counts[j], physical);
		string_both(mapped, unmapped, edge + offsets[i], physical);
	}
}

static void open_and_read(const unsigned char *data, size_t size)
{
	int fd = memfd_create("fuzz", 0);
	struct fm_memory *mapped, *unmapped;

	REQUIRE(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	mapped = open_bytes(fd, FM_MMAP_TRY);
	unmapped = open_bytes(fd, FM_MMAP_NEVER);
	REQUIRE(!mapped == !unmapped);
	if (mapped) {
		const struct fm_elf_core *core = &mapped->core;
		size_t n = core->nr_segments;

		for (size_t i = 0; i < n && i < 6; i++) {
			const struct fm_segment *s = &core->segments[i];

			read_around(mapped, unmapped, s->address, false);
			read_around(mapped, unmapped, s->address + s->size,
				    false);
			read_around(mapped, unmapped, s->address + s->file_size,
				    false);
			read_around(mapped, unmapped, s->physical_address,
				    true);
		}
		read_around(mapped, unmapped, 0xffffc90000000000, false);
		fm_memory_put(mapped);
		fm_memory_put(unmapped);
	}
	close(fd);
}

#ifdef FM_LIBFUZZER
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	if (size < MAX_FILE)
		open_and_read(data, size);
	return 0;
}
#else

/* A core file with a note and segments of which some overlap, some are cut. */
static size_t make_seed(unsigned char *file, unsigned int number)
{
	static const char text[] = "PAGESIZE=4096\n"
				   "SYMBOL(swapper_pg_dir)=ffffffff80001000\n"
				   "NUMBER(phys_base)=0\n";
	Elf64_Ehdr *ehdr = (void *)file;
	Elf64_Phdr *phdr = (void *)(file + sizeof(*ehdr));
	Elf64_Nhdr *nhdr = (void *)(file + 0x300);
	bool kernel = number % 2;

	memset(file, 0, 0x8000);
	memcpy(ehdr->e_ident, ELFMAG, SELFMAG);
	ehdr->e_ident[EI_CLASS] = ELFCLASS64;
	ehdr->e_ident[EI_DATA] = ELFDATA2LSB;
	ehdr->e_ident[EI_VERSION] = EV_CURRENT;
	ehdr->e_type = ET_CORE;
	ehdr->e_machine = number % 3 == 2 ? EM_AARCH64 : EM_X86_64;
	ehdr->e_version = EV_CURRENT;
	ehdr->e_phoff = sizeof(*ehdr);
	ehdr->e_ehsize = sizeof(*ehdr);
	ehdr->e_phentsize = sizeof(*phdr);
	ehdr->e_phnum = 5;
	phdr[0].p_type = kernel ? PT_NOTE : PT_NULL;
	phdr[0].p_offset = 0x300;
	phdr[0].p_filesz = sizeof(*nhdr) + 12 + sizeof(text);
	nhdr->n_namesz = 11;
	nhdr->n_descsz = sizeof(text);
	memcpy(nhdr + 1, "VMCOREINFO", 11);
	memcpy((char *)(nhdr + 1) + 12, text, sizeof(text));
	for (int i = 1; i < 5; i++) {
		phdr[i].p_type = PT_LOAD;
		phdr[i].p_offset = 0x1000 * i;
		phdr[i].p_vaddr = 0xffff888000000000 + 0x800 * i;
		phdr[i].p_paddr = 0x1000 * i;
		phdr[i].p_filesz = 0x900;
		phdr[i].p_memsz = 0x1000;
	}
	for (size_t i = 0x1000; i < 0x5000; i++)
		file[i] = i * 41 >> 3;
	/* Tables: 0x1000 is the root; 0xffffc90000000000 is at 0x4000. */
	*(uint64_t *)(file + 0x1000 + 8 * 0x192) = 0x2003;
	*(uint64_t *)(file + 0x2000) = 0x3003;
	*(uint64_t *)(file + 0x3000) = number % 4 ? 0x4003 : 0xe3;
	*(uint64_t *)(file + 0x4000) = 0x4003;
	return 0x5000 - number % 7 * 0x123;
}

static size_t mutate(unsigned char *file, size_t size, uint64_t *state)
{
	static const uint64_t values[] = { 0,
					   1,
					   0xff,
					   0xffff,
					   0x7fffffff,
					   UINT32_MAX,
					   INT64_MAX,
					   UINT64_MAX,
					   UINT64_MAX - 0xfff,
					   0x1000,
					   0xffff888000000000 };
	unsigned int times = 1 + test_random(state) % 4;

	while (times--) {
		/* Mostly in the headers and the note. */
		size_t range = test_random(state) % 4 ? 0x340 : size;
		size_t at = test_random(state) % range;
		uint64_t value =
			values[test_random(state) % FM_ARRAY_SIZE(values)];

		switch (test_random(state) % 4) {
		case 0:
			file[at] = test_random(state);
			break;
		case 1:
			file[at] ^= 1 << test_random(state) % 8;
			break;
		case 2:
			memcpy(file + (at & ~7), &value, 8);
			break;
		default:
			if (test_random(state) % 4 == 0)
				size = 1 + test_random(state) % size;
			else
				memcpy(file + (at & ~3), &value, 4);
		}
		if (size < 0x340)
			break;
	}
	return size;
}

int main(int argc, char **argv)
{
	static unsigned char file[MAX_FILE];
	time_t end = argc > 1 ? time(NULL) + atoi(argv[1]) : 0;
	uint64_t state = end ? (uint64_t)end : 1;
	unsigned long i;

	for (i = 0; end ? time(NULL) < end : i < 20000; i++)
		open_and_read(file, mutate(file, make_seed(file, i), &state));
	fprintf(stderr, "%lu files\n", i);
	puts("fuzz_open: 1 passed, 0 failed");
	return 0;
}
#endif
