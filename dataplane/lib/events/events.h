/* What programs around one epoll share: the clock, being told to end, and descriptors to watch. */
#ifndef CHART_EVENTS_H
#define CHART_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#define LOOP_EVENTS 64

/* An event's data: a tag of the program's own plus an index. */
#define TAG(number) ((uint64_t)(number) << 32)
#define TAG_OF(data) ((data) >> 32 << 32)
#define INDEX_OF(data) ((data) & 0xffffffffU)

/* Monotonic. */
uint64_t loop_now_us(void);
/* SIGTERM and SIGINT set a flag. */
void loop_catch_signals(void);
bool loop_ended(void);
void loop_end(void);
/* 0 or a negative errno. */
int loop_watch(int epoll, int descriptor, uint32_t events, uint64_t data);
/* Milliseconds until a time, rounded up, for epoll_wait; a second at most. */
int loop_timeout_ms(uint64_t until_us, uint64_t now_us);

#endif
