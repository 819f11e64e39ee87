/* The part of messages.h about session rules; for messages.c. */
#pragma once

#include "chart/v1/topology.pb-c.h"
#include "streams/messages.h"

/* 0 or a negative errno. */
int messages_take_rule(const struct messages_intake *intake, const struct streams_record *record);
/* The tags of this node; `node` NULL: it has none any more. 1: others than before, 0, or a negative errno. */
int messages_take_tags(const struct messages_intake *intake, const Chart__V1__Node *node);
