/* The headings under which the manual shows the options. Main thread. */
#ifndef QUIPU_CLI_OPTION_GROUPS_H
#define QUIPU_CLI_OPTION_GROUPS_H

#include <stdbool.h>
#include <stddef.h>

#define OPTION_GROUPS 7

/* Returns the heading of a group, below OPTION_GROUPS. */
const char *option_group_title(size_t group);

/* Whether the option of this name is in the group. Each option is in exactly one; a name that no
 * other group has is in the last but one, which is the largest. */
bool option_is_in_group(const char *name, size_t group);

#endif
