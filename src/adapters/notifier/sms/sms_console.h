/*
 * Implements ports/notifier.h with standard output: each notice is a message of the gateway and
 * becomes one line `SMS SENT userId=… message=…` with control characters escaped. A notice counts
 * as sent once its line is written. If writing fails, or nobody reads standard output for a second,
 * standard output is reported as unreachable.
 */
#ifndef QUIPU_ADAPTERS_NOTIFIER_SMS_SMS_CONSOLE_H
#define QUIPU_ADAPTERS_NOTIFIER_SMS_SMS_CONSOLE_H

#include "ports/notifier.h"

struct notifier *sms_console_new(void);

#endif
