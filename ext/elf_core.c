// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Reads program headers and notes with libelf.
 * Does not load contents or section headers (but the one that PN_XNUM needs).
 * Built for 70,000 program headers, once at open, from files nobody vouches
 * for.
 */

#include <elf.h>
#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "alloc.h"
#include "elf_core.h"

/*
 * Of a note segment no more than this is read: a sparse file could name
 * terabytes. The notes that matter here are few and come early: the kernel
 * (fs/proc/kcore.c), kdump and QEMU (dump/dump.c) write them within the first
 * few hundred bytes a CPU.
 */
#define FM_ELF_CORE_MAX_NOTES (64 << 20)

#define FM_ELF_CORE_MAGIC_SIZE 16

FM_DEFINE_CLEANUP(elf, Elf *, elf_end(value))
#define FM_AUTO_ELF FM_CLEANUP(fm_cleanup_elf)

/* Formats that hold a kernel's memory but not in ELF. */
static const struct {
	const char *magic;
	size_t size;
	const char *name;
} fm_elf_core_others[] = {
	/* libkdumpfile src/kdumpfile/diskdump.c, makedumpfile diskdump_mod.h */
	{ "KDUMP   ", 8, "a kdump-compressed dump" },
	{ "DISKDUMP", 8, "a diskdump dump" },
	/* makedumpfile makedumpfile.h, MAKEDUMPFILE_SIGNATURE */
	{ "makedumpfile", 12, "a flattened makedumpfile dump" },
};

static int fm_elf_core_error(struct fm_error *err, const char *what)
{
	int code = elf_errno();

	return fm_error_set(err, FM_ERROR_FORMAT, "%s: %s", what,
			    code ? elf_errmsg(code) : "not there");
}

static int fm_elf_core_check_magic(int fd, struct fm_error *err)
{
	char magic[FM_ELF_CORE_MAGIC_SIZE] = "";
	ssize_t n;

	do {
		n = pread(fd, magic, sizeof(magic), 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return fm_error_os(err, errno, "pread");
	if (n == 0)
		return fm_error_set(err, FM_ERROR_FORMAT,
				    "not an ELF core file: it is empty");
	for (size_t i = 0; i < FM_ARRAY_SIZE(fm_elf_core_others); i++) {
		if (!memcmp(magic, fm_elf_core_others[i].magic,
			    fm_elf_core_others[i].size))
			return fm_error_set(err, FM_ERROR_FORMAT,
					    "not an ELF core file but %s",
					    fm_elf_core_others[i].name);
	}
	if (n < SELFMAG || memcmp(magic, ELFMAG, SELFMAG))
		return fm_error_set(err, FM_ERROR_FORMAT,
				    "not an ELF core file");
	return 0;
}

static bool fm_elf_core_note_is(const GElf_Nhdr *nhdr, const char *name,
				const char *expected)
{
	size_t size = strlen(expected) + 1;

	return nhdr->n_namesz == size && !memcmp(name, expected, size);
}

static int fm_elf_core_read_notes(struct fm_elf_core *core, Elf *elf,
				  const GElf_Phdr *phdr, bool *taskstruct,
				  struct fm_error *err)
{
	size_t offset = 0, name_offset, desc_offset;
	Elf_Data *data;
	GElf_Nhdr nhdr;

	data = elf_getdata_rawchunk(
		elf, phdr->p_offset,
		fm_min_u64(phdr->p_filesz, FM_ELF_CORE_MAX_NOTES),
		phdr->p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
	if (!data)
		return fm_elf_core_error(err, "notes can't be read");
	while (offset < data->d_size &&
	       (offset = gelf_getnote(data, offset, &nhdr, &name_offset,
				      &desc_offset))) {
		const char *name = (const char *)data->d_buf + name_offset;

		if (fm_elf_core_note_is(&nhdr, name, "VMCOREINFO")) {
			core->has_vmcoreinfo = true;
			fm_vmcoreinfo_parse(&core->vmcoreinfo,
					    (const char *)data->d_buf +
						    desc_offset,
					    nhdr.n_descsz);
		} else if (fm_elf_core_note_is(&nhdr, name, "CORE") &&
			   nhdr.n_type == NT_TASKSTRUCT) {
			*taskstruct = true;
		}
	}
	return 0;
}

static void fm_elf_core_add_segment(struct fm_elf_core *core,
				    const GElf_Phdr *phdr)
{
	core->segments[core->nr_segments++] = (struct fm_segment){
		.address = phdr->p_vaddr,
		.size = phdr->p_memsz,
		.physical_address = phdr->p_paddr,
		.has_physical_address =
			phdr->p_paddr !=
			(core->is_64_bit ? UINT64_MAX : UINT32_MAX),
		.file_offset = phdr->p_offset,
		/* Bytes in the file beyond p_memsz are not memory. */
		.file_size = fm_min_u64(phdr->p_filesz, phdr->p_memsz),
	};
}

static GElf_Phdr fm_elf_core_phdr(const struct fm_elf_core *core,
				  const Elf_Data *data, size_t i)
{
	const Elf32_Phdr *phdr;

	if (core->is_64_bit)
		return ((const Elf64_Phdr *)data->d_buf)[i];
	phdr = &((const Elf32_Phdr *)data->d_buf)[i];
	return (GElf_Phdr){
		.p_type = phdr->p_type,
		.p_flags = phdr->p_flags,
		.p_offset = phdr->p_offset,
		.p_vaddr = phdr->p_vaddr,
		.p_paddr = phdr->p_paddr,
		.p_filesz = phdr->p_filesz,
		.p_memsz = phdr->p_memsz,
		.p_align = phdr->p_align,
	};
}

/* The number of program headers; all of them are in the file. */
static int fm_elf_core_phnum(Elf *elf, const GElf_Ehdr *ehdr, size_t *ret,
			     struct fm_error *err)
{
	size_t said = ehdr->e_phnum;
	GElf_Shdr shdr;

	if (elf_getphdrnum(elf, ret))
		return fm_elf_core_error(err, "program headers can't be read");
	/* libelf says how many fit into the file if the header says more. None
	 * is a file without memory, to drgn too. */
	if (said == PN_XNUM && gelf_getshdr(elf_getscn(elf, 0), &shdr))
		said = shdr.sh_info;
	if (*ret && *ret != said)
		return fm_error_set(err, FM_ERROR_FORMAT,
				    "program headers can't be read: there are "
				    "%zu of %zu",
				    *ret, said);
	return 0;
}

static int fm_elf_core_read_phdrs(struct fm_elf_core *core, Elf *elf,
				  const GElf_Ehdr *ehdr, bool *taskstruct,
				  struct fm_error *err)
{
	bool any_physical = false;
	Elf_Data *data;
	size_t phnum;

	if (fm_elf_core_phnum(elf, ehdr, &phnum, err))
		return -1;
	if (phnum == 0)
		return 0;
	/* All at once: gelf_getphdr takes a lock and copies for each. libelf
	 * fails here before it allocates if the file does not hold as many
	 * headers as it says. */
	data = elf_getdata_rawchunk(
		elf, ehdr->e_phoff,
		phnum * gelf_fsize(elf, ELF_T_PHDR, 1, EV_CURRENT), ELF_T_PHDR);
	if (!data)
		return fm_elf_core_error(err, "program headers can't be read");
	core->segments = fm_malloc_prefaulted(phnum * sizeof(*core->segments));
	if (!core->segments)
		return fm_error_no_memory(err);
	for (size_t i = 0; i < phnum; i++) {
		GElf_Phdr phdr = fm_elf_core_phdr(core, data, i);

		if (phdr.p_type == PT_LOAD) {
			any_physical |= phdr.p_paddr != 0;
			fm_elf_core_add_segment(core, &phdr);
		} else if (phdr.p_type == PT_NOTE &&
			   fm_elf_core_read_notes(core, elf, &phdr, taskstruct,
						  err)) {
			return -1;
		}
	}
	/* A kernel may have memory at physical address 0; in other files it
	 * means that nobody filled the field in. */
	if (!any_physical && !core->has_vmcoreinfo) {
		for (size_t i = 0; i < core->nr_segments; i++)
			core->segments[i].has_physical_address = false;
	}
	return 0;
}

static int fm_elf_core_detect_kcore(struct fm_elf_core *core, int fd,
				    bool taskstruct, struct fm_error *err)
{
	struct statfs fs;

	if (!taskstruct)
		return 0;
	if (fstatfs(fd, &fs))
		return fm_error_os(err, errno, "fstatfs");
	core->is_kcore = fs.f_type == PROC_SUPER_MAGIC;
	return 0;
}

static int fm_elf_core_read(struct fm_elf_core *core, int fd,
			    struct fm_error *err)
{
	bool taskstruct = false;
	FM_AUTO_ELF Elf *elf = NULL;
	GElf_Ehdr ehdr;

	if (fm_elf_core_check_magic(fd, err))
		return -1;
	elf_version(EV_CURRENT);
	/* Not mapped: the file may shrink under libelf. */
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf)
		return fm_elf_core_error(err, "not an ELF core file");
	if (!gelf_getehdr(elf, &ehdr))
		return fm_elf_core_error(err, "not an ELF core file");
	if (ehdr.e_type != ET_CORE)
		return fm_error_set(err, FM_ERROR_FORMAT,
				    "not an ELF core file: its type is %u",
				    ehdr.e_type);
	core->is_64_bit = ehdr.e_ident[EI_CLASS] == ELFCLASS64;
	core->is_little_endian = ehdr.e_ident[EI_DATA] == ELFDATA2LSB;
	core->machine = ehdr.e_machine;
	if (fm_elf_core_read_phdrs(core, elf, &ehdr, &taskstruct, err))
		return -1;
	return fm_elf_core_detect_kcore(core, fd, taskstruct, err);
}

int fm_elf_core_init(struct fm_elf_core *core, int fd, struct fm_error *err)
{
	memset(core, 0, sizeof(*core));
	if (fm_elf_core_read(core, fd, err)) {
		fm_elf_core_deinit(core);
		return -1;
	}
	return 0;
}

void fm_elf_core_deinit(struct fm_elf_core *core)
{
	free(core->segments);
	memset(core, 0, sizeof(*core));
}
