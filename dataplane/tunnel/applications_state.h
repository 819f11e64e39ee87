/* What the parts of applications share: one application, asked and taken out. */
#ifndef ITM_APPLICATIONS_STATE_H
#define ITM_APPLICATIONS_STATE_H

#include "applications.h"

/* Puts applications->request to it; false when it was taken out for it. The answer is in applications->answer. */
bool application_ask(struct applications *applications, struct application *application);
/* The timer runs while it is on and has a period. */
void application_set_timer(struct application *application, uint64_t now_us);
/* Looks whether a process that starts is open. */
void application_follow_start(struct application *application, uint64_t now_us);

#endif
