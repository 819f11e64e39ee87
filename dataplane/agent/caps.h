/* Privileges: after its start the agent keeps what changing maps, walking flows and configuring interfaces needs. */
#pragma once

/* Keep only CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, set no_new_privs. 0 or a negative errno. */
int caps_drop(void);
