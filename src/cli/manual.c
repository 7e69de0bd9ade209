/*
 * The pages of quipu help are generated from a list of commands, two lists of flags, and the option
 * table; each page has its own format. Help texts are fragments in lower case without a full stop,
 * so that every page can put them into its own sentence or cell.
 */
#include "cli/manual.h"

#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "cli/guess.h"
#include "cli/option_groups.h"
#include "cli/report.h"

/* The date of the last change to the man page's own text in this file. Changes of the options,
 * flags and commands, from which the rest of the page is generated, do not count. */
#define MAN_DATE "2026-11-19"

#define COMMAND_WIDTH 54

/* Which options the help of a command shows. */
enum shown_options {
	SHOW_NONE,
	SHOW_SERVER, /* all options of a server */
	SHOW_COPY,
	SHOW_DEMO,
	SHOW_CLIENT /* the options of commands that need a running server */
};

#define COPY_OPTIONS "data store log-level log-format"
#define DEMO_OPTIONS "listen"

struct usage {
	const char *command;
	const char *verb;      /* "" if there is no verb */
	const char *arguments; /* the arguments after command and verb */
	const char *help;
	enum shown_options shown;
};

static const struct usage usages[] = {
	{"serve", "", "[options]", "run the server", SHOW_SERVER},
	{"migrate", "", "[--json] [options]", "bring the schema of the stores up to date and exit",
		SHOW_SERVER},
	{"migrate", "", "--distribute [--dry-run] [--json]",
		"also spread the tables over the nodes of a Citus cluster", SHOW_SERVER},
	{"demo", "", "[--listen ADDRESS] [--seconds N]",
		"try every service in a temporary folder, with simulated traffic and the console",
		SHOW_DEMO},
	{"copy", "", "[--from sqlite:DIR] [--to URL] [--json]",
		"move the data of a folder to PostgreSQL; run it again after an interruption",
		SHOW_COPY},
	{"keys", "new", "ID [--scopes LIST] [--json]",
		"create an API key for the file of --api-keys", SHOW_NONE},
	{"routes", "", "[--json]", "list all routes with method, path, access and role", SHOW_NONE},
	{"version", "", "[--json]", "print the version", SHOW_NONE},
	{"help", "", "[COMMAND]",
		"print this help, or the help of one command (also: quipu COMMAND --help)",
		SHOW_NONE},
	{"help", "man", "", "print the man page", SHOW_NONE},
	{"help", "bash", "", "print the completion for bash", SHOW_NONE},
	{"help", "configuration", "", "print docs/CONFIGURATION.md", SHOW_NONE},
	{"health", "", "[--json]", "check whether the server is alive", SHOW_CLIENT},
	{"dlq", "list", "[--limit N] [--json]",
		"list dead letters: events that could not be delivered", SHOW_CLIENT},
	{"dlq", "show", "KIND/ID [--json]", "show a dead letter with its event", SHOW_CLIENT},
	{"dlq", "replay", "KIND/ID... | KIND --all [--json]", "deliver dead letters again",
		SHOW_CLIENT},
	{"dlq", "discard", "KIND/ID... --why TEXT [--json]", "discard dead letters", SHOW_CLIENT},
	{"erase-user", "", "ID [--dry-run] [--json]",
		"erase a person from all services of the server", SHOW_CLIENT},
	{"verify", "", "[SERVICE] [--json]", "find rows that violate the rules of a service",
		SHOW_CLIENT},
	{"verify", "unread", "[--repair] [--json]",
		"compare the counters of unread messages with the messages", SHOW_CLIENT},
	{"outbox", "resend", "[dialog-outbox] --since TIME [--json]",
		"publish events again, e.g. those of the last 24h", SHOW_CLIENT},
};

/* Flags of single commands that need more explanation than the usage line gives. */
static const struct {
	const char *command;
	const char *flag;
	const char *help;
} own_flags[] = {
	{"demo", "--seconds N",
		"how long to send traffic, 0 to 3600 s; afterwards, the server keeps running [60]"},
	{"copy", "--from sqlite:DIR",
		"the data folder to move; no server may be using it [the folder of --data]"},
	{"copy", "--to URL",
		"the database to move to, postgres://...; a URL with a password is refused here: "
		"set QUIPU_STORE to it and leave --to out [the URL of --store or QUIPU_STORE]"},
	{"copy", "--json", "print the result as JSON, for programs"},
};

/* Flags that every command has and that are not in the option table. */
static const struct {
	const char *name;
	const char *value; /* "" if the flag takes no value */
	const char *help;
} specials[] = {
	{"config", "FILE", "read options from an INI file"},
	{"print-config", "[--json]",
		"show every option with its value, and where the value comes from"},
	{"check-config", "[--json]",
		"check the options, the key files and the certificate file, and exit"},
};

#define USAGE_COUNT (sizeof(usages) / sizeof(usages[0]))
#define OWN_FLAG_COUNT (sizeof(own_flags) / sizeof(own_flags[0]))
#define SPECIAL_COUNT (sizeof(specials) / sizeof(specials[0]))

static bool asks_server(const struct usage *usage)
{
	return usage->shown == SHOW_CLIENT;
}

/* Writes a line such as "quipu dlq list [--limit N]". */
static void write_usage(char *out, size_t size, const struct usage *usage)
{
	snprintf(out, size, "quipu %s%s%s%s%s", usage->command, *usage->verb ? " " : "",
		usage->verb, *usage->arguments ? " " : "", usage->arguments);
}

/* ---- help for the terminal --------------------------------------------------------------- */

static void help_commands(FILE *out, bool with_server)
{
	for (size_t i = 0; i < USAGE_COUNT; i++) {
		char line[128];

		if (asks_server(&usages[i]) != with_server)
			continue;
		write_usage(line, sizeof(line), &usages[i]);
		fprintf(out, "  %-*s %s\n", COMMAND_WIDTH, line, usages[i].help);
	}
}

static void write_help(FILE *out)
{
	fputs("quipu keeps the numbers an application must never get wrong.\n\n", out);
	help_commands(out, false);
	fputs("\nWith a running server, at --listen or --server:\n\n", out);
	help_commands(out, true);
	fputs("\n", out);
	for (size_t i = 0; i < SPECIAL_COUNT; i++) {
		char flag[64];

		snprintf(flag, sizeof(flag), "--%s %s", specials[i].name, specials[i].value);
		fprintf(out, "  %-28s %s\n", flag, specials[i].help);
	}
	fputs("\nEach of the following options can also be set as QUIPU_NAME in the environment, "
	      "or as a line of the file that --config names.\n",
		out);
	for (size_t i = 0; i < OPTION_GROUPS; i++) {
		fputs("\n", out);
		options_help(out, i);
	}
}

static void help_own_flags(FILE *out, const char *command)
{
	const char *before = "\nFlags:\n\n";

	for (size_t i = 0; i < OWN_FLAG_COUNT; i++) {
		if (strcmp(own_flags[i].command, command) != 0)
			continue;
		fprintf(out, "%s  %-28s %s\n", before, own_flags[i].flag, own_flags[i].help);
		before = "";
	}
}

/* The help of a command that calls a server shows only the last group of options. The help of serve
 * and migrate shows all other groups. */
static void help_options_of(FILE *out, enum shown_options shown)
{
	size_t i = shown == SHOW_CLIENT ? OPTION_GROUPS - 1 : 0;
	size_t end = shown == SHOW_CLIENT ? OPTION_GROUPS : OPTION_GROUPS - 1;

	if (shown == SHOW_COPY || shown == SHOW_DEMO) {
		fputs("\n", out);
		options_help_some(out, shown == SHOW_COPY ? COPY_OPTIONS : DEMO_OPTIONS);
	}
	for (; (shown == SHOW_SERVER || shown == SHOW_CLIENT) && i < end; i++) {
		fputs("\n", out);
		options_help(out, i);
	}
}

/* Prints the help of one command. Returns false if there is no such command. */
static bool write_command_help(FILE *out, const char *command)
{
	const struct usage *last = NULL;

	for (size_t i = 0; i < USAGE_COUNT; i++) {
		char line[128];

		if (strcmp(usages[i].command, command) != 0)
			continue;
		write_usage(line, sizeof(line), &usages[i]);
		fprintf(out, "  %-*s %s\n", COMMAND_WIDTH, line, usages[i].help);
		last = &usages[i];
	}
	if (last) {
		help_own_flags(out, command);
		help_options_of(out, last->shown);
	}
	return last != NULL;
}

int manual_help(const char *command)
{
	if (write_command_help(stdout, command))
		return EXIT_SUCCESS;
	return report_failure(
		EXIT_USAGE, "there is no command \"%s\"%s", command, manual_guess(command));
}

const char *manual_guess(const char *word)
{
	const char *names[USAGE_COUNT + 1] = {NULL};

	for (size_t i = 0; i < USAGE_COUNT; i++)
		names[i] = usages[i].command;
	return guess_name(slice_of(word), names, "");
}

const char *manual_meant_verb(const char *command, const char *word)
{
	const char *verbs[USAGE_COUNT + 1] = {NULL};
	size_t count = 0;

	for (size_t i = 0; i < USAGE_COUNT; i++) {
		if (strcmp(usages[i].command, command) != 0)
			continue;
		if (!*usages[i].verb || strcmp(usages[i].verb, word) == 0)
			return NULL;
		verbs[count++] = usages[i].verb;
	}
	return nearest_name(slice_of(word), verbs);
}

/* ---- the man page ------------------------------------------------------------------------ */

/* Escapes text so that roff prints all of it and executes no part of it as a roff command. */
static void man_text(FILE *out, const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", out);
	for (; *text; text++) {
		if (*text == '-' || *text == '\\')
			fputs(*text == '-' ? "\\-" : "\\e", out);
		else
			fputc(*text, out);
	}
}

/* Starts a paragraph with a term: `before` and `bold` in bold, `italic` in italics. */
static void man_term(FILE *out, const char *before, const char *bold, const char *italic)
{
	fputs(".TP\n\\fB", out);
	man_text(out, before);
	man_text(out, bold);
	fputs("\\fR", out);
	if (italic && *italic) {
		fputs(" \\fI", out);
		man_text(out, italic);
		fputs("\\fR", out);
	}
	fputs("\n", out);
}

static void man_commands(FILE *out)
{
	for (size_t i = 0; i < USAGE_COUNT; i++) {
		char words[64];

		snprintf(words, sizeof(words), "%s%s%s", usages[i].command,
			*usages[i].verb ? " " : "", usages[i].verb);
		man_term(out, "quipu ", words, usages[i].arguments);
		fputs(asks_server(&usages[i]) ? "With a running server: " : "", out);
		man_text(out, usages[i].help);
		fputs(".\n", out);
	}
}

static void man_option(FILE *out, const struct option_facts *option)
{
	man_term(out, "--", option->name, option->value);
	man_text(out, option->help);
	fputs(".\n", out);
	if (*option->range) {
		man_text(out, "From ");
		man_text(out, option->range);
		fputs(".\n", out);
	}
	if (*option->standard) {
		fputs("Default: \\fB", out);
		man_text(out, option->standard);
		fputs("\\fR.\n", out);
	}
	fprintf(out, "Variable: \\fB%s\\fR.\n", option->variable);
}

static void man_group(FILE *out, size_t group)
{
	fprintf(out, ".SS %s\n", option_group_title(group));
	for (size_t i = 0; i < options_count(); i++) {
		struct option_facts option = options_at(i);

		if (option_is_in_group(option.name, group))
			man_option(out, &option);
	}
}

static void man_options(FILE *out)
{
	for (size_t i = 0; i < SPECIAL_COUNT; i++) {
		man_term(out, "--", specials[i].name, specials[i].value);
		man_text(out, specials[i].help);
		fputs(".\n", out);
	}
	for (size_t i = 0; i < OPTION_GROUPS; i++)
		man_group(out, i);
}

static void write_man(FILE *out)
{
	fputs(".\\\" Written by: quipu help man\n"
	      ".TH QUIPU 1 " MAN_DATE " \"quipu " QUIPU_VERSION "\" \"User Commands\"\n"
	      ".SH NAME\nquipu \\- keeps the numbers an application must never get wrong\n"
	      ".SH SYNOPSIS\n.B quipu\n.I command\n.RI [ options ]\n"
	      ".SH DESCRIPTION\n"
	      "A server for counts, send quotas, entitlements and the like, exact under\n"
	      "concurrency, retries and crashes.\n"
	      "It starts with embedded SQLite; with other URLs the same program uses\n"
	      "PostgreSQL, Redis and message brokers.\n"
	      ".SH COMMANDS\n",
		out);
	man_commands(out);
	fputs(".SH OPTIONS\n"
	      "A flag overrides the environment, the environment overrides the file of\n"
	      ".BR \\-\\-config ,\nand the file overrides the default.\n"
	      "The file has lines such as\n.BR \"store = sqlite:\" ;\n"
	      "its name can also be set in\n.BR QUIPU_CONFIG .\n"
	      "Put passwords into the file or the environment, because everyone on the\n"
	      "machine can see flags.\n",
		out);
	man_options(out);
	fputs(".SH SIGNALS\n.TP\n.BR SIGTERM \", \" SIGINT\n"
	      "Report not ready for\n.BR \\-\\-drain\\-delay ,\nthen accept no new connections, "
	      "finish the current requests within\n"
	      ".BR \\-\\-drain\\-timeout ,\nand exit with 0.\nA second signal ends the wait.\n"
	      ".TP\n.B SIGHUP\nRead the files of\n.BR \\-\\-api\\-keys ,\n.BR \\-\\-jwt\\-key ,\n"
	      ".BR \\-\\-tls\\-cert ,\n.B \\-\\-tls\\-key\nand\n.B "
	      "\\-\\-webhook\\-secret\\-file\nagain.\n"
	      "If a file is not valid, log why and keep using its previous contents.\n"
	      ".SH EXIT STATUS\n.TP\n.B 0\nSuccess.\n.TP\n.B 1\nThe command failed.\n"
	      ".TP\n.B 2\nThe arguments are wrong.\n"
	      ".SH SEE ALSO\n"
	      "A running server describes its routes at\n.I /openapi.json\n"
	      "and itself at\n.IR /healthz ,\n.IR /readyz\nand\n.IR /metrics .\n",
		out);
}

/* ---- completion -------------------------------------------------------------------------- */

/* Prints every --flag in `arguments`. */
static void bash_own_flags(FILE *out, const char *arguments)
{
	while ((arguments = strstr(arguments, "--"))) {
		size_t len = 2 + strspn(arguments + 2, "abcdefghijklmnopqrstuvwxyz-");

		fprintf(out, " %.*s", (int)len, arguments);
		arguments += len;
	}
}

static void bash_commands(FILE *out)
{
	const char *last = "";

	fputs("\tlocal commands='", out);
	for (size_t i = 0; i < USAGE_COUNT; i++) {
		if (strcmp(usages[i].command, last) != 0)
			fprintf(out, "%s%s", *last ? " " : "", usages[i].command);
		last = usages[i].command;
	}
	fputs("'\n", out);
}

static void bash_flags(FILE *out)
{
	fputs("\tlocal flags='", out);
	for (size_t i = 0; i < options_count(); i++)
		fprintf(out, "%s--%s", i == 0 ? "" : " ", options_at(i).name);
	for (size_t i = 0; i < SPECIAL_COUNT; i++)
		fprintf(out, " --%s", specials[i].name);
	fputs("'\n", out);
}

/* Prints the words that may follow each command: its verbs and its own flags. */
static void bash_verbs(FILE *out)
{
	const char *last = "";

	fputs("\tcase $command in\n", out);
	for (size_t i = 0; i < USAGE_COUNT; i++) {
		bool is_new = strcmp(usages[i].command, last) != 0;

		if (is_new)
			fprintf(out, "%s\t%s) words='", *last ? "' ;;\n" : "", usages[i].command);
		if (*usages[i].verb)
			fprintf(out, " %s", usages[i].verb);
		bash_own_flags(out, usages[i].arguments);
		last = usages[i].command;
	}
	fputs("' ;;\n\tesac\n", out);
}

/* Prints one case of a case statement in bash, such as "--tls-cert|--tls-key) action", for all
 * options whose value is a `kind` (DIR or FILE). If `kind` is NULL, prints the case for all other
 * options that take a value. */
static void bash_values_of(FILE *out, const char *kind, const char *action)
{
	const char *between = "\t";

	for (size_t i = 0; i < options_count(); i++) {
		struct option_facts option = options_at(i);
		bool is_file = option.value && (strcmp(option.value, "DIR") == 0 ||
						       strcmp(option.value, "FILE") == 0);

		if (!option.value || (kind ? strcmp(option.value, kind) != 0 : is_file))
			continue;
		fprintf(out, "%s--%s", between, option.name);
		between = "|";
	}
	if (*between == '|')
		fprintf(out, ") %s ;;\n", action);
}

static void bash_values(FILE *out)
{
	fputs("\tcase $before in\n\t--config) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n",
		out);
	bash_values_of(out, "DIR", "COMPREPLY=($(compgen -d -- \"$word\")); return");
	bash_values_of(out, "FILE", "COMPREPLY=($(compgen -f -- \"$word\")); return");
	bash_values_of(out, NULL, "return");
	fputs("\tesac\n", out);
}

static void write_bash(FILE *out)
{
	fputs("# Completion for bash. Written by: quipu help bash\n\n_quipu()\n{\n"
	      "\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
	      "\tlocal command=${COMP_WORDS[1]} words=\n",
		out);
	bash_commands(out);
	bash_flags(out);
	fputs("\n\tCOMPREPLY=()\n\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n"
	      "\t\tCOMPREPLY=($(compgen -W \"$commands\" -- \"$word\"))\n\t\treturn\n\tfi\n",
		out);
	bash_values(out);
	bash_verbs(out);
	fputs("\tCOMPREPLY=($(compgen -W \"$words $flags\" -- \"$word\"))\n}\n\n"
	      "complete -F _quipu quipu\n",
		out);
}

/* ---- docs/CONFIGURATION.md --------------------------------------------------------------- */

/* Escapes text for a cell of a Markdown table. */
static void cell_text(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '|')
			fputc('\\', out);
		fputc(*text, out);
	}
}

static void configuration_row(FILE *out, const struct option_facts *option)
{
	fprintf(out, "| `--%s", option->name);
	if (option->value)
		fprintf(out, " %s", option->value);
	fprintf(out, "` | `%s` | ", option->variable);
	if (*option->standard)
		fprintf(out, "`%s`", option->standard);
	fputs(" | ", out);
	cell_text(out, option->help);
	if (*option->range)
		fprintf(out, " (%s)", option->range);
	fputs(" |\n", out);
}

static void configuration_group(FILE *out, size_t group)
{
	fprintf(out,
		"\n## %s\n\n| option | variable | default | meaning |\n| --- | --- | --- | --- |\n",
		option_group_title(group));
	for (size_t i = 0; i < options_count(); i++) {
		struct option_facts option = options_at(i);

		if (option_is_in_group(option.name, group))
			configuration_row(out, &option);
	}
}

static void write_configuration(FILE *out)
{
	fputs("# Configuration\n\n"
	      "<!-- Written by `quipu help configuration`, which `make docs` runs. Change the "
	      "table "
	      "in src/cli/options.c instead. -->\n\n"
	      "Every option can be set in three ways. A flag overrides the environment, the "
	      "environment overrides the file, and the\nfile overrides the default.\n\n"
	      "| way | example |\n| --- | --- |\n"
	      "| flag | `quipu serve --batch-max 512` or `--batch-max=512` |\n"
	      "| environment | `QUIPU_BATCH_MAX=512` |\n"
	      "| file | a line `batch-max = 512` in the file that `--config FILE` or "
	      "`QUIPU_CONFIG` names |\n\n"
	      "- `quipu serve --print-config` shows all values and where they come from, with "
	      "passwords hidden. `--check-config` only checks the\n"
	      "  options, reads the key and certificate files as `serve` does, and prints "
	      "`ok`. With `--json`, each line is an object.\n"
	      "- Passwords are part of URLs. Set such URLs in the file or the environment, because "
	      "everyone on the machine can see flags.\n"
	      "- A time is a number with a unit: `20ms`, `5s`, `1m`, `24h`, `30d`. A yes-or-no "
	      "option needs no value as a flag; in the\n"
	      "  environment and the file, write `yes` or `no`.\n"
	      "- A line of the file has at most 4096 bytes. A line that begins with `#` or `;` is "
	      "a "
	      "comment, and so is everything after ` ;`.\n"
	      "- If an unknown variable `QUIPU_...` is set, the log has a warning that names the "
	      "variable that you may have meant.\n"
	      "- If an option is wrong or does not fit the others, the server does not start: it "
	      "prints the reason and exits with status 2. If a\n"
	      "  key or certificate file cannot be used, the status is 1.\n",
		out);
	for (size_t i = 0; i < OPTION_GROUPS; i++)
		configuration_group(out, i);
}

/* ---- choosing the page ------------------------------------------------------------------- */

int manual_run(const struct settings *settings, const struct operands *operands)
{
	static const struct {
		const char *name;
		void (*write)(FILE *out);
	} pages[] = {
		{"", write_help},
		{"man", write_man},
		{"bash", write_bash},
		{"configuration", write_configuration},
	};
	const char *name = operands->word_count > 0 ? operands->words[0] : "";

	(void)settings;
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		if (operands->word_count <= 1 && strcmp(name, pages[i].name) == 0) {
			pages[i].write(stdout);
			return EXIT_SUCCESS;
		}
	}
	if (operands->word_count == 1)
		return manual_help(name);
	return report_failure(EXIT_USAGE, "usage: quipu help [COMMAND|man|bash|configuration]");
}
