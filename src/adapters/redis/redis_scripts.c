/*
 * The two things that must be atomic in the server, each for many users in one run: the run itself
 * costs Redis as much as a user does.
 *
 * Numbers in Lua are doubles: exact to 2^53, so fields of at most 15 digits can be added and
 * compared; "%.0f" writes them without an exponent. windowStart and windowLength go through as text
 * (18 digits always fit int64). A hash that breaks these rules, has no TTL, or is no hash at all
 * was not written by us: it is deleted, and counts as a miss. DEL of a key that is not there is
 * nothing.
 */
#include "adapters/redis/redis_internal.h"

/* KEYS: hashes. ARGV: for each how many are wanted. Answers for each an empty text, or granted,
 * limit, count after, TTL in ms, start, length. */
static const char take[] =
	"local function fits(text, pattern, digits_max)\n"
	"  return text and #text <= digits_max and string.find(text, pattern)\n"
	"end\n"
	"local answers = {}\n"
	"for i, key in ipairs(KEYS) do\n"
	"  local hash = redis.pcall('HMGET', key,"
	" 'rateLimit', 'currentCount', 'windowStart', 'windowLength')\n"
	"  local ttl_ms = redis.call('PTTL', key)\n"
	"  if hash.err and not string.find(hash.err, 'WRONGTYPE') then\n"
	"    return hash\n"
	"  end\n"
	"  if hash.err or ttl_ms < 0\n"
	"      or not fits(hash[1], '^%d+$', 15)\n"
	"      or not fits(hash[2], '^%d+$', 15)\n"
	"      or not fits(hash[3], '^%-?%d+$', 18)\n"
	"      or not fits(hash[4], '^%d+$', 18) then\n"
	"    redis.call('DEL', key)\n"
	"    answers[i] = ''\n"
	"  else\n"
	"    local limit, count = tonumber(hash[1]), tonumber(hash[2])\n"
	"    local granted = math.min(tonumber(ARGV[i]), math.max(0, limit - count))\n"
	"    if granted > 0 then\n"
	"      hash[2] = string.format('%.0f', count + granted)\n"
	"      redis.call('HSET', key, 'currentCount', hash[2])\n"
	"    end\n"
	"    answers[i] = string.format('%.0f %s %s %.0f %s %s',"
	" granted, hash[1], hash[2], ttl_ms, hash[3], hash[4])\n"
	"  end\n"
	"end\n"
	"return answers\n";

/* KEYS: hashes. ARGV: for each rateLimit, currentCount, windowStart, windowLength, TTL in seconds.
 * Answers how many were filled. */
static const char fill[] = "local filled = 0\n"
			   "for i, key in ipairs(KEYS) do\n"
			   "  if redis.call('EXISTS', key) == 0 then\n"
			   "    local at = (i - 1) * 5\n"
			   "    redis.call('HSET', key, 'rateLimit', ARGV[at + 1],"
			   " 'currentCount', ARGV[at + 2], 'windowStart', ARGV[at + 3],"
			   " 'windowLength', ARGV[at + 4])\n"
			   "    redis.call('EXPIRE', key, ARGV[at + 5])\n"
			   "    filled = filled + 1\n"
			   "  end\n"
			   "end\n"
			   "return filled\n";

const char *const redis_script_texts[REDIS_SCRIPTS] = {
	[REDIS_SCRIPT_TAKE] = take,
	[REDIS_SCRIPT_FILL] = fill,
};
