/* The overlay on the streams: a node's path table, and what its state says of its links. */
#pragma once

#include "chart/v1/node_state.pb-c.h"
#include "paths/overlay.h"
#include "streams/messages.h"

/* A record of chart.path-table.v1; those of other nodes are passed over. 0, or a negative errno with the sentence. */
int messages_take_path_table(const struct messages_intake *intake, const struct streams_record *record);

/* Put what a report says into the state, which points to it. Free what is returned when it is sent; NULL: no memory. */
void *messages_add_overlay(Chart__V1__NodeState *message, const struct overlay_report *report);
