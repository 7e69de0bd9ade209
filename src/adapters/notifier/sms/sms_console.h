/*
 * Standard output behind ports/notifier.h: each notice, a message of the gateway, is one line
 * `SMS SENT userId=… message=…` with control characters escaped. It counts as sent once the line is
 * written; while standard output cannot be written, it is unreachable.
 */
#ifndef QUIPU_ADAPTERS_NOTIFIER_SMS_SMS_CONSOLE_H
#define QUIPU_ADAPTERS_NOTIFIER_SMS_SMS_CONSOLE_H

#include "ports/notifier.h"

struct notifier *sms_console_new(void);

#endif
