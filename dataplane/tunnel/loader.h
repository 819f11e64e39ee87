/* Traffic controllers from files: a shared object that has the function below, see template/application.c. */
#ifndef ITM_LOADER_H
#define ITM_LOADER_H

#include "event.h"
#include "options.h"

/* The name of the function: fills in the registration of an application made for this argument ("" when none was
 * given). 0, or a negative errno: the argument is wrong. */
#define LOADER_FUNCTION "itm_application_open"
typedef int loader_open(const char *argument, struct itm_application *ret);

/* Loads and registers --application FILE[=ARGUMENT]...: 0, or a negative errno after a sentence on standard error. */
int loader_register(const struct options *options, struct itm_dispatcher *dispatcher, uint64_t now_us);
void loader_close(void);

#endif
