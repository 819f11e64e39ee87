/* Puts the rules of rules.h into the kernel, and takes them out. */
#ifndef PROXY_STEERING_H
#define PROXY_STEERING_H

#include "options.h"

/* Replaces what a killed predecessor left behind. 0, or a negative errno after a sentence on standard error. */
int steering_install(const struct options *options);
/* Replaces the chain of installed rules at once: other interfaces, other hosts. Connections that are open go on. 0, or
 * a negative errno after a sentence on standard error; then the rules of before may hold for one IP version. */
int steering_change(const struct options *options);
/* Removes what is there, be it anything or nothing. 0, or a negative errno after a sentence on standard error. */
int steering_remove(const struct options *options);
/* Prints what steering_install does. */
void steering_print(const struct options *options, FILE *out);

#endif
