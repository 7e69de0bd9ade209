/*
 * `quipu copy` moves the data of a folder with SQLite files to a PostgreSQL database.
 *
 *   mark of the folder    copy in the database   what a run does
 *   none                  none, empty tables     marks the folder "copying", begins
 *   "copying"             none, empty tables     begins, under the same id
 *   "copying"             begun                  continues after the last batch
 *   "moved"               begun                  verifies again, finishes
 *   "moved"               finished               does nothing
 *
 * Every other combination is refused, and a refusal changes nothing. A lock in the database keeps
 * servers and other copies out as long as a copy runs. The folder is marked before the first row is
 * copied. From then on no server uses the folder, so its rows do not change until the copy is
 * complete, however often the copy is interrupted. At the end, checksums of both sides are
 * compared; then the folder is marked "moved", and only then may servers start on the database.
 * Therefore folder and database are never served at the same time.
 */
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "adapters/bus/local/local_bus.h"
#include "adapters/store/postgres/postgres_table_target.h"
#include "adapters/store/sqlite/sqlite_table_source.h"
#include "app/app.h"
#include "base/buffer.h"
#include "base/digest.h"
#include "base/failpoint.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/secrets.h"

#define FILES_MAX 16
#define COMPONENTS_MAX 32
#define BATCH_ROWS 10000
#define FILE_END ".db"

/* The files that the modules (module_*.c) open. If the folder has any other database file, the copy
 * is refused, so that no data is left behind unnoticed. */
static const char *const store_files[] = {"counters.db", "counts.db", "dialogs.db",
	"entitlements.db", "gateway.db", "notifications.db", "pots.db", NULL};
static const char *const bus_files[] = {
	"entitlements-bus.db", "gateway-bus.db", "unread-bus.db", NULL};

const char *const copy_flags[] = {"from", "to", OWN_SWITCH "json", NULL};

struct copy_file {
	char name[NAME_MAX + 1]; /* e.g. "counts.db" */
	struct table_source *source;
};

struct copy {
	const char *data;
	const char *url;
	bool json;
	char why[OPTIONS_WHY_SIZE];
	bool is_explained;    /* `why` already says what the user can do about the folder's mark */
	bool must_start_over; /* continuing the copy would fail in the same way */
	struct moved moved;
	struct copy_file files[FILES_MAX];
	size_t file_count;
	const char *components[COMPONENTS_MAX + 1];
	size_t component_count;
	struct table_target *target;
	struct arena arena; /* memory for one row, or for the final output */
	int64_t rows;       /* the number of rows to copy, over all tables */
	int64_t keys_left_out;
	int64_t tables;
	struct progress progress;
};

/* ---- arguments --------------------------------------------------------------------------- */

/* Writes `url` without its secrets to `shown`. */
static void show_url(const char *url, char shown[MOVED_TO_SIZE])
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	secrets_print_url(out, url);
	fclose(out);
	snprintf(shown, MOVED_TO_SIZE, "%s", text);
	free(text);
}

/* Reads the arguments into `copy`. Returns the reason if they are not valid, otherwise NULL. */
static const char *read_arguments(
	struct copy *copy, const struct settings *settings, const struct operands *operands)
{
	const char *from = operands_flag(operands, "from"), *to = operands_flag(operands, "to");
	struct stat folder;

	copy->data = settings->data;
	copy->url = to ? to : settings->store;
	copy->json = operands_flag(operands, "json") != NULL;
	if (operands->word_count > 0)
		return "usage: quipu copy [--from sqlite:DIR] [--to postgres://...]";
	if (from && (strncmp(from, "sqlite:", 7) != 0 || !from[7]))
		return "--from must be sqlite:DIR, where DIR is a data folder as in --data";
	if (from)
		copy->data = from + 7;
	if (!url_has_scheme(copy->url, "postgres://") &&
		!url_has_scheme(copy->url, "postgresql://"))
		return "name the target with --to postgres://..., or with QUIPU_STORE";
	if (to && secrets_in_url(to))
		return "everybody on this machine can see the password in --to; set QUIPU_STORE "
		       "to the URL instead, and leave --to out";
	if (stat(copy->data, &folder) != 0 || !S_ISDIR(folder.st_mode))
		return "there is no data folder to copy; name it with --from sqlite:DIR";
	return NULL;
}

/* ---- the source -------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
	size_t len = strlen(name);

	return len > strlen(end) && strcmp(name + len - strlen(end), end) == 0;
}

static bool is_one_of(const char *const *names, const char *name)
{
	while (*names && strcmp(*names, name) != 0)
		names++;
	return *names != NULL;
}

static bool is_drained(struct copy *copy, const char *name)
{
	char path[PATH_MAX];
	int64_t waiting;

	snprintf(path, sizeof(path), "%s/%s", copy->data, name);
	if (!local_bus_waiting(path, &unread_channel, 1, &waiting, copy->why, OPTIONS_WHY_SIZE))
		return false;
	if (waiting > 0)
		snprintf(copy->why, OPTIONS_WHY_SIZE,
			"%lld messages wait in the local queue %.200s, and queues are not copied: "
			"start "
			"the server on this folder once more, without clients, and stop it when "
			"the messages are delivered",
			(long long)waiting, path);
	return waiting == 0;
}

static void add_component(struct copy *copy, const char *component)
{
	for (size_t i = 0; i < copy->component_count; i++) {
		if (strcmp(copy->components[i], component) == 0)
			return;
	}
	if (copy->component_count < COMPONENTS_MAX)
		copy->components[copy->component_count++] = component;
}

static bool open_file(struct copy *copy, const char *name)
{
	struct copy_file *file = &copy->files[copy->file_count];
	char path[PATH_MAX];

	if (copy->file_count == FILES_MAX) {
		snprintf(copy->why, OPTIONS_WHY_SIZE, "%s has too many files", copy->data);
		return false;
	}
	snprintf(path, sizeof(path), "%s/%s", copy->data, name);
	snprintf(file->name, sizeof(file->name), "%s", name);
	file->source = table_source_open(path, copy->why, OPTIONS_WHY_SIZE);
	if (!file->source)
		return false;
	copy->file_count++;
	for (size_t i = 0; table_source_component(file->source, i); i++)
		add_component(copy, table_source_component(file->source, i));
	return true;
}

/* Opens the file if it belongs to a store. If it belongs to a bus, returns false if messages still
 * wait in it. Returns false for every other database file. Ignores files that are no databases. */
static bool take_file(struct copy *copy, const char *name)
{
	if (is_one_of(bus_files, name))
		return is_drained(copy, name);
	if (is_one_of(store_files, name))
		return open_file(copy, name);
	if (!ends_with(name, FILE_END))
		return true;
	snprintf(copy->why, OPTIONS_WHY_SIZE,
		"%.200s/%.200s is not a file that this quipu writes; if it is a backup, move it to "
		"another folder",
		copy->data, name);
	return false;
}

/*
 * If several files have the same Idempotency-Key, only one of these files copies the key. Each file
 * in the folder has a table of Idempotency-Keys, but the database has one table for all services.
 * Keys of different services usually differ in their scopes. But the routes for operators are the
 * same for several services (/operator/erase/{service}), so two files may have the same key for two
 * different requests. A retry of the request whose key was left out gets 409, as it would if both
 * services had used the database from the start.
 */
static bool share_keys(struct copy *copy)
{
	struct table_source *sources[FILES_MAX];
	int64_t left_out = 0;
	bool good = true;

	for (size_t f = 0; f < copy->file_count; f++)
		sources[f] = copy->files[f].source;
	for (size_t f = 0; good && f < copy->file_count; f++) {
		good = table_source_share_keys(
			sources, copy->file_count, f, &left_out, copy->why, OPTIONS_WHY_SIZE);
		copy->keys_left_out += left_out;
	}
	return good;
}

static void count_rows(struct copy *copy)
{
	for (size_t f = 0; f < copy->file_count; f++) {
		struct table_source *source = copy->files[f].source;

		for (size_t t = 0; t < table_source_count(source); t++)
			copy->rows += table_source_at(source, t)->rows;
	}
}

/* Opens the files of all stores, sorted by name. */
static bool open_source(struct copy *copy)
{
	struct dirent **names = NULL;
	int count = scandir(copy->data, &names, NULL, alphasort);
	bool good = count >= 0;

	for (int i = 0; i < count; i++) {
		good = good && take_file(copy, names[i]->d_name);
		free(names[i]);
	}
	free(names);
	if (good && copy->file_count == 0) {
		snprintf(copy->why, OPTIONS_WHY_SIZE, "there is no data in %s", copy->data);
		good = false;
	}
	if (!good || !share_keys(copy))
		return false;
	count_rows(copy);
	return true;
}

/* ---- beginning --------------------------------------------------------------------------- */

static bool target_is_empty(struct copy *copy)
{
	for (size_t f = 0; f < copy->file_count; f++) {
		struct table_source *source = copy->files[f].source;

		for (size_t t = 0; t < table_source_count(source); t++) {
			if (!table_target_is_empty(copy->target, table_source_at(source, t),
				    copy->why, OPTIONS_WHY_SIZE))
				return false;
		}
	}
	return true;
}

static bool prepare(struct copy *copy)
{
	return table_target_prepare(copy->target, copy->components, copy->why, OPTIONS_WHY_SIZE);
}

/* Checks everything before it changes anything. Creates the schema before it marks the folder,
 * because creating the schema can fail. */
static bool begin(struct copy *copy)
{
	return table_target_is_free(copy->target, copy->why, OPTIONS_WHY_SIZE) &&
	       target_is_empty(copy) && prepare(copy) &&
	       moved_write(copy->data, &copy->moved, copy->why) &&
	       table_target_begin(copy->target, copy->data, copy->why, OPTIONS_WHY_SIZE);
}

/* Reads the mark of the folder, or prepares a new mark if the folder has none. Returns false if the
 * mark names another target. */
static bool read_mark(struct copy *copy)
{
	char shown[MOVED_TO_SIZE];

	show_url(copy->url, shown);
	if (!moved_read(copy->data, &copy->moved)) {
		uuid_random(copy->moved.copy_id);
		snprintf(copy->moved.to, sizeof(copy->moved.to), "%s", shown);
	}
	if (strcmp(copy->moved.to, shown) == 0)
		return true;
	moved_explain(copy->data, &copy->moved, copy->why);
	copy->is_explained = true;
	return false;
}

static bool find(struct copy *copy, bool *has_begun, bool *is_done)
{
	return table_target_find(
		copy->target, copy->moved.copy_id, has_begun, is_done, copy->why, OPTIONS_WHY_SIZE);
}

/* Begins the copy, or continues it. Sets `is_done` if the copy is already complete. Looks for a
 * complete copy before taking the lock: servers may already use that copy, and the lock keeps
 * servers out and is refused while a server is connected. */
static bool start(struct copy *copy, bool *is_done)
{
	bool has_begun;

	if (!find(copy, &has_begun, is_done))
		return false;
	if (*is_done)
		return true;
	if (!table_target_lock(copy->target, copy->why, OPTIONS_WHY_SIZE) ||
		!find(copy, &has_begun, is_done))
		return false;
	if (has_begun)
		return *is_done || prepare(copy);
	if (!copy->moved.is_finished)
		return begin(copy);
	snprintf(copy->why, OPTIONS_WHY_SIZE,
		"the data in %s was already moved, but not to this database; to copy it "
		"anew, delete %s/moved",
		copy->data, copy->data);
	copy->is_explained = true;
	return false;
}

/* ---- copying ----------------------------------------------------------------------------- */

/* Copies up to BATCH_ROWS rows in one transaction and adds their number to `rows`. */
static bool copy_batch(struct copy *copy, struct table_source *source, int64_t *rows)
{
	struct cell cells[TABLE_COLUMNS_MAX];
	enum table_step step = TABLE_ROW;
	int count = 0;

	if (!table_target_open_batch(copy->target, copy->why, OPTIONS_WHY_SIZE))
		return false;
	while (count < BATCH_ROWS && (step = table_source_next(source, cells, copy->why,
					      OPTIONS_WHY_SIZE)) == TABLE_ROW) {
		if (!table_target_add(copy->target, cells, copy->why, OPTIONS_WHY_SIZE))
			return false;
		progress_at(&copy->progress, copy->progress.done + 1);
		count++;
	}
	*rows += count;
	return step != TABLE_FAILED &&
	       table_target_commit(copy->target, *rows, copy->why, OPTIONS_WHY_SIZE);
}

static bool copy_table(
	struct copy *copy, const struct copy_file *file, const struct table_facts *table)
{
	int64_t rows = 0;
	bool good;

	if (!table_target_choose(
		    copy->target, file->name, table, &rows, copy->why, OPTIONS_WHY_SIZE))
		return false;
	copy->progress.title = table->name;
	progress_at(&copy->progress, copy->progress.done + rows);
	good = table_source_begin(file->source, table, rows, copy->why, OPTIONS_WHY_SIZE);
	while (good && rows < table->rows) {
		good = copy_batch(copy, file->source, &rows);
		FAILPOINT("copy.batch");
	}
	table_source_end(file->source);
	return good &&
	       table_target_advance(copy->target, table->last_id, copy->why, OPTIONS_WHY_SIZE);
}

static bool copy_tables(struct copy *copy)
{
	bool good = true;

	progress_begin(&copy->progress, "copying", copy->rows);
	for (size_t f = 0; f < copy->file_count; f++) {
		struct table_source *source = copy->files[f].source;

		for (size_t t = 0; good && t < table_source_count(source); t++)
			good = copy_table(copy, &copy->files[f], table_source_at(source, t));
	}
	progress_hide(&copy->progress);
	return good && table_target_settle(copy->target, copy->why, OPTIONS_WHY_SIZE);
}

/* ---- verifying --------------------------------------------------------------------------- */

/* Appends a value in the form that the SQL of postgres_table_plan.c hashes. A text or number is
 * written after its length ("5:hello"), a blob in hex after the number of hex digits ("4:00ff"),
 * and NULL as "-". */
static void write_cell(struct buffer *out, const struct cell *cell)
{
	static const char digits[] = "0123456789abcdef";
	char number[32];
	struct slice text = cell->bytes;

	if (cell->kind == CELL_INTEGER) {
		snprintf(number, sizeof(number), "%lld", (long long)cell->integer);
		text = slice_of(number);
	}
	if (cell->kind == CELL_NULL)
		buffer_char(out, '-');
	else
		buffer_format(out, "%zu:", cell->kind == CELL_BLOB ? 2 * text.len : text.len);
	for (size_t i = 0; cell->kind == CELL_BLOB && i < text.len; i++) {
		buffer_char(out, digits[(unsigned char)text.data[i] >> 4]);
		buffer_char(out, digits[text.data[i] & 15]);
	}
	if (cell->kind != CELL_BLOB && cell->kind != CELL_NULL)
		buffer_add(out, text);
}

/* Returns the first 60 bits of the SHA-256 of a row's copied columns. */
static uint64_t hash_row(
	struct copy *copy, const struct table_facts *table, const struct cell *cells)
{
	struct buffer text;
	unsigned char digest[SHA256_SIZE];
	uint64_t hash = 0;

	arena_reset(&copy->arena);
	text = buffer_make(&copy->arena, 1024);
	for (size_t i = 0; i < table->column_count; i++) {
		struct cell cell = cells[i];

		if (table_target_has_uuid(copy->target, i))
			cell.bytes = uuid_lower(&copy->arena, cell.bytes);
		if (table_target_takes(copy->target, i))
			write_cell(&text, &cell);
	}
	digest_sha256(buffer_slice(&text), digest);
	for (int i = 0; i < 8; i++)
		hash = hash << 8 | digest[i];
	return hash >> 4;
}

static bool sum_source(struct copy *copy, struct table_source *source,
	const struct table_facts *table, struct table_sum *sum)
{
	struct cell cells[TABLE_COLUMNS_MAX];
	enum table_step step = TABLE_FAILED;

	if (table_source_begin(source, table, 0, copy->why, OPTIONS_WHY_SIZE)) {
		while ((step = table_source_next(source, cells, copy->why, OPTIONS_WHY_SIZE)) ==
			TABLE_ROW) {
			sum->hash = (sum->hash + hash_row(copy, table, cells)) & INT64_MAX;
			sum->rows++;
			progress_at(&copy->progress, copy->progress.done + 1);
		}
	}
	table_source_end(source);
	return step == TABLE_END;
}

/* Returns the table of this name in a file, or NULL. */
static const struct table_facts *find_table(const struct copy_file *file, const char *name)
{
	for (size_t t = 0; t < table_source_count(file->source); t++) {
		const struct table_facts *table = table_source_at(file->source, t);

		if (strcmp(table->name, name) == 0)
			return table;
	}
	return NULL;
}

/* Compares a table of the database with the tables of that name in all files from `first` on. */
static bool verify_table(struct copy *copy, size_t first, const struct table_facts *table)
{
	struct table_sum here = {0}, there;
	int64_t ignored;

	copy->progress.title = table->name;
	if (!table_target_choose(copy->target, copy->files[first].name, table, &ignored, copy->why,
		    OPTIONS_WHY_SIZE))
		return false;
	for (size_t f = first; f < copy->file_count; f++) {
		const struct table_facts *part = find_table(&copy->files[f], table->name);

		if (part && !sum_source(copy, copy->files[f].source, part, &here))
			return false;
	}
	if (!table_target_sum(copy->target, &there, copy->why, OPTIONS_WHY_SIZE))
		return false;
	if (here.rows == there.rows && here.hash == there.hash)
		return true;
	snprintf(copy->why, OPTIONS_WHY_SIZE,
		"the copy of the table %s differs: %lld rows in the folder, %lld in the "
		"database%s",
		table->name, (long long)here.rows, (long long)there.rows,
		here.rows == there.rows ? " with other contents" : "");
	copy->must_start_over = true;
	return false;
}

static bool verify_file(struct copy *copy, size_t at)
{
	struct table_source *source = copy->files[at].source;

	for (size_t t = 0; t < table_source_count(source); t++) {
		const struct table_facts *table = table_source_at(source, t);
		bool is_first = true;

		for (size_t f = 0; f < at; f++)
			is_first = is_first && !find_table(&copy->files[f], table->name);
		copy->tables += is_first;
		if (is_first && !verify_table(copy, at, table))
			return false;
	}
	return true;
}

static bool verify_tables(struct copy *copy)
{
	bool good = true;

	progress_begin(&copy->progress, "verifying", copy->rows);
	for (size_t f = 0; good && f < copy->file_count; f++)
		good = verify_file(copy, f);
	progress_hide(&copy->progress);
	return good;
}

/* ---- running ----------------------------------------------------------------------------- */

/* Marks the folder before opening the database to servers, so that folder and database are never in
 * use at the same time. */
static bool finish(struct copy *copy)
{
	copy->moved.is_finished = true;
	if (!moved_write(copy->data, &copy->moved, copy->why))
		return false;
	FAILPOINT("copy.marked");
	return table_target_finish(copy->target, copy->why, OPTIONS_WHY_SIZE);
}

static void print_end(struct copy *copy, bool was_done)
{
	struct buffer line = buffer_make(&copy->arena, 512);

	if (copy->json) {
		buffer_format(&line,
			"{\"rows\":%lld,\"tables\":%lld,\"from\":", (long long)copy->rows,
			(long long)copy->tables);
		buffer_json_string(&line, slice_of(copy->data));
		buffer_text(&line, ",\"to\":");
		buffer_json_string(&line, slice_of(copy->moved.to));
		buffer_format(&line, ",\"keysLeftOut\":%lld,\"already\":%s}",
			(long long)copy->keys_left_out, was_done ? "true" : "false");
	} else if (was_done) {
		buffer_format(&line, "%s was moved to %s already", copy->data, copy->moved.to);
	} else {
		if (copy->keys_left_out > 0)
			buffer_format(&line,
				"%lld Idempotency-Keys of operators were left out, because another "
				"service had the same key\n",
				(long long)copy->keys_left_out);
		buffer_format(&line, "%lld rows of %lld tables moved from %s to %s, and verified",
			(long long)copy->rows, (long long)copy->tables, copy->data, copy->moved.to);
	}
	buffer_char(&line, '\0');
	puts(line.data);
}

static bool move(struct copy *copy)
{
	bool is_done = false;

	if (!read_mark(copy) || !open_source(copy))
		return false;
	copy->target = table_target_open(copy->url, copy->why, OPTIONS_WHY_SIZE);
	if (!copy->target || !start(copy, &is_done))
		return false;
	if (!is_done && (!copy_tables(copy) || !verify_tables(copy) || !finish(copy)))
		return false;
	print_end(copy, is_done);
	return true;
}

/* Reports a failure. If the folder has a mark, also explains the mark and how to proceed. */
static int report(const struct copy *copy)
{
	struct moved mark;
	const char *data = copy->data;

	if (copy->is_explained || !moved_read(data, &mark))
		return report_failure(EXIT_FAILURE, "%s", copy->why);
	return report_failure(EXIT_FAILURE,
		"%s. Until the copy is complete, no server can start on the database, and no "
		"server can start on the folder while %s/moved exists. %s, delete %s/moved; a new "
		"copy then needs an empty database",
		copy->why, data,
		copy->must_start_over
			? "To start over, or to use the folder again"
			: "Remove the cause and run quipu copy again; the copy continues where it "
			  "stopped. "
			  "To give up and use the folder again",
		data);
}

static void release(struct copy *copy)
{
	for (size_t f = 0; f < copy->file_count; f++)
		table_source_close(copy->files[f].source);
	if (copy->target)
		table_target_close(copy->target);
	arena_release(&copy->arena);
}

int copy_run(const struct settings *settings, const struct operands *operands)
{
	static struct app app = {.data_lock = -1};
	struct copy copy = {0};
	const char *wrong = read_arguments(&copy, settings, operands);
	int code = EXIT_SUCCESS;

	if (wrong)
		return report_failure(EXIT_USAGE, "%s", wrong);
	arena_init(&copy.arena, 64 * 1024);
	app.settings.data = copy.data;
	if (!app_lock_data(&app, copy.why))
		code = report_failure(EXIT_FAILURE, "%s", copy.why);
	else if (!move(&copy))
		code = report(&copy);
	release(&copy);
	app_close(&app);
	return code;
}
