/*
 * Implements ports/notifier.h with standard output: each notice is a message of the gateway and
 * becomes one line `SMS SENT userId=… message=…` with control characters escaped. A notice counts
 * as sent once its line is written. If writing fails, or nobody reads standard output for a second,
 * the notices whose lines were not written get the fate FAILED, and `is_unreachable` is set in
 * their results.
 */
#ifndef QUIPU_ADAPTERS_NOTIFIER_SMS_SMS_NOTIFIER_H
#define QUIPU_ADAPTERS_NOTIFIER_SMS_SMS_NOTIFIER_H

#include "ports/notifier.h"

struct notifier *sms_notifier_new(void);

#endif
