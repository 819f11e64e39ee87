/* Flow records as IPFIX (RFC 7011) over UDP, with libfixbuf. One template for IPv4 and one for IPv6, information
 * elements of RFC 7012; counters are deltas, so that a collector may add records up. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "export/records.h"

#define IPFIX_ERROR_LEN 160
/* Over UDP a collector that starts later knows a template only when it is sent again (RFC 7011, section 8.4). */
#define IPFIX_TEMPLATES_US 30000000ll

struct ipfix_export;

/* `collector`: "10.0.0.1:4739" or "[fe80::1]:4739", numbers only: a name would have to be waited for. 0, -EINVAL for
 * another form, -ENOMEM, or -EIO with ret_error set. */
int ipfix_export_open(const char *collector, const char *node, char ret_error[IPFIX_ERROR_LEN],
                      struct ipfix_export **ret);
/* Adds a record to the message that is being made, which is sent when it is full. 0, -EINVAL for an address that is
 * none, -EIO. */
int ipfix_export_add(struct ipfix_export *ipfix, const struct flow_record *record, char ret_error[IPFIX_ERROR_LEN]);
/* Sends what was added, and the templates when it is time. 0 or -EIO. */
int ipfix_export_flush(struct ipfix_export *ipfix, int64_t now_us, char ret_error[IPFIX_ERROR_LEN]);
void ipfix_export_close(struct ipfix_export *ipfix);
