/*
 * The program's own log behind ports/notifier.h: a notice is one line of level info, part "notify",
 * with control characters escaped. It is sent as soon as it is written. With --log-level warn or
 * error nothing is printed, as asked.
 */
#ifndef QUIPU_ADAPTERS_NOTIFIER_CONSOLE_CONSOLE_NOTIFIER_H
#define QUIPU_ADAPTERS_NOTIFIER_CONSOLE_CONSOLE_NOTIFIER_H

#include "ports/notifier.h"

struct notifier *console_notifier_new(void);

#endif
