/* What the program says in its log during a test, which it goes on saying after. */
#ifndef QUIPU_CONTRACT_CAPTURED_LOG_H
#define QUIPU_CONTRACT_CAPTURED_LOG_H

void captured_log_begin(void);
void captured_log_end(void);

/* How often `words` are in it so far. */
int captured_log_count(const char *words);

/* Fails unless `words` get into it that often, and no more. Waits for them, because a line is
 * written a moment after the change that it tells of can be seen. */
void captured_log_assert(const char *words, int times);

#endif
