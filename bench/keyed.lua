-- The load of wrk on counts that are increased under an Idempotency-Key each:
--   wrk -s keyed.lua http://127.0.0.1:PORT -- ITEMS PREFIX
-- increases item-<n> by 1, with n drawn from 1..ITEMS and a key that begins with PREFIX and never comes again.

local threads = 0

function setup(thread)
	threads = threads + 1
	thread:set("seed", threads)
end

function init(args)
	local body = '{"amount":1}'

	math.randomseed(seed)
	count, number, heads = tonumber(args[1]), 0, {}
	for n = 1, count do
		heads[n] = "POST /api/v1/counts/item-" .. n .. "/increase HTTP/1.1\r\nHost: 127.0.0.1\r\n" ..
			"Content-Type: application/json\r\nContent-Length: " .. #body .. "\r\nIdempotency-Key: " .. args[2] ..
			"t" .. seed .. "-"
	end
	tail = "\r\n\r\n" .. body
end

function request()
	number = number + 1
	return heads[math.random(count)] .. number .. tail
end

function done(summary, latency)
	local e = summary.errors

	io.write(string.format(
		'{"requests":%d,"seconds":%.6f,"status_errors":%d,"socket_errors":%d,"p50_ms":%.3f,"p99_ms":%.3f}\n',
		summary.requests, summary.duration / 1e6, e.status,
		e.connect + e.read + e.write + e.timeout,
		latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
