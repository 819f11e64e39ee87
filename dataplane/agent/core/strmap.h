/* A map from short strings to pointers: what the agent keeps of every compacted stream (keys are request, node, policy
 * and link ids). Chained buckets that double with the load; keys are copied, values belong to the caller. Not safe for
 * threads. */
#pragma once

#include <stddef.h>

struct strmap_entry {
    struct strmap_entry *next;
    void *value;
    char key[];
};

struct strmap {
    struct strmap_entry **buckets;
    size_t n_buckets;
    size_t n_entries;
};

/* NULL when the key is not there. */
void *strmap_get(const struct strmap *map, const char *key);

/* Put `value` under `key`; *ret_old (may be NULL) takes what stood there before. 0 or -ENOMEM. */
int strmap_put(struct strmap *map, const char *key, void *value, void **ret_old);

/* Take the key out and return its value, NULL when it was not there. */
void *strmap_remove(struct strmap *map, const char *key);

/* Call `visit` for every entry; when it returns non-zero the entry leaves the map (the visitor frees the value). */
void strmap_sweep(struct strmap *map, int (*visit)(const char *key, void *value, void *context), void *context);

/* Release the map; `release` (may be NULL) is called with every value. */
void strmap_free(struct strmap *map, void (*release)(void *value));
