-- Shows CHART's in-band signals in Wireshark and tshark (docs/signalling.md): the IPv4 option, the IPv6 hop-by-hop
-- option and the UDP shim. Filters: chart, chart.status == 0, chart.guaranteed_rate_bps > 1000000, ...
-- Use: tshark -X lua_script:tools/wireshark/chart.lua, or copy it to the personal plug-in folder.

local chart = Proto("chart", "CHART explicit-rate signal")

local SIGNAL = 34
local SHIM_PORT = 18400
local STATUS = {
    [0] = "request", [1] = "response", [2] = "confirm", [3] = "renegotiate",
    [4] = "renegotiate response", [5] = "close", [6] = "reject",
}
local SERVICE = { [0] = "available", [1] = "guaranteed", [2] = "maximum", [3] = "variable" }
local FLOW_TYPE = { [0] = "unspecified", [1] = "TCP", [2] = "UDP", [3] = "QUIC", [4] = "tunnel aggregate" }
local DIRECTION = { [0] = "forward", [1] = "backward" }
local FAMILY = { [4] = "IPv4", [6] = "IPv6" }

local f = chart.fields
f.carrier = ProtoField.string("chart.carrier", "Carrier")
f.guaranteed = ProtoField.uint16("chart.guaranteed_rate", "Guaranteed rate word", base.HEX)
f.guaranteed_bps = ProtoField.uint64("chart.guaranteed_rate_bps", "Guaranteed rate (bit/s)")
f.available = ProtoField.uint16("chart.available_rate", "Available rate word", base.HEX)
f.available_bps = ProtoField.uint64("chart.available_rate_bps", "Available rate (bit/s)")
f.preemption = ProtoField.uint8("chart.preemption_priority", "Pre-emption priority")
f.delay = ProtoField.uint8("chart.delay_priority", "Delay priority")
f.direction = ProtoField.uint8("chart.direction", "Direction", base.DEC, DIRECTION, 0x80)
f.status = ProtoField.uint8("chart.status", "Status", base.DEC, STATUS, 0x70)
f.flow_type = ProtoField.uint8("chart.flow_type", "Flow type", base.DEC, FLOW_TYPE, 0x0f)
f.charging = ProtoField.uint8("chart.charging", "Charging direction", base.DEC, nil, 0xf0)
f.burst = ProtoField.uint8("chart.burst_tolerance", "Burst tolerance", base.DEC, nil, 0x0f)
f.service = ProtoField.uint16("chart.service", "Service", base.DEC, SERVICE, 0xc000)
f.version = ProtoField.uint16("chart.version", "QoS version", base.DEC, nil, 0x3ffe)
f.lowered = ProtoField.uint16("chart.lowered", "Lowered on the way", base.DEC, nil, 0x0001)
f.source_port = ProtoField.uint16("chart.source_port", "Source port of the flow")
f.sender = ProtoField.uint16("chart.sender", "Element that signed")
f.epoch = ProtoField.uint8("chart.epoch", "Key epoch")
f.sequence = ProtoField.uint24("chart.sequence", "Sequence")
f.tag = ProtoField.bytes("chart.tag", "Tag (HMAC-SHA-256-128, not verified here)")
f.flow_family = ProtoField.uint8("chart.flow.family", "Flow: family", base.DEC, FAMILY)
f.flow_protocol = ProtoField.uint8("chart.flow.protocol", "Flow: protocol")
f.flow_selector = ProtoField.bytes("chart.flow.selector", "Flow: ports or flow label")
f.flow_source4 = ProtoField.ipv4("chart.flow.source", "Flow: source")
f.flow_destination4 = ProtoField.ipv4("chart.flow.destination", "Flow: destination")
f.flow_source6 = ProtoField.ipv6("chart.flow.source6", "Flow: source")
f.flow_destination6 = ProtoField.ipv6("chart.flow.destination6", "Flow: destination")

local malformed = ProtoExpert.new("chart.malformed", "CHART signal malformed", expert.group.MALFORMED,
    expert.severity.ERROR)
chart.experts = { malformed }

local ip_header = Field.new("ip")
local ipv6_header = Field.new("ipv6")

-- Bit/s of a rate word: (1 + m/512) * 2^e kbit/s, in whole bit/s rounded down.
local function rate_bps(word)
    if bit.band(word, 0x4000) == 0 then
        return 0
    end
    local significand = 512 + bit.band(bit.rshift(word, 5), 0x1ff)
    return math.floor(125 * significand * 2 ^ bit.band(word, 31) / 64)
end

local function with_unit(bps)
    for _, unit in ipairs({ { 1e12, "Tb/s" }, { 1e9, "Gb/s" }, { 1e6, "Mb/s" }, { 1e3, "kb/s" } }) do
        if bps >= unit[1] then
            return string.format("%.4g %s", bps / unit[1], unit[2])
        end
    end
    return string.format("%d b/s", bps)
end

local function add_rate(tree, word_field, bps_field, range)
    local bps = rate_bps(range:uint())
    tree:add(word_field, range)
    -- UInt64 takes its two halves: the number may exceed 32 bits.
    local value = UInt64.new(bps % 2 ^ 32, math.floor(bps / 2 ^ 32))
    tree:add(bps_field, range, value):append_text(" (" .. with_unit(bps) .. ")"):set_generated()
    return bps
end

-- The 34 octets at `range`.
local function show_signal(range, carrier, tree, info)
    local branch = tree:add(chart, range)
    branch:add(f.carrier, range, carrier):set_generated()
    local guaranteed = add_rate(branch, f.guaranteed, f.guaranteed_bps, range(0, 2))
    local available = add_rate(branch, f.available, f.available_bps, range(2, 2))
    branch:add(f.preemption, range(4, 1))
    branch:add(f.delay, range(5, 1))
    branch:add(f.direction, range(6, 1))
    branch:add(f.status, range(6, 1))
    branch:add(f.flow_type, range(6, 1))
    branch:add(f.charging, range(7, 1))
    branch:add(f.burst, range(7, 1))
    branch:add(f.service, range(8, 2))
    branch:add(f.version, range(8, 2))
    branch:add(f.lowered, range(8, 2))
    branch:add(f.source_port, range(10, 2))
    branch:add(f.sender, range(12, 2))
    branch:add(f.epoch, range(14, 1))
    branch:add(f.sequence, range(15, 3))
    branch:add(f.tag, range(18, 16))
    local status = range(6, 1):bitfield(1, 3)
    local summary = string.format("CHART %s GR %s AR %s", STATUS[status] or "status 7", with_unit(guaranteed),
        with_unit(available))
    if range(8, 2):bitfield(2, 13) ~= 1 then
        branch:add_proto_expert_info(malformed, "unknown QoS version")
    elseif bit.band(bit.bor(range(0, 1):uint(), range(2, 1):uint()), 0x80) ~= 0 then
        branch:add_proto_expert_info(malformed, "reserved bit of a rate set")
    elseif status == 7 then
        branch:add_proto_expert_info(malformed, "status 7 has no meaning")
    end
    branch:append_text(": " .. summary)
    info.cols.info:append(" [" .. summary .. "]")
    return branch
end

-- Options at `at` .. `stop`: IPv4 lengths count type and length octet, IPv6 ones do not.
local function show_options(buffer, at, stop, ipv6, tree, info)
    while at < stop do
        local kind = buffer(at, 1):uint()
        if kind == 0 and not ipv6 then
            return
        elseif kind == 0 or (kind == 1 and not ipv6) then
            at = at + 1
        else
            if at + 2 > stop then
                return
            end
            local size = buffer(at + 1, 1):uint() + (ipv6 and 2 or 0)
            if size < 2 or at + size > stop then
                return
            end
            if kind == (ipv6 and 0x3e or 0x9e) then
                if size == SIGNAL + 2 then
                    show_signal(buffer(at + 2, SIGNAL), ipv6 and "IPv6 hop-by-hop option" or "IPv4 option", tree, info)
                else
                    tree:add(chart, buffer(at, size)):add_proto_expert_info(malformed, "a signal has 34 octets")
                end
            end
            at = at + size
        end
    end
end

-- Runs after all others and looks at every IP header again: there is no table of options to register with.
function chart.dissector(buffer, info, tree)
    for _, header in ipairs({ ip_header() }) do
        local at = header.offset
        if at + 20 <= buffer:len() then
            local stop = at + 4 * buffer(at, 1):bitfield(4, 4)
            if stop <= buffer:len() then
                show_options(buffer, at + 20, stop, false, tree, info)
            end
        end
    end
    for _, header in ipairs({ ipv6_header() }) do
        local at = header.offset
        if at + 48 <= buffer:len() and buffer(at + 6, 1):uint() == 0 then
            local stop = at + 40 + 8 * (buffer(at + 41, 1):uint() + 1)
            if stop <= buffer:len() then
                show_options(buffer, at + 42, stop, true, tree, info)
            end
        end
    end
end

register_postdissector(chart)

-- The shim: head 8, signal 34, selector 4, both addresses of the flow.
local shim = Proto("chart_shim", "CHART signal shim")

function shim.dissector(buffer, info, tree)
    if buffer:len() < 8 or buffer(0, 2):uint() ~= 0x4348 then
        return 0
    end
    local family = buffer(3, 1):uint()
    local octets = family == 6 and 16 or 4
    info.cols.protocol = "CHART"
    if buffer(2, 1):uint() ~= 1 or (family ~= 4 and family ~= 6) or buffer:len() ~= 46 + 2 * octets then
        tree:add(chart, buffer()):add_proto_expert_info(malformed, "shim of another version, family or length")
        return buffer:len()
    end
    local branch = show_signal(buffer(8, SIGNAL), "UDP shim", tree, info)
    branch:add(f.flow_family, buffer(3, 1))
    branch:add(f.flow_protocol, buffer(4, 1))
    branch:add(f.flow_selector, buffer(42, 4))
    branch:add(family == 6 and f.flow_source6 or f.flow_source4, buffer(46, octets))
    branch:add(family == 6 and f.flow_destination6 or f.flow_destination4, buffer(46 + octets, octets))
    return buffer:len()
end

DissectorTable.get("udp.port"):add(SHIM_PORT, shim)
