/*
 * A VFS that passes every call on to SQLite's default one, counts it, and fails the one that the
 * test has chosen. Beside the real file it keeps an image of what would survive a loss of power:
 * only bytes that were synced.
 */
#include "faulty_disk.h"

#include <assert.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/random.h"

#define SECTOR 512

/* ---- when to fail ------------------------------------------------------------------------ */

static struct {
	const struct disk_plan *plan; /* NULL: disarmed */
	int calls_left;               /* until the first failure */
	int failures_left;
	bool has_failed;
	bool paused;
} armed;

void disk_arm(const struct disk_plan *plan, int nth)
{
	armed.plan = plan;
	armed.calls_left = nth - 1;
	armed.failures_left = plan->failures;
	armed.has_failed = false;
}

bool disk_disarm(void)
{
	armed.plan = NULL;
	return armed.has_failed;
}

void disk_pause(bool paused)
{
	armed.paused = paused;
}

static bool fails(enum disk_call call)
{
	if (!armed.plan || armed.paused || !(armed.plan->calls & call))
		return false;
	if (armed.calls_left > 0) {
		armed.calls_left--;
		return false;
	}
	if (armed.failures_left == 0)
		return false;
	armed.failures_left--;
	armed.has_failed = true;
	return true;
}

/* ---- what is on disk --------------------------------------------------------------------- */

struct pending {
	sqlite3_int64 offset;
	int len; /* −1: a truncation to `offset` */
	char *data;
};

struct image {
	char path[512];
	char *bytes; /* on disk for certain */
	size_t len;
	struct pending *pending;
	size_t pending_count;
	size_t pending_size;
};

/* The database and its WAL. */
static struct image images[2];
static bool watching;

static char *read_whole(const char *path, size_t *len)
{
	FILE *file = fopen(path, "rb");
	char *bytes = NULL;
	long size;

	*len = 0;
	if (!file)
		return NULL;
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	bytes = qp_malloc((size_t)size);
	*len = fread(bytes, 1, (size_t)size, file);
	assert(*len == (size_t)size);
	fclose(file);
	return bytes;
}

static void write_whole(const char *path, const char *bytes, size_t len)
{
	FILE *file = fopen(path, "wb");

	assert(file);
	if (len > 0 && fwrite(bytes, 1, len, file) != len)
		abort();
	fclose(file);
}

static void forget_pending(struct image *image)
{
	for (size_t i = 0; i < image->pending_count; i++)
		free(image->pending[i].data);
	image->pending_count = 0;
}

static void set_path(struct image *image, const char *path, const char *ending)
{
	int len = snprintf(image->path, sizeof(image->path), "%s%s", path, ending);

	assert(len > 0 && (size_t)len < sizeof(image->path));
}

void disk_watch(const char *path)
{
	disk_unwatch();
	set_path(&images[0], path, "");
	set_path(&images[1], path, "-wal");
	for (int i = 0; i < 2; i++)
		images[i].bytes = read_whole(images[i].path, &images[i].len);
	watching = true;
}

void disk_unwatch(void)
{
	for (int i = 0; i < 2; i++) {
		forget_pending(&images[i]);
		free(images[i].pending);
		free(images[i].bytes);
		images[i] = (struct image){0};
	}
	watching = false;
}

static struct image *image_of(const char *path)
{
	for (int i = 0; watching && path && i < 2; i++) {
		if (strcmp(images[i].path, path) == 0)
			return &images[i];
	}
	return NULL;
}

static void add_pending(struct image *image, sqlite3_int64 offset, const void *data, int len)
{
	struct pending *pending;

	if (!image)
		return;
	if (image->pending_count == image->pending_size) {
		image->pending_size = image->pending_size * 2 + 64;
		image->pending =
			realloc(image->pending, image->pending_size * sizeof(*image->pending));
		assert(image->pending);
	}
	pending = &image->pending[image->pending_count++];
	*pending = (struct pending){.offset = offset, .len = len};
	if (len > 0)
		pending->data = memcpy(qp_malloc((size_t)len), data, (size_t)len);
}

static void resize(struct image *image, size_t len)
{
	image->bytes = realloc(image->bytes, len ? len : 1);
	assert(image->bytes);
	if (len > image->len)
		memset(image->bytes + image->len, 0, len - image->len);
	image->len = len;
}

/* Puts the first `len` bytes of a write on disk, or a truncation. */
static void settle(struct image *image, const struct pending *pending, size_t len)
{
	size_t offset = (size_t)pending->offset;

	if (pending->len < 0) {
		resize(image, offset);
		return;
	}
	if (len > 0 && offset + len > image->len)
		resize(image, offset + len);
	if (len > 0)
		memcpy(image->bytes + offset, pending->data, len);
}

static void settle_all(struct image *image)
{
	for (size_t i = 0; i < image->pending_count; i++)
		settle(image, &image->pending[i], (size_t)image->pending[i].len);
	forget_pending(image);
}

static void copy_path(char *out, size_t size, const char *to, int i)
{
	snprintf(out, size, "%s%s", to, i == 0 ? "" : "-wal");
}

void disk_copy_after_crash(const char *to)
{
	for (int i = 0; i < 2; i++) {
		char path[600];
		size_t len;
		char *bytes = read_whole(images[i].path, &len);

		copy_path(path, sizeof(path), to, i);
		write_whole(path, bytes, len);
		free(bytes);
	}
}

/* Of what was pending each write is there, or is not, or up to some sector; in any combination. */
static size_t survivor(const struct pending *pending, struct dice *dice)
{
	size_t sectors = (size_t)pending->len / SECTOR;

	switch (dice_below(dice, 3)) {
	case 0:
		return 0;
	case 1:
		return (size_t)pending->len;
	default:
		return dice_below(dice, sectors + 1) * SECTOR;
	}
}

void disk_copy_after_power_loss(const char *to, uint64_t seed)
{
	struct dice dice = {.state = seed};

	for (int i = 0; i < 2; i++) {
		struct image copy = {0};
		char path[600];

		resize(&copy, images[i].len);
		if (images[i].len > 0)
			memcpy(copy.bytes, images[i].bytes, images[i].len);
		for (size_t j = 0; j < images[i].pending_count; j++) {
			const struct pending *pending = &images[i].pending[j];

			if (pending->len >= 0)
				settle(&copy, pending, survivor(pending, &dice));
			else if (dice_below(&dice, 2))
				settle(&copy, pending, 0);
		}
		copy_path(path, sizeof(path), to, i);
		write_whole(path, copy.bytes, copy.len);
		free(copy.bytes);
	}
}

/* ---- files ------------------------------------------------------------------------------- */

struct disk_file {
	sqlite3_file base;
	char *path;
	sqlite3_file *real; /* right behind this struct */
};

static sqlite3_vfs *real_vfs;

static sqlite3_file *real_of(sqlite3_file *file)
{
	return ((struct disk_file *)file)->real;
}

static struct image *image_of_file(sqlite3_file *file)
{
	return image_of(((struct disk_file *)file)->path);
}

static int file_close(sqlite3_file *file)
{
	free(((struct disk_file *)file)->path);
	return real_of(file)->pMethods->xClose(real_of(file));
}

static int file_read(sqlite3_file *file, void *to, int len, sqlite3_int64 offset)
{
	if (fails(DISK_READ))
		return SQLITE_IOERR_READ;
	return real_of(file)->pMethods->xRead(real_of(file), to, len, offset);
}

static int write_some(sqlite3_file *file, const void *data, int len, sqlite3_int64 offset)
{
	if (len == 0)
		return SQLITE_OK;
	add_pending(image_of_file(file), offset, data, len);
	return real_of(file)->pMethods->xWrite(real_of(file), data, len, offset);
}

static int file_write(sqlite3_file *file, const void *data, int len, sqlite3_int64 offset)
{
	bool failed = fails(DISK_WRITE);
	int rc;

	if (!failed)
		return write_some(file, data, len, offset);
	if (armed.plan->full)
		len--;
	else if (!armed.plan->done_anyhow)
		len /= 2;
	rc = write_some(file, data, len, offset);
	assert(rc == SQLITE_OK);
	return armed.plan->full ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
	bool failed = fails(DISK_TRUNCATE);
	int rc = SQLITE_OK;

	if (!failed || armed.plan->done_anyhow) {
		add_pending(image_of_file(file), size, NULL, -1);
		rc = real_of(file)->pMethods->xTruncate(real_of(file), size);
	}
	return failed ? SQLITE_IOERR_TRUNCATE : rc;
}

static int file_sync(sqlite3_file *file, int flags)
{
	struct image *image = image_of_file(file);
	bool failed = fails(DISK_SYNC);

	(void)flags;
	if (image && failed && !armed.plan->done_anyhow)
		forget_pending(image);
	else if (image)
		settle_all(image);
	return failed ? SQLITE_IOERR_FSYNC : SQLITE_OK;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
	return real_of(file)->pMethods->xFileSize(real_of(file), size);
}

static int file_lock(sqlite3_file *file, int level)
{
	return real_of(file)->pMethods->xLock(real_of(file), level);
}

static int file_unlock(sqlite3_file *file, int level)
{
	return real_of(file)->pMethods->xUnlock(real_of(file), level);
}

static int file_check_reserved_lock(sqlite3_file *file, int *out)
{
	return real_of(file)->pMethods->xCheckReservedLock(real_of(file), out);
}

static int file_control(sqlite3_file *file, int what, void *argument)
{
	return real_of(file)->pMethods->xFileControl(real_of(file), what, argument);
}

static int file_sector_size(sqlite3_file *file)
{
	return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int file_characteristics(sqlite3_file *file)
{
	return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static int file_shm_map(
	sqlite3_file *file, int page, int page_size, int extend, void volatile **memory)
{
	if (fails(DISK_SHM))
		return SQLITE_IOERR_SHMMAP;
	return real_of(file)->pMethods->xShmMap(real_of(file), page, page_size, extend, memory);
}

static int file_shm_lock(sqlite3_file *file, int offset, int count, int flags)
{
	return real_of(file)->pMethods->xShmLock(real_of(file), offset, count, flags);
}

static void file_shm_barrier(sqlite3_file *file)
{
	real_of(file)->pMethods->xShmBarrier(real_of(file));
}

static int file_shm_unmap(sqlite3_file *file, int remove)
{
	return real_of(file)->pMethods->xShmUnmap(real_of(file), remove);
}

/* Version 2: with shared memory, without mapped pages. */
static const sqlite3_io_methods file_methods = {
	.iVersion = 2,
	.xClose = file_close,
	.xRead = file_read,
	.xWrite = file_write,
	.xTruncate = file_truncate,
	.xSync = file_sync,
	.xFileSize = file_size,
	.xLock = file_lock,
	.xUnlock = file_unlock,
	.xCheckReservedLock = file_check_reserved_lock,
	.xFileControl = file_control,
	.xSectorSize = file_sector_size,
	.xDeviceCharacteristics = file_characteristics,
	.xShmMap = file_shm_map,
	.xShmLock = file_shm_lock,
	.xShmBarrier = file_shm_barrier,
	.xShmUnmap = file_shm_unmap,
};

/* ---- the VFS ----------------------------------------------------------------------------- */

static int disk_open(
	sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *flags_out)
{
	struct disk_file *opened = (struct disk_file *)file;
	int rc;

	(void)vfs;
	opened->real = (sqlite3_file *)(opened + 1);
	rc = real_vfs->xOpen(real_vfs, name, opened->real, flags, flags_out);
	opened->base.pMethods = opened->real->pMethods ? &file_methods : NULL;
	opened->path = opened->base.pMethods && name ? qp_strdup(name) : NULL;
	return rc;
}

/* The rest of the VFS is the default one's: its functions look at nothing of `vfs` but pAppData. */
void disk_install(void)
{
	static sqlite3_vfs vfs;

	real_vfs = sqlite3_vfs_find(NULL);
	vfs = *real_vfs;
	vfs.zName = "faulty disk";
	vfs.szOsFile = (int)sizeof(struct disk_file) + real_vfs->szOsFile;
	vfs.xOpen = disk_open;
	sqlite3_vfs_register(&vfs, 1);
}
