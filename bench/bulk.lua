-- The load of wrk for POST /api/v1/counts/batch:
--   wrk -s bulk.lua http://127.0.0.1:PORT -- ITEMS CHANGES
-- Every request increases CHANGES items drawn from 1..ITEMS by one. PREPARED requests are formatted once.

local PREPARED = 2000
local threads = 0

function setup(thread)
	threads = threads + 1
	thread:set("seed", threads)
end

function init(args)
	local items, changes = tonumber(args[1]), tonumber(args[2])
	local headers = {["Content-Type"] = "application/json"}

	math.randomseed(seed)
	prepared = {}
	for n = 1, PREPARED do
		local parts = {}

		for i = 1, changes do
			parts[i] = '{"itemId":"item-' .. math.random(items) .. '","verb":"increase","amount":1}'
		end
		prepared[n] = wrk.format("POST", "/api/v1/counts/batch", headers,
			'{"changes":[' .. table.concat(parts, ",") .. "]}")
	end
end

function request()
	return prepared[math.random(PREPARED)]
end

function done(summary, latency)
	local e = summary.errors

	io.write(string.format(
		'{"requests":%d,"seconds":%.6f,"status_errors":%d,"socket_errors":%d,"p50_ms":%.3f,"p99_ms":%.3f}\n',
		summary.requests, summary.duration / 1e6, e.status,
		e.connect + e.read + e.write + e.timeout,
		latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
