-- The load of wrk on pots:
--   wrk -s pots.lua http://127.0.0.1:PORT -- POTS COINS HOW
-- adds COINS gold coins to a pot drawn from 1..POTS, or takes as many out of one, by turns; HOW is kind (gold) or draw
-- (at random). The requests are formatted once. Tells how many of each were sent, to check the tables with.

local all = {}
local threads = 0

function setup(thread)
	threads = threads + 1
	thread:set("seed", threads)
	table.insert(all, thread)
end

function init(args)
	local pots, coins, how = tonumber(args[1]), args[2], args[3]
	local path = "/twirp/pyggpot.coin.Coin/"
	local headers = {["Content-Type"] = "application/json"}

	math.randomseed(seed)
	adds, removes, count = {}, {}, pots
	added, removed = 0, 0
	for n = 1, pots do
		local gold = string.format('{"pot_id":%d,"coins":[{"kind":"GOLD","count":%s}]}', n, coins)
		local draw = string.format('{"pot_id":%d,"count":%s}', n, coins)

		adds[n] = wrk.format("POST", path .. "AddCoins", headers, gold)
		removes[n] = wrk.format("POST", path .. "RemoveCoins", headers, how == "draw" and draw or gold)
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
