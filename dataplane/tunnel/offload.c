/* Unfinished checksums and segments, see offload.h. */
#include "offload.h"

#include <errno.h>
#include <linux/virtio_net.h>
#include <string.h>

_Static_assert(sizeof(struct virtio_net_hdr) == OFFLOAD_DEVICE_BYTES, "the device's header");

bool offload_none(const struct offload *offload) {
    return !(offload->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) && offload->gso_type == VIRTIO_NET_HDR_GSO_NONE;
}

int offload_check(const struct offload *offload, size_t packet_bytes) {
    unsigned kind = offload->gso_type & ~(unsigned)VIRTIO_NET_HDR_GSO_ECN;
    bool unsummed = offload->flags == VIRTIO_NET_HDR_F_NEEDS_CSUM;
    if (offload->flags && !unsummed)
        return -EBADMSG;
    /* The checksum's two bytes lie in the packet. */
    if (unsummed && (size_t)offload->checksum_start + offload->checksum_offset + 2 > packet_bytes)
        return -EBADMSG;
    if (offload->gso_type == VIRTIO_NET_HDR_GSO_NONE)
        return 0;
    if (kind != VIRTIO_NET_HDR_GSO_TCPV4 && kind != VIRTIO_NET_HDR_GSO_TCPV6)
        return -EBADMSG;
    /* Segments are summed up one by one, after the cut. */
    return unsummed && offload->segment_bytes && offload->header_bytes <= packet_bytes ? 0 : -EBADMSG;
}

void offload_read_device(const uint8_t *bytes, struct offload *ret) {
    struct virtio_net_hdr header;
    memcpy(&header, bytes, sizeof(header));
    *ret = (struct offload){
        /* That a checksum was found right says nothing to the other end. */
        .flags = header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM,
        .gso_type = header.gso_type,
        .header_bytes = header.hdr_len,
        .segment_bytes = header.gso_size,
        .checksum_start = header.csum_start,
        .checksum_offset = header.csum_offset,
    };
}

void offload_write_device(const struct offload *offload, uint8_t *bytes) {
    struct virtio_net_hdr header = {
        .flags = offload->flags,
        .gso_type = offload->gso_type,
        .hdr_len = offload->header_bytes,
        .gso_size = offload->segment_bytes,
        .csum_start = offload->checksum_start,
        .csum_offset = offload->checksum_offset,
    };
    memcpy(bytes, &header, sizeof(header));
}

static uint16_t load16(const uint8_t *bytes) {
    return (uint16_t)(bytes[0] << 8 | bytes[1]);
}

static void store16(uint8_t *bytes, uint16_t value) {
    bytes[0] = (uint8_t)(value >> 8);
    bytes[1] = (uint8_t)value;
}

void offload_read_wire(const uint8_t *bytes, struct offload *ret) {
    *ret = (struct offload){
        .flags = bytes[0],
        .gso_type = bytes[1],
        .header_bytes = load16(bytes + 2),
        .segment_bytes = load16(bytes + 4),
        .checksum_start = load16(bytes + 6),
        .checksum_offset = load16(bytes + 8),
    };
}

void offload_write_wire(const struct offload *offload, uint8_t *bytes) {
    bytes[0] = offload->flags;
    bytes[1] = offload->gso_type;
    store16(bytes + 2, offload->header_bytes);
    store16(bytes + 4, offload->segment_bytes);
    store16(bytes + 6, offload->checksum_start);
    store16(bytes + 8, offload->checksum_offset);
}
