/* From the applications that an end has to those that it is to have: the commands of its control socket. Pure. */
#ifndef ITM_ENDS_APPLICATIONS_H
#define ITM_ENDS_APPLICATIONS_H

#include <cjson/cJSON.h>

#include "ends_file.h"

/* An array of commands, to be sent in this order and deleted by the caller; empty when the end has what it is to have,
 * or is on its way there. `state`: what the end answers to `get`. One that failed is left alone until its file,
 * argument or limit changes. NULL: the state is not an end's. */
cJSON *ends_applications_plan(const struct end *wanted, const char *directory, const cJSON *state);
/* Whether one of the end's applications is on its way: the plan is to be looked at again. */
bool ends_applications_moving(const cJSON *state);

#endif
