// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/* The guarded copy, and where a SIGBUS goes: every fault here is a real one. */

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault_guard.h"
#include "test.h"
#include "util.h"

enum { PAGE = 4096 };

/* A mapping of four pages of which only the first two are in the file. */
struct half_file {
	unsigned char *map;
	int fd;
};

static struct half_file half_file_create(void)
{
	struct half_file file;

	file.fd = memfd_create("half", 0);
	REQUIRE(file.fd >= 0 && !ftruncate(file.fd, 4 * PAGE));
	file.map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
			file.fd, 0);
	REQUIRE(file.map != MAP_FAILED);
	for (int i = 0; i < 4 * PAGE; i++)
		file.map[i] = i * 31 + i / PAGE;
	REQUIRE(!ftruncate(file.fd, 2 * PAGE));
	return file;
}

static void half_file_destroy(struct half_file *file)
{
	munmap(file->map, 4 * PAGE);
	close(file->fd);
}

static void check(void)
{
	struct fm_error err;

	REQUIRE(!fm_fault_guard_check(&err));
}

static void test_copies_of_every_size(void)
{
	static unsigned char src[1200], dst[1200], want[1200];

	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = i * 7 + 1;
	for (size_t size = 0; size <= 1100; size++) {
		for (size_t offset = 0; offset < 17; offset += 3) {
			memset(dst, 0xee, sizeof(dst));
			memset(want, 0xee, sizeof(want));
			memcpy(want + 8, src + offset, size);
			CHECK(!fm_fault_guard_copy(dst + 8, src + offset,
						   size));
			CHECK(!memcmp(dst, want, sizeof(dst)));
		}
	}
}

static void test_fault_gives_an_address_in_the_missing_page(void)
{
	struct half_file file = half_file_create();
	unsigned char *end = file.map + 2 * PAGE;
	unsigned char buf[3000];

	check();
	for (size_t size = 1; size < sizeof(buf); size += size < 600 ? 1 : 97) {
		for (size_t before = 0; before <= size;
		     before += 1 + size / 5) {
			const unsigned char *address =
				fm_fault_guard_copy(buf, end - before, size);

			if (before == size)
				CHECK(!address);
			else
				CHECK(address >= end &&
				      address < end - before + size);
		}
	}
	/* And the guard still works, and so does the rest of the page. */
	CHECK(!fm_fault_guard_copy(buf, end - 100, 100));
	CHECK(!memcmp(buf, end - 100, 100));
	half_file_destroy(&file);
}

static void test_fault_in_the_destination(void)
{
	struct half_file file = half_file_create();
	unsigned char *end = file.map + 2 * PAGE;
	static const unsigned char src[64];
	const unsigned char *address;

	check();
	address = fm_fault_guard_copy(end - 8, src, sizeof(src));
	CHECK(address >= end && address < end + sizeof(src));
	half_file_destroy(&file);
}

/* How a child ends that runs the function. */
static int status_of(void (*function)(void))
{
	pid_t pid = fork();
	int status;

	REQUIRE(pid >= 0);
	if (pid == 0) {
		/* No report of the sanitizer on a death that is wanted. */
		alarm(20);
		function();
		_exit(99);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return status;
}

static bool dies_of_sigbus(void (*function)(void))
{
	int status = status_of(function);

	return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
}

static bool exits_with(void (*function)(void), int code)
{
	int status = status_of(function);

	return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static void default_action(void)
{
	signal(SIGBUS, SIG_DFL);
	check();
}

static void touch(void)
{
	struct half_file file = half_file_create();

	/* Not through the guard. */
	*(volatile unsigned char *)(file.map + 3 * PAGE);
}

static void child_foreign_fault(void)
{
	default_action();
	touch();
}

static void child_raise(void)
{
	default_action();
	raise(SIGBUS);
}

static void child_kill(void)
{
	default_action();
	kill(getpid(), SIGBUS);
	pause();
}

static void child_ignored_but_raised(void)
{
	signal(SIGBUS, SIG_IGN);
	check();
	raise(SIGBUS);
	_exit(7);
}

static void child_ignored_but_real(void)
{
	signal(SIGBUS, SIG_IGN);
	check();
	touch();
}

static void plain_handler(int signum)
{
	_exit(signum == SIGBUS ? 5 : 6);
}

static void info_handler(int signum, siginfo_t *info, void *context)
{
	_exit(signum == SIGBUS && info->si_addr && context ? 8 : 6);
}

static void child_plain_handler_before(void)
{
	signal(SIGBUS, plain_handler);
	check();
	touch();
}

static void child_info_handler_before(void)
{
	struct sigaction action = { .sa_sigaction = info_handler,
				    .sa_flags = SA_SIGINFO };

	sigaction(SIGBUS, &action, NULL);
	check();
	touch();
}

static void child_handler_after_is_passed_on_to(void)
{
	struct half_file file = half_file_create();
	unsigned char buf[8];

	default_action();
	signal(SIGBUS, plain_handler);
	check();
	/* Ours again, and theirs for the rest. */
	if (!fm_fault_guard_copy(buf, file.map + 3 * PAGE, 8))
		_exit(1);
	touch();
}

/* What faulthandler does: restore the previous handler and raise again. */
static struct sigaction faulthandler_previous;
static volatile sig_atomic_t faulthandler_calls;

static void faulthandler_like(int signum)
{
	if (++faulthandler_calls > 3)
		_exit(3);
	sigaction(signum, &faulthandler_previous, NULL);
	raise(signum);
}

static void child_faulthandler_on_top(void)
{
	struct sigaction action = { .sa_handler = faulthandler_like,
				    .sa_flags = SA_NODEFER };

	default_action();
	sigaction(SIGBUS, &action, &faulthandler_previous);
	check();
	touch();
}

static void child_faulthandler_on_top_raised(void)
{
	struct sigaction action = { .sa_handler = faulthandler_like,
				    .sa_flags = SA_NODEFER };

	default_action();
	sigaction(SIGBUS, &action, &faulthandler_previous);
	check();
	raise(SIGBUS);
}

static void child_many_handlers(void)
{
	struct half_file file = half_file_create();
	unsigned char buf[8];

	/* More than we remember; the copy still works. */
	for (int i = 0; i < 30; i++) {
		signal(SIGBUS, plain_handler);
		check();
	}
	_exit(fm_fault_guard_copy(buf, file.map + 3 * PAGE, 8) ? 0 : 1);
}

static void test_foreign_signals_end_where_they_would_have(void)
{
	CHECK(dies_of_sigbus(child_foreign_fault));
	CHECK(dies_of_sigbus(child_raise));
	CHECK(dies_of_sigbus(child_kill));
	CHECK(exits_with(child_ignored_but_raised, 7));
	CHECK(dies_of_sigbus(child_ignored_but_real));
	CHECK(exits_with(child_plain_handler_before, 5));
	CHECK(exits_with(child_info_handler_before, 8));
	CHECK(exits_with(child_handler_after_is_passed_on_to, 5));
	CHECK(dies_of_sigbus(child_faulthandler_on_top));
	CHECK(dies_of_sigbus(child_faulthandler_on_top_raised));
	CHECK(exits_with(child_many_handlers, 0));
}

static void *fault_thread(void *arg)
{
	struct half_file *file = arg;
	unsigned char buf[64];
	uintptr_t wrong = 0;

	for (int i = 0; i < 2000; i++) {
		size_t at = (i * 37) % (2 * PAGE - 64);

		wrong += !fm_fault_guard_copy(buf, file->map + 2 * PAGE - i % 8,
					      16);
		wrong += fm_fault_guard_copy(buf, file->map + at, 64) != NULL;
		wrong += memcmp(buf, file->map + at, 64) != 0;
	}
	return (void *)wrong;
}

static void test_threads_that_fault_at_once(void)
{
	struct half_file file = half_file_create();
	pthread_t threads[4];

	check();
	for (size_t i = 0; i < FM_ARRAY_SIZE(threads); i++)
		REQUIRE(!pthread_create(&threads[i], NULL, fault_thread,
					&file));
	for (size_t i = 0; i < FM_ARRAY_SIZE(threads); i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		CHECK_EQUAL((uintptr_t)wrong, 0);
	}
	half_file_destroy(&file);
}

static const struct test_case cases[] = {
	{ "copies of every size", test_copies_of_every_size },
	{ "a fault gives an address in the missing page",
	  test_fault_gives_an_address_in_the_missing_page },
	{ "a fault in the destination", test_fault_in_the_destination },
	{ "foreign signals end where they would have",
	  test_foreign_signals_end_where_they_would_have },
	{ "threads that fault at once", test_threads_that_fault_at_once },
};
TEST_MAIN("test_fault_guard", cases)
