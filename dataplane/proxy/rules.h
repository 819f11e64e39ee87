/* The text of the proxy's rules and routes. Pure.
 *
 * No rule drops or diverts a packet that a living proxy did not ask for: first packets go through a queue that lets
 * them pass when nobody listens (--queue-bypass); only the proxy's verdict gives one the mark that TPROXY wants; later
 * packets are diverted by the socket that they belong to. What a killed proxy leaves behind is therefore harmless. */
#ifndef PROXY_RULES_H
#define PROXY_RULES_H

#include <stdio.h>

#include "options.h"

#define RULES_CHAIN "CHART-PROXY"

/* For iptables-restore --noflush, or ip6tables-restore: the chain, replaced when there is one, without the jump to it.
 */
void rules_write_chain(FILE *out, const struct options *options, bool ipv6);
/* For iptables-restore --noflush: the jump from PREROUTING to the chain, before all others. */
void rules_write_jump(FILE *out);
/* For ip -batch: the table that delivers packets here, set anew as often as one likes, and the rule that leads marked
 * packets to it, of which each time adds a copy. */
void rules_write_routes(FILE *out, const struct options *options, bool ipv6);
void rules_write_policy(FILE *out, const struct options *options, bool add);

#endif
