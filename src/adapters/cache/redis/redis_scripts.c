/*
 * What must be atomic in the server, each for many users in one run: the run itself costs Redis as
 * much as a user does.
 *
 * Numbers in Lua are doubles: exact to 2^53, so fields of at most 15 digits can be added and
 * compared; "%.0f" writes them without an exponent. windowStart and windowLength go through as text
 * (18 digits always fit int64). A hash that breaks these rules, has no TTL, or is no hash at all
 * was not written by us: it is deleted, and counts as a miss. DEL of a key that is not there is
 * nothing. All of this goes for counters too, which are JSON.
 */
#include "adapters/cache/redis/redis_internal.h"

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

/* ---- counters ---------------------------------------------------------------------------- */

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define COUNTER_TTL_S TEXT(CACHE_COUNTER_TTL_S)
#define LEASE_TTL_S TEXT(CACHE_LEASE_TTL_S)
#define TTLS "local counter_ttl_s, lease_ttl_s = " COUNTER_TTL_S ", " LEASE_TTL_S "\n"

/*
 * read(key): the counter under the key of a counter or a list; nil, and nothing under the key,
 * where there is none of ours. The JSON may have any order and further fields, so that a person can
 * write one by hand. Whether the date of lastUpdated exists is looked at by whoever is told it.
 *
 * put(key, there, version, value): writes unless what read() found there is of a later version;
 * answers how many it wrote.
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
 * KEYS: counters or lists. Answers with what is under each; nil where nothing is, or where it has
 * no end and so is not of ours.
 */
static const char counter_look[] = "local values = redis.call('MGET', unpack(KEYS))\n"
				   "for i = 1, #KEYS do\n"
				   "  if values[i] and redis.call('PTTL', KEYS[i]) < 0 then\n"
				   "    values[i] = false\n"
				   "  end\n"
				   "end\n"
				   "return values\n";

/*
 * KEYS: for each a counter or list, and the lease. ARGV: for each the lease that may be had.
 * Answers for each count, version and lastUpdated; or 1: the lease was given, 0: it was not. A
 * lease without an end is not of ours, and would keep everybody from filling for ever.
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

/* KEYS: for each a counter or list, and the lease. ARGV: for each the lease that was given, version
 * and value. Answers how many were written. */
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
 * KEYS: for each the counter, the lease and the list. ARGV: for each version and value. Answers how
 * many were written. One that is not there is not made: nobody knows which version it last had.
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
