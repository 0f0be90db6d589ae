// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * The file source: mappings and preads of one descriptor.
 * Does not clamp borrowed ranges to the end of the file; the index does, once,
 * when it is built. Built for one borrow a segment at open and any number of
 * reads afterwards.
 */

#include <errno.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "source_file.h"

/*
 * Mappings of single ranges. Each is one VMA of the 65,530 that a process may
 * have (vm.max_map_count, Documentation/admin-guide/sysctl/vm.rst); ranges past
 * this many are read with pread, so that the rest of the process can live.
 */
#define FM_SOURCE_FILE_MAX_MAPPINGS 4096

struct fm_source_file_mapping {
	void *address;
	size_t size;
};

struct fm_source_file {
	struct fm_source source;
	int fd;
	struct fm_source_file_options options;
	struct fm_file_lock *lock;

	/* Protects what follows, which only grows. */
	pthread_mutex_t mutex;
	bool tried_whole;
	unsigned char *whole;
	uint64_t whole_size;
	struct fm_source_file_mapping *mappings;
	size_t nr_mappings;
};

static struct fm_source_file *fm_source_file(const struct fm_source *source)
{
	return (struct fm_source_file *)source;
}

static void *fm_source_file_mmap(struct fm_source_file *file, uint64_t offset,
				 uint64_t size, int *os_errno)
{
	void *map;

	if (offset > INT64_MAX || size > SIZE_MAX) {
		*os_errno = EOVERFLOW;
		return NULL;
	}
	fm_counter_add(&file->source.syscalls, 1);
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, file->fd, offset);
	if (map == MAP_FAILED) {
		*os_errno = errno;
		return NULL;
	}
	/* A fault on data that is not cached reads a whole read-ahead window
	 * otherwise, milliseconds for eight bytes. */
	madvise(map, size, MADV_RANDOM);
	/* A core file must not hold a copy of the dump, nor of the kernel. */
	madvise(map, size, MADV_DONTDUMP);
	return map;
}

/* One mapping for all segments: no limit on their number, any alignment. */
static const void *fm_source_file_borrow_whole(struct fm_source_file *file,
					       uint64_t offset, uint64_t size,
					       int *os_errno)
{
	if (!file->tried_whole) {
		uint64_t whole_size = fm_min_u64(fm_source_size(&file->source),
						 file->options.extent);

		file->tried_whole = true;
		if (whole_size) {
			file->whole = fm_source_file_mmap(file, 0, whole_size,
							  os_errno);
			file->whole_size = whole_size;
		}
	}
	if (!file->whole || offset > file->whole_size ||
	    size > file->whole_size - offset)
		return NULL;
	return file->whole + offset;
}

static const void *fm_source_file_borrow_range(struct fm_source_file *file,
					       uint64_t offset, uint64_t size,
					       int *os_errno)
{
	uint64_t slack = offset % (uint64_t)sysconf(_SC_PAGESIZE), map_size;
	struct fm_source_file_mapping *mappings;
	unsigned char *map;

	if (file->nr_mappings >= FM_SOURCE_FILE_MAX_MAPPINGS ||
	    !fm_add_u64(size, slack, &map_size)) {
		*os_errno = ENOMEM;
		return NULL;
	}
	mappings = realloc(file->mappings,
			   (file->nr_mappings + 1) * sizeof(*mappings));
	if (!mappings) {
		*os_errno = ENOMEM;
		return NULL;
	}
	file->mappings = mappings;
	map = fm_source_file_mmap(file, offset - slack, map_size, os_errno);
	if (!map)
		return NULL;
	mappings[file->nr_mappings].address = map;
	mappings[file->nr_mappings].size = map_size;
	file->nr_mappings++;
	return map + slack;
}

static const void *fm_source_file_borrow(struct fm_source *source,
					 uint64_t offset, uint64_t size,
					 int *os_errno)
{
	struct fm_source_file *file = fm_source_file(source);
	const void *ret = NULL;

	*os_errno = 0;
	if (!file->options.map || size == 0)
		return NULL;
	pthread_mutex_lock(&file->mutex);
	if (!file->options.kcore)
		ret = fm_source_file_borrow_whole(file, offset, size, os_errno);
	if (!ret)
		ret = fm_source_file_borrow_range(file, offset, size, os_errno);
	pthread_mutex_unlock(&file->mutex);
	return ret;
}

static ssize_t fm_source_file_pread(struct fm_source_file *file, void *buf,
				    uint64_t offset, size_t size, int *os_errno)
{
	ssize_t n;

	do {
		if (file->lock)
			fm_file_lock_acquire(file->lock);
		n = pread(file->fd, buf, size, (off_t)offset);
		*os_errno = n < 0 ? errno : 0;
		if (file->lock)
			fm_file_lock_release(file->lock);
		fm_counter_add(&file->source.syscalls, 1);
	} while (n < 0 && *os_errno == EINTR);
	return n;
}

static size_t fm_source_file_read(struct fm_source *source, void *buf,
				  uint64_t offset, size_t size, int *os_errno)
{
	struct fm_source_file *file = fm_source_file(source);
	size_t done = 0;

	*os_errno = 0;
	while (done < size) {
		uint64_t position;
		ssize_t n;

		if (!fm_add_u64(offset, done, &position) ||
		    position > INT64_MAX) {
			*os_errno = EINVAL;
			break;
		}
		n = fm_source_file_pread(file, (char *)buf + done, position,
					 size - done, os_errno);
		if (n <= 0)
			break;
		done += n;
	}
	return done;
}

static uint64_t fm_source_file_size(struct fm_source *source)
{
	struct fm_source_file *file = fm_source_file(source);
	struct stat st;
	uint64_t size;

	/* The inode says something, but the file is what the headers say. */
	if (file->options.kcore)
		return UINT64_MAX;
	fm_counter_add(&source->syscalls, 1);
	if (fstat(file->fd, &st))
		return 0;
	if (S_ISBLK(st.st_mode)) {
		/* Not lseek: the position may be somebody else's too. */
		fm_counter_add(&source->syscalls, 1);
		return ioctl(file->fd, BLKGETSIZE64, &size) ? 0 : size;
	}
	return st.st_size;
}

static void fm_source_file_destroy(struct fm_source *source)
{
	struct fm_source_file *file = fm_source_file(source);

	if (file->whole)
		munmap(file->whole, file->whole_size);
	for (size_t i = 0; i < file->nr_mappings; i++)
		munmap(file->mappings[i].address, file->mappings[i].size);
	free(file->mappings);
	pthread_mutex_destroy(&file->mutex);
	fm_file_lock_put(file->lock);
	if (file->fd >= 0)
		close(file->fd);
	free(file);
}

static const struct fm_source_ops fm_source_file_ops = {
	.borrow = fm_source_file_borrow,
	.read = fm_source_file_read,
	.size = fm_source_file_size,
	.destroy = fm_source_file_destroy,
};

int fm_source_file_create(int fd, const struct fm_source_file_options *options,
			  struct fm_source **ret, struct fm_error *err)
{
	FM_AUTO_FREE struct fm_source_file *file = calloc(1, sizeof(*file));
	int os_errno;

	if (!file)
		return fm_error_no_memory(err);
	file->source.ops = &fm_source_file_ops;
	file->options = *options;
	if (options->kcore) {
		if (options->lock)
			file->lock = fm_file_lock_get(options->lock);
		else if (fm_file_lock_create(&file->lock, err))
			return -1;
	}
	os_errno = pthread_mutex_init(&file->mutex, NULL);
	if (os_errno) {
		fm_file_lock_put(file->lock);
		return fm_error_os(err, os_errno, "pthread_mutex_init");
	}
	file->fd = fd;
	*ret = &FM_STEAL_PTR(file)->source;
	return 0;
}

int fm_source_file_fd(const struct fm_source *source)
{
	return fm_source_file(source)->fd;
}
