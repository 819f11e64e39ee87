-- Shows SCONE packets in Wireshark and tshark (docs/advice.md): what rate the network advises in front of a QUIC packet
-- (Thomson and others, Standard Communication with Network Elements (SCONE) Protocol). Filters: scone, scone.signal < 127,
-- scone.rate_bps > 1000000. Runs after the other dissectors, which see the datagram as they always do.
-- Use: tshark -X lua_script:tools/wireshark/scone.lua, or copy it to the personal plug-in folder.

local scone = Proto("scone", "SCONE throughput advice")

local VERSION_LOW = 0x6f7dc0fd
local UNKNOWN = 127
local FIXED = 6

local f = scone.fields
f.signal = ProtoField.uint8("scone.signal", "Signal")
f.rate = ProtoField.uint64("scone.rate_bps", "Rate (bit/s)")
f.destination = ProtoField.bytes("scone.destination_id", "Destination connection id")
f.source = ProtoField.bytes("scone.source_id", "Source connection id")
f.indicated = ProtoField.bool("scone.indicated", "The client understands SCONE")

local malformed = ProtoExpert.new("scone.malformed", "SCONE packet malformed", expert.group.MALFORMED,
    expert.severity.ERROR)
scone.experts = { malformed }

local payload = Field.new("udp.payload")

-- A connection id with its length in front of it; returns where the next field begins, or nil where it does not fit.
local function read_id(data, at, field, tree)
    if at >= data:len() or at + 1 + data(at, 1):uint() > data:len() then
        return nil
    end
    local length = data(at, 1):uint()
    if length > 0 then
        tree:add(field, data(at + 1, length))
    end
    return at + 1 + length
end

function scone.dissector(_, pinfo, root)
    local found = payload()
    if not found then
        return
    end
    local data = found.range
    local octets = data:len()
    -- What begins a flow ends in these; 8 octets are the shortest that may be QUIC.
    if octets > 8 and data(0, 1):uint() >= 0xc0 and data(octets - 2, 2):uint() == 0xc813 then
        root:add(scone, data(octets - 2, 2)):add(f.indicated, data(octets - 2, 2), true)
    end
    if octets < FIXED or data(0, 1):uint() < 0x80 or bit.band(data(1, 4):uint(), 0x7fffffff) ~= VERSION_LOW then
        return
    end
    local signal = 2 * bit.band(data(0, 1):uint(), 0x3f) + bit.rshift(data(1, 1):uint(), 7)
    local tree = root:add(scone, data)
    tree:add(f.signal, data(0, 2), signal)
    if signal < UNKNOWN then
        local bps = math.floor(100000 * 10 ^ (signal / 20) + 0.5)
        tree:add(f.rate, data(0, 2), UInt64(bps % 2 ^ 32, math.floor(bps / 2 ^ 32)))
        tree:append_text(string.format(", %.3f Mb/s", bps / 1e6))
    else
        tree:append_text(", no advice")
    end
    local at = read_id(data, FIXED - 1, f.destination, tree)
    at = at and read_id(data, at, f.source, tree)
    if not at then
        tree:add_proto_expert_info(malformed)
        return
    end
    pinfo.cols.info:prepend("SCONE, ")
end

register_postdissector(scone)
