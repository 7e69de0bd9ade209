/* The headings under which the manual shows the options. Main thread only. */
#ifndef QUIPU_CLI_OPTION_GROUPS_H
#define QUIPU_CLI_OPTION_GROUPS_H

#include <stdbool.h>
#include <stddef.h>

#define OPTION_GROUPS 7

/* Returns the heading of a group. `group` must be below OPTION_GROUPS. */
const char *option_group_title(size_t group);

/* Returns true if the option is in the group. Each option is in exactly one group: the group that
 * lists its name or, if no group lists it, the group "Limits and times". */
bool option_is_in_group(const char *name, size_t group);

/* Returns true if the option is among `names`, which are separated by spaces. A name in this list
 * that ends with "-" stands for all names that begin with it. */
bool option_is_listed(const char *name, const char *names);

#endif
