-- The load of wrk, for Quipu and for its peer alike, so that both pay the same for it:
--   wrk -s requests.lua http://127.0.0.1:PORT -- METHOD PATH_BEFORE PATH_AFTER ITEMS [BODY_BEFORE BODY_AFTER [EXTRA]]
-- asks METHOD PATH_BEFORE<n>PATH_AFTER with n drawn from 1..ITEMS, or, with a body, METHOD PATH_BEFOREPATH_AFTER with the
-- JSON BODY_BEFORE<n>BODY_AFTER, by the user EXTRA where one is named. The requests are formatted once, unless there are
-- more than PREPARED_MAX; and but for ITEMS 0: then <n> is another in every request, and its Idempotency-Key too, which
-- begins with EXTRA.
-- math.random on purpose: a hand-made generator that passes 2^53 visits a tenth of the items.

local PREPARED_MAX = 100000
local threads = 0

function setup(thread)
	threads = threads + 1
	thread:set("seed", threads)
end

function init(args)
	local method, before, after, items = args[1], args[2], args[3], tonumber(args[4])
	local body_before, body_after = args[5], args[6]

	if items == 0 then
		number, part = 0, "t" .. seed .. "-%09d"
		head = "POST " .. before .. after .. " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" ..
			"Content-Length: " .. #(body_before .. part:format(0) .. body_after) .. "\r\nIdempotency-Key: "
		key_before, unique_before, unique_after = args[7], "\r\n\r\n" .. body_before, body_after
		request = unique_request
		return
	end
	local headers = {["Content-Type"] = "application/json", ["X-User-Id"] = args[7]}

	math.randomseed(seed)
	prepared, count = {}, items
	if items > PREPARED_MAX then
		local text = wrk.format(method, before .. "<n>" .. after)
		local first, last = text:find("<n>", 1, true)

		head, tail = text:sub(1, first - 1), text:sub(last + 1)
		request = drawn_request
		return
	end
	for n = 1, items do
		if body_before then
			prepared[n] = wrk.format(method, before .. after, headers, body_before .. n .. body_after)
		else
			prepared[n] = wrk.format(method, before .. n .. after)
		end
	end
end

function request()
	return prepared[math.random(count)]
end

function drawn_request()
	return head .. math.random(count) .. tail
end

function unique_request()
	number = number + 1
	local n = part:format(number)
	return head .. key_before .. n .. unique_before .. n .. unique_after
end

function done(summary, latency)
	local e = summary.errors

	io.write(string.format(
		'{"requests":%d,"seconds":%.6f,"status_errors":%d,"socket_errors":%d,"p50_ms":%.3f,"p99_ms":%.3f}\n',
		summary.requests, summary.duration / 1e6, e.status,
		e.connect + e.read + e.write + e.timeout,
		latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
