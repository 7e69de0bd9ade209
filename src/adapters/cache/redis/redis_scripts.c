/*
 * The Lua scripts: everything that must be atomic inside Redis. Each script handles many users in
 * one run, because starting a script takes Redis as long as handling one user.
 *
 * Numbers in Lua are doubles, which are exact up to 2^53, so fields of at most 15 digits can be
 * added and compared. "%.0f" writes them without an exponent. windowStart and windowLength stay
 * text; they have at most 18 digits, so they always fit into an int64. A limit counts as damaged if
 * it is not a hash, has no TTL, or has a field that is not a whole number or has too many digits. A
 * counter counts as damaged if it has no TTL or is not in our format. A script that finds a damaged
 * entry deletes it and treats it as a miss; only counter_look deletes nothing. Scripts run DEL
 * without checking that the entry exists, because DEL ignores missing entries.
 *
 * In the scripts, KEYS and key are Redis's terms for what this adapter calls names.
 */
#include "adapters/cache/redis/redis_internal.h"

/*
 * Takes slots from limits. KEYS holds the name of each limit's hash; ARGV holds, for each hash, how
 * many slots are wanted. Returns one text per hash: an empty text on a miss; otherwise the number
 * of granted slots, the limit, the new count, the TTL in ms, and the window's start and length.
 *
 * A hash that has only the fields rateLimit and currentCount was written by another program. If
 * currentCount has reached rateLimit, the script grants nothing. Otherwise the hash counts as a
 * miss, because its window is unknown.
 */
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
	"  local is_ours = fits(hash[3], '^%-?%d+$', 18)"
	" and fits(hash[4], '^%d+$', 18)\n"
	"  local is_seeds = not hash[3] and not hash[4]\n"
	"  if hash.err or ttl_ms < 0\n"
	"      or not fits(hash[1], '^%d+$', 15)\n"
	"      or not fits(hash[2], '^%d+$', 15)\n"
	"      or not (is_ours or is_seeds) then\n"
	"    redis.call('DEL', key)\n"
	"    answers[i] = ''\n"
	"  elseif is_seeds and tonumber(hash[2]) < tonumber(hash[1]) then\n"
	"    answers[i] = ''\n"
	"  elseif is_seeds then\n"
	"    answers[i] = string.format('0 %s %s %.0f 0 %.0f',"
	" hash[1], hash[2], ttl_ms, ttl_ms * 1000)\n"
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

/*
 * Stores limits, but only those whose hashes do not exist yet. KEYS holds the name of each hash;
 * ARGV holds, for each hash, the rateLimit, currentCount, windowStart, windowLength and the TTL in
 * seconds. Returns how many hashes the script has written.
 */
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

/* ---- counters ---------------------------------------------------------------------------- */

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define COUNTER_TTL_S TEXT(CACHE_COUNTER_TTL_S)
#define LEASE_TTL_S TEXT(CACHE_LEASE_TTL_S)
#define TTLS "local counter_ttl_s, lease_ttl_s = " COUNTER_TTL_S ", " LEASE_TTL_S "\n"

/*
 * read(key) returns the counter that is stored at `key`. The value at `key` is the counter itself,
 * or a list that contains only this counter. If the value is not in our format, read() deletes the
 * value and returns nil. The JSON fields may come in any order, and unknown fields are allowed, so
 * that a person can write a value by hand. read() checks only the form of lastUpdated; read_hit()
 * in redis_counters.c checks that it is a real date.
 *
 * put(key, there, version, value) writes the value and returns 1. `there` is the result of read()
 * for this key. If `there` is a counter with a later version than `version`, put() writes nothing
 * and returns 0.
 */
#define SHARED                                                                                     \
	TTLS "local function whole(number)\n"                                                      \
	     "  return type(number) == 'number' and number >= 0 and number < 1e15\n"               \
	     "    and number == math.floor(number)\n"                                              \
	     "end\n"                                                                               \
	     "local function time(text)\n"                                                         \
	     "  return type(text) == 'string' and #text <= 40\n"                                   \
	     "    and string.find(text, '^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d')\n"                 \
	     "end\n"                                                                               \
	     "local function only(list)\n"                                                         \
	     "  local first = #list == 1 and list[1]\n"                                            \
	     "  return type(first) == 'table' and first.type == 'UnreadMessages' and first\n"      \
	     "end\n"                                                                               \
	     "local function parse(key, text)\n"                                                   \
	     "  if #text > 512 or redis.call('PTTL', key) < 0 then\n"                              \
	     "    return nil\n"                                                                    \
	     "  end\n"                                                                             \
	     "  local ok, counter = pcall(cjson.decode, text)\n"                                   \
	     "  if ok and type(counter) == 'table' and string.find(key, '^counters:') then\n"      \
	     "    counter = only(counter)\n"                                                       \
	     "  end\n"                                                                             \
	     "  if ok and type(counter) == 'table' and whole(counter.count)\n"                     \
	     "      and whole(counter.version) and time(counter.lastUpdated) then\n"               \
	     "    return counter\n"                                                                \
	     "  end\n"                                                                             \
	     "  return nil\n"                                                                      \
	     "end\n"                                                                               \
	     "local function read(key)\n"                                                          \
	     "  local text = redis.pcall('GET', key)\n"                                            \
	     "  if not text then\n"                                                                \
	     "    return nil\n"                                                                    \
	     "  end\n"                                                                             \
	     "  if type(text) == 'table' and not string.find(text.err, 'WRONGTYPE') then\n"        \
	     "    error(text.err)\n"                                                               \
	     "  end\n"                                                                             \
	     "  local counter = type(text) == 'string' and parse(key, text)\n"                     \
	     "  if not counter then\n"                                                             \
	     "    redis.call('DEL', key)\n"                                                        \
	     "  end\n"                                                                             \
	     "  return counter or nil\n"                                                           \
	     "end\n"                                                                               \
	     "local function put(key, there, version, value)\n"                                    \
	     "  if there and there.version > tonumber(version) then\n"                             \
	     "    return 0\n"                                                                      \
	     "  end\n"                                                                             \
	     "  redis.call('SET', key, value, 'EX', counter_ttl_s)\n"                              \
	     "  return 1\n"                                                                        \
	     "end\n"

/*
 * Reads counters or cached lists of counters; both are strings in Redis. KEYS holds their names.
 * Returns the value of each name, or nil for a name without a value. A value without a TTL counts
 * as missing: Quipu always sets a TTL, so another program must have written the value.
 */
static const char counter_look[] = "local values = redis.call('MGET', unpack(KEYS))\n"
				   "for i = 1, #KEYS do\n"
				   "  if values[i] and redis.call('PTTL', KEYS[i]) < 0 then\n"
				   "    values[i] = false\n"
				   "  end\n"
				   "end\n"
				   "return values\n";

/*
 * Reads counters or lists, and grants leases for those that are missing. KEYS holds, for each
 * entry, the name of the counter or list and the name of the lease; ARGV holds, for each entry, the
 * requested lease. Returns for each entry, on a hit, the count, version and lastUpdated; on a miss,
 * 1 if the lease was granted and 0 if not. A lease without a TTL does not come from Quipu. It would
 * not expire and would prevent every fill, so the script replaces it.
 */
static const char counter_get[] =
	SHARED "local function give(lease, token)\n"
	       "  if redis.call('SET', lease, token, 'EX', lease_ttl_s, 'NX') then\n"
	       "    return 1\n"
	       "  end\n"
	       "  if redis.call('PTTL', lease) ~= -1 then\n"
	       "    return 0\n"
	       "  end\n"
	       "  redis.call('SET', lease, token, 'EX', lease_ttl_s)\n"
	       "  return 1\n"
	       "end\n"
	       "local answers = {}\n"
	       "for i = 1, #ARGV do\n"
	       "  local counter = read(KEYS[2 * i - 1])\n"
	       "  if counter then\n"
	       "    answers[i] = string.format('%.0f %.0f %s', counter.count, counter.version,\n"
	       "      counter.lastUpdated)\n"
	       "  else\n"
	       "    answers[i] = give(KEYS[2 * i], ARGV[i])\n"
	       "  end\n"
	       "end\n"
	       "return answers\n";

/*
 * Writes counters or lists whose leases are still valid. KEYS holds, for each entry, the name of
 * the counter or list and the name of the lease; ARGV holds, for each entry, the granted lease, the
 * version and the value. Returns how many values the script has written.
 */
static const char counter_fill[] =
	SHARED "local written = 0\n"
	       "for i = 1, #KEYS / 2 do\n"
	       "  local key, lease = KEYS[2 * i - 1], KEYS[2 * i]\n"
	       "  if redis.pcall('GET', lease) == ARGV[3 * i - 2] then\n"
	       "    redis.call('DEL', lease)\n"
	       "    written = written + put(key, read(key), ARGV[3 * i - 1], ARGV[3 * i])\n"
	       "  end\n"
	       "end\n"
	       "return written\n";

/*
 * Replaces counters, and deletes their leases and lists. KEYS holds, for each user, the names of
 * the counter, the lease and the list; ARGV holds, for each user, the version and the value.
 * Returns how many values the script has written. The script does not create a missing counter,
 * because a later version of the counter may have been removed from the cache.
 */
static const char counter_refresh[] =
	SHARED "local written = 0\n"
	       "for i = 1, #KEYS / 3 do\n"
	       "  local key = KEYS[3 * i - 2]\n"
	       "  local there = read(key)\n"
	       "  redis.call('DEL', KEYS[3 * i - 1], KEYS[3 * i])\n"
	       "  if there then\n"
	       "    written = written + put(key, there, ARGV[2 * i - 1], ARGV[2 * i])\n"
	       "  end\n"
	       "end\n"
	       "return written\n";

const char *const redis_script_texts[REDIS_SCRIPTS] = {
	[REDIS_SCRIPT_TAKE] = take,
	[REDIS_SCRIPT_FILL] = fill,
	[REDIS_SCRIPT_COUNTER_LOOK] = counter_look,
	[REDIS_SCRIPT_COUNTER_GET] = counter_get,
	[REDIS_SCRIPT_COUNTER_FILL] = counter_fill,
	[REDIS_SCRIPT_COUNTER_REFRESH] = counter_refresh,
};
