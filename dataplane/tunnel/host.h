/* The process of one application: chart-tunnel starts itself again as `chart-tunnel application FILE ARGUMENT`, with a
 * socket and the packets' memory as descriptors (exchange.h). It has no privilege, reads packets but cannot write them,
 * and ends with the tunnel's end. */
#ifndef ITM_HOST_H
#define ITM_HOST_H

#define HOST_ROLE "application"
/* Memory that an application may map, bytes. */
#define HOST_MEMORY_BYTES (512UL << 20)

/* Exit status. */
int host_run(const char *file, const char *argument);

#endif
