-- The load of wrk on pots:
--   wrk -s pots.lua http://127.0.0.1:PORT -- POTS COINS HOW
-- adds COINS gold coins to a pot drawn from 1..POTS, or takes as many out of one, by turns; HOW is kind (gold) or draw
-- (at random). In protobuf, which clients that are generated for Twirp send unless they are told otherwise. The requests
-- are formatted once. Tells how many of each were sent, to check the tables with.

local all = {}
local threads = 0

function setup(thread)
	threads = threads + 1
	thread:set("seed", threads)
	table.insert(all, thread)
end

local function varint(number)
	local bytes = ""

	while number >= 128 do
		bytes = bytes .. string.char(number % 128 + 128)
		number = math.floor(number / 128)
	end
	return bytes .. string.char(number)
end

local function field_int(field, number)
	return varint(field * 8) .. varint(number)
end

local function field_message(field, bytes)
	return varint(field * 8 + 2) .. varint(#bytes) .. bytes
end

-- Gold coins of a request of proto/coin.proto, in the field that it has for coins.
local function gold(pot, coins, field)
	return field_int(1, pot) .. field_message(field, field_int(1, 100) .. field_int(2, coins))
end

local function any(pot, coins)
	return field_int(1, pot) .. field_int(2, coins)
end

function init(args)
	local pots, coins, how = tonumber(args[1]), tonumber(args[2]), args[3]
	local path = "/twirp/pyggpot.coin.Coin/"
	local headers = {["Content-Type"] = "application/protobuf"}

	math.randomseed(seed)
	adds, removes, count = {}, {}, pots
	added, removed = 0, 0
	for n = 1, pots do
		local out = how == "draw" and any(n, coins) or gold(n, coins, 3)

		adds[n] = wrk.format("POST", path .. "AddCoins", headers, gold(n, coins, 2))
		removes[n] = wrk.format("POST", path .. "RemoveCoins", headers, out)
	end
end

function request()
	if added <= removed then
		added = added + 1
		return adds[math.random(count)]
	end
	removed = removed + 1
	return removes[math.random(count)]
end

function done(summary, latency)
	local e = summary.errors
	local in_all, out_all = 0, 0

	for _, thread in ipairs(all) do
		in_all = in_all + thread:get("added")
		out_all = out_all + thread:get("removed")
	end
	io.write(string.format(
		'{"requests":%d,"seconds":%.6f,"status_errors":%d,"socket_errors":%d,"p50_ms":%.3f,"p99_ms":%.3f,' ..
		'"added":%d,"removed":%d}\n',
		summary.requests, summary.duration / 1e6, e.status,
		e.connect + e.read + e.write + e.timeout,
		latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, in_all, out_all))
end
