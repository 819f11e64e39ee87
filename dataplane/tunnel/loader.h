/* A traffic controller from a file: a shared object that has the function below, see template/application.c. */
#ifndef ITM_LOADER_H
#define ITM_LOADER_H

#include "event.h"

/* The name of the function: fills in the registration of an application made for this argument ("" when none was
 * given). 0, or a negative errno: the argument is wrong. */
#define LOADER_FUNCTION "itm_application_open"
typedef int loader_open(const char *argument, struct itm_application *ret);

#define LOADER_FAULT_BYTES 512

/* Loads it for good: 0, or a negative errno with a sentence in fault. */
int loader_load(const char *file, const char *argument, struct itm_application *ret, char fault[LOADER_FAULT_BYTES]);

#endif
