-- Sends requests that were written out beforehand, each once; then tells what came of them, as JSON.
-- usage: wrk ... -s wrk.lua URL -- FILE, in which each request follows its length and a line's end

local requests, sent = {}, 0

function init(args)
    local file = assert(io.open(args[1], "rb"))
    while true do
        local length = file:read("*n")
        if not length then break end
        file:read(1)
        requests[#requests + 1] = file:read(length)
    end
    file:close()
end

function request()
    sent = sent + 1
    if sent > #requests then
        wrk.thread:stop()
        return "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    end
    return requests[sent]
end

function done(summary)
    local errors = summary.errors
    io.stderr:write(string.format(
        '{"seconds":%.6f,"answered":%d,"errors":%d}',
        summary.duration / 1e6, summary.requests,
        errors.connect + errors.read + errors.write + errors.status + errors.timeout
    ))
end
