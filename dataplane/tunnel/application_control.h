/* The control socket's command for applications, at either end:
 *
 *   {"command": "application", "action": "load", "name": N, "file": F, "argument": A, "limit_ms": L}
 *   {"command": "application", "action": "replace", ...}      the same members; file and argument absent: as before
 *   {"command": "application", "action": "configure", "name": N, "argument": A}
 *   {"command": "application", "action": "on" | "off" | "unload", "name": N}
 */
#ifndef ITM_APPLICATION_CONTROL_H
#define ITM_APPLICATION_CONTROL_H

#include <cjson/cJSON.h>

#include "applications.h"
#include "options.h"

/* An error is a sentence in *ret_error, which holds until the next call. */
void application_answer(struct applications *applications, const cJSON *command, uint64_t now_us,
                        const char **ret_error);
/* `applications` of the answer to `get`: state, file, verdicts, why one was taken out. */
void application_add_state(cJSON *answer, const struct applications *applications);
/* Loads --application FILE[=ARGUMENT]..., each under the name of its file without folder and .so, and waits until they
 * are open: 0, or a negative errno after a sentence on standard error. */
int application_load_options(struct applications *applications, const struct options *options, uint64_t now_us);

#endif
