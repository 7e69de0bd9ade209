/*
 * Implements ports/notifier.h with the program's own log: each notice becomes one line of level
 * info, part "notify", with control characters escaped. A notice counts as sent once its line is
 * written. With --log-level warn or error no line appears, but notices still count as sent.
 */
#ifndef QUIPU_ADAPTERS_NOTIFIER_CONSOLE_CONSOLE_NOTIFIER_H
#define QUIPU_ADAPTERS_NOTIFIER_CONSOLE_CONSOLE_NOTIFIER_H

#include "ports/notifier.h"

struct notifier *console_notifier_new(void);

#endif
