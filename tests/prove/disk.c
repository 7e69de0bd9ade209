/*
 * A disk that can become slow or full while a program runs: preloaded into PostgreSQL, or into
 * Quipu with SQLite, it obeys the file that PROVE_DISK names (tests/prove/disk.py writes it).
 * bench/slow_disk.c is the same idea for a whole run; here the faults begin and end under load,
 * without a restart, and count how often they were felt.
 *
 * Slow: every fsync() and fdatasync() takes at least `sync_us` longer. Full: what would make a file
 * longer fails with ENOSPC, while writing inside a file goes on, as on a real disk. Standard output
 * and error are left alone: logs may lie elsewhere.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct orders {
	_Atomic uint64_t sync_us;
	_Atomic uint64_t is_full;
	_Atomic uint64_t slowed;  /* how many syncs were made to wait */
	_Atomic uint64_t refused; /* how many writes found no space */
};

static struct orders no_orders;
static struct orders *orders = &no_orders;

__attribute__((constructor)) static void read_orders(void)
{
	const char *path = getenv("PROVE_DISK");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *mapped;

	if (fd < 0)
		return;
	mapped = mmap(NULL, sizeof(struct orders), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (mapped != MAP_FAILED)
		orders = mapped;
}

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static void pause_us(uint64_t us)
{
	struct timespec rest = {
		.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

	while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
		continue;
}

static int synced(int result)
{
	uint64_t sync_us = atomic_load(&orders->sync_us);
	int error = errno;

	if (sync_us > 0) {
		atomic_fetch_add(&orders->slowed, 1);
		pause_us(sync_us);
		errno = error;
	}
	return result;
}

/* Whether the disk is full and the file would have to grow to take `size` bytes at `offset` (-1:
 * where it stands). */
static bool has_no_space(int fd, off_t offset, size_t size)
{
	struct stat file;
	int flags;

	if (!atomic_load(&orders->is_full) || fd <= STDERR_FILENO || fstat(fd, &file) != 0 ||
		!S_ISREG(file.st_mode))
		return false;
	if (offset < 0) {
		flags = fcntl(fd, F_GETFL);
		offset = flags >= 0 && (flags & O_APPEND) ? file.st_size : lseek(fd, 0, SEEK_CUR);
	}
	if (offset + (off_t)size <= file.st_size)
		return false;
	atomic_fetch_add(&orders->refused, 1);
	errno = ENOSPC;
	return true;
}

static size_t total(const struct iovec *parts, int count)
{
	size_t size = 0;

	for (int i = 0; i < count; i++)
		size += parts[i].iov_len;
	return size;
}

int fsync(int fd)
{
	return synced(((int (*)(int))next("fsync"))(fd));
}

int fdatasync(int fd)
{
	return synced(((int (*)(int))next("fdatasync"))(fd));
}

ssize_t write(int fd, const void *data, size_t size)
{
	static ssize_t (*real)(int, const void *, size_t);

	if (!real)
		real = (ssize_t(*)(int, const void *, size_t))next("write");
	return has_no_space(fd, -1, size) ? -1 : real(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
	static ssize_t (*real)(int, const struct iovec *, int);

	if (!real)
		real = (ssize_t(*)(int, const struct iovec *, int))next("writev");
	return has_no_space(fd, -1, total(parts, count)) ? -1 : real(fd, parts, count);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
	static ssize_t (*real)(int, const void *, size_t, off64_t);

	if (!real)
		real = (ssize_t(*)(int, const void *, size_t, off64_t))next("pwrite64");
	return has_no_space(fd, offset, size) ? -1 : real(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
	return pwrite64(fd, data, size, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
	static ssize_t (*real)(int, const struct iovec *, int, off64_t);

	if (!real)
		real = (ssize_t(*)(int, const struct iovec *, int, off64_t))next("pwritev64");
	return has_no_space(fd, offset, total(parts, count)) ? -1 : real(fd, parts, count, offset);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
	return pwritev64(fd, parts, count, offset);
}

int posix_fallocate64(int fd, off64_t offset, off64_t size)
{
	if (has_no_space(fd, offset, (size_t)size))
		return ENOSPC;
	return ((int (*)(int, off64_t, off64_t))next("posix_fallocate64"))(fd, offset, size);
}

int posix_fallocate(int fd, off_t offset, off_t size)
{
	return posix_fallocate64(fd, offset, size);
}
