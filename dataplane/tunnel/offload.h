/* What a kernel leaves to whoever carries a packet on: a checksum that is still to be summed up, a large packet that is
 * still to be cut into segments (struct virtio_net_hdr, which TUN devices speak). Large packets cross the tunnel whole
 * and are cut behind it: fewer calls, and one header instead of many. Pure. */
#ifndef ITM_OFFLOAD_H
#define ITM_OFFLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Before each packet that is read from or written to the device, in the host's byte order. */
#define OFFLOAD_DEVICE_BYTES 10
/* The same in the tunnel's frames, in network order. */
#define OFFLOAD_WIRE_BYTES 10

struct offload {
    uint8_t flags, gso_type; /* VIRTIO_NET_HDR_F_NEEDS_CSUM; VIRTIO_NET_HDR_GSO_... */
    uint16_t header_bytes;   /* of IP and TCP together, a hint */
    uint16_t segment_bytes;  /* payload of each segment */
    uint16_t checksum_start, checksum_offset;
};

/* Nothing was left undone: an ordinary packet. */
bool offload_none(const struct offload *offload);
/* Whether a packet of this size can have this: 0, or -EBADMSG. */
int offload_check(const struct offload *offload, size_t packet_bytes);
void offload_read_device(const uint8_t *bytes, struct offload *ret);
void offload_write_device(const struct offload *offload, uint8_t *bytes);
void offload_read_wire(const uint8_t *bytes, struct offload *ret);
void offload_write_wire(const struct offload *offload, uint8_t *bytes);

#endif
