/* What both ends share: the clock, the tags of descriptors in epoll, and being told to end. */
#ifndef ITM_LOOP_H
#define ITM_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#define LOOP_EVENTS 64

/* An event's data: one of these plus an index. */
#define TAG_TUN (1ULL << 32)
#define TAG_CONTROL (2ULL << 32)
#define TAG_CLIENT (3ULL << 32)
#define TAG_LISTENER (4ULL << 32)
#define TAG_CONNECTION (5ULL << 32)
#define TAG_EXPORTER (6ULL << 32)
#define TAG_STREAMS (7ULL << 32)
#define TAG_OF(data) ((data) >> 32 << 32)
#define INDEX_OF(data) ((data) & 0xffffffffU)

struct control;

uint64_t loop_now_us(void);
/* SIGTERM and SIGINT set a flag. */
void loop_catch_signals(void);
bool loop_ended(void);
void loop_end(void);
/* 0 or a negative errno. */
int loop_watch(int epoll, int descriptor, uint32_t events, uint64_t data);
/* Milliseconds until a time, rounded up, for epoll_wait. */
int loop_timeout_ms(uint64_t until_us, uint64_t now_us);
/* Serves TAG_CONTROL and TAG_CLIENT; false: not one of these. */
bool loop_control(int epoll, struct control *control, uint64_t data);

#endif
