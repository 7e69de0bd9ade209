/*
 * options_read() keeps the strings of a file for the life of the program, and is meant to be called
 * once. Tests call it often and tell the leak checker that this is meant.
 */
#ifndef QUIPU_TESTS_LEAKS_H
#define QUIPU_TESTS_LEAKS_H

#if defined(__SANITIZE_ADDRESS__)
#define CHECKS_LEAKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CHECKS_LEAKS 1
#endif
#endif

#ifdef CHECKS_LEAKS
#include <sanitizer/lsan_interface.h>
#define leaks_allow() __lsan_disable()
#define leaks_forbid() __lsan_enable()
#else
#define leaks_allow() ((void)0)
#define leaks_forbid() ((void)0)
#endif

#endif
