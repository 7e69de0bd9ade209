/*
 * The two things that must be atomic in the server.
 *
 * Numbers in Lua are doubles: exact to 2^53, so fields of at most 15 digits can be added and
 * compared; "%.0f" writes them without an exponent. windowStart and windowLength go through as text
 * (18 digits always fit int64). A hash that breaks these rules, has no TTL, or is no hash at all
 * was not written by us: it is deleted, and counts as a miss. DEL of a key that is not there is
 * nothing.
 */
#include "adapters/redis/redis_internal.h"

/* KEYS: the hash. ARGV: wanted. Answers nil, or granted, limit, count after, TTL in ms, start,
 * length. */
static const char take[] =
	"local hash = redis.pcall('HMGET', KEYS[1],"
	" 'rateLimit', 'currentCount', 'windowStart', 'windowLength')\n"
	"local ttl_ms = redis.call('PTTL', KEYS[1])\n"
	"local function fits(text, pattern, digits_max)\n"
	"  return text and #text <= digits_max and string.find(text, pattern)\n"
	"end\n"
	"if hash.err and not string.find(hash.err, 'WRONGTYPE') then\n"
	"  return hash\n"
	"end\n"
	"if hash.err or ttl_ms < 0\n"
	"    or not fits(hash[1], '^%d+$', 15)\n"
	"    or not fits(hash[2], '^%d+$', 15)\n"
	"    or not fits(hash[3], '^%-?%d+$', 18)\n"
	"    or not fits(hash[4], '^%d+$', 18) then\n"
	"  redis.call('DEL', KEYS[1])\n"
	"  return false\n"
	"end\n"
	"local limit, count = tonumber(hash[1]), tonumber(hash[2])\n"
	"local granted = math.min(tonumber(ARGV[1]), math.max(0, limit - count))\n"
	"if granted > 0 then\n"
	"  count = count + granted\n"
	"  redis.call('HSET', KEYS[1], 'currentCount',"
	" string.format('%.0f', count))\n"
	"end\n"
	"return {granted, limit, count, ttl_ms, hash[3], hash[4]}\n";

/* KEYS: the hash. ARGV: rateLimit, currentCount, windowStart, windowLength, TTL in seconds. */
static const char fill[] = "if redis.call('EXISTS', KEYS[1]) == 1 then\n"
			   "  return 0\n"
			   "end\n"
			   "redis.call('HSET', KEYS[1], 'rateLimit', ARGV[1],"
			   " 'currentCount', ARGV[2], 'windowStart', ARGV[3],"
			   " 'windowLength', ARGV[4])\n"
			   "redis.call('EXPIRE', KEYS[1], ARGV[5])\n"
			   "return 1\n";

const char *const redis_script_texts[REDIS_SCRIPTS] = {
	[REDIS_SCRIPT_TAKE] = take,
	[REDIS_SCRIPT_FILL] = fill,
};
