/* A map from short strings to pointers; see strmap.h. */
#include "core/strmap.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BUCKETS 64

/* FNV-1a. Keys come from our own services; a crafted set of keys costs time, never correctness. */
static uint64_t hash(const char *key) {
    uint64_t value = 0xcbf29ce484222325ull;

    for (; *key; key++)
        value = (value ^ (unsigned char)*key) * 0x100000001b3ull;
    return value;
}

static struct strmap_entry **slot(const struct strmap *map, const char *key) {
    struct strmap_entry **entry = &map->buckets[hash(key) & (map->n_buckets - 1)];

    while (*entry && strcmp((*entry)->key, key) != 0)
        entry = &(*entry)->next;
    return entry;
}

static int grow(struct strmap *map) {
    size_t wanted = map->n_buckets ? map->n_buckets * 2 : FIRST_BUCKETS;
    struct strmap_entry **buckets = calloc(wanted, sizeof(*buckets));

    if (!buckets)
        return -ENOMEM;
    for (size_t i = 0; i < map->n_buckets; i++) {
        struct strmap_entry *entry = map->buckets[i];

        while (entry) {
            struct strmap_entry *next = entry->next;
            struct strmap_entry **head = &buckets[hash(entry->key) & (wanted - 1)];

            entry->next = *head;
            *head = entry;
            entry = next;
        }
    }
    free(map->buckets);
    map->buckets = buckets;
    map->n_buckets = wanted;
    return 0;
}

void *strmap_get(const struct strmap *map, const char *key) {
    struct strmap_entry *entry = map->n_buckets ? *slot(map, key) : NULL;

    return entry ? entry->value : NULL;
}

int strmap_put(struct strmap *map, const char *key, void *value, void **ret_old) {
    size_t length = strlen(key) + 1;
    struct strmap_entry **place;

    if (map->n_entries >= map->n_buckets) {
        int err = grow(map);
        if (err)
            return err;
    }
    place = slot(map, key);
    if (*place) {
        if (ret_old)
            *ret_old = (*place)->value;
        (*place)->value = value;
        return 0;
    }
    *place = malloc(sizeof(**place) + length);
    if (!*place)
        return -ENOMEM;
    (*place)->next = NULL;
    (*place)->value = value;
    memcpy((*place)->key, key, length);
    map->n_entries++;
    if (ret_old)
        *ret_old = NULL;
    return 0;
}

void *strmap_remove(struct strmap *map, const char *key) {
    struct strmap_entry **place = map->n_buckets ? slot(map, key) : NULL;
    struct strmap_entry *entry = place ? *place : NULL;
    void *value;

    if (!entry)
        return NULL;
    value = entry->value;
    *place = entry->next;
    free(entry);
    map->n_entries--;
    return value;
}

void strmap_sweep(struct strmap *map, int (*visit)(const char *key, void *value, void *context), void *context) {
    for (size_t i = 0; i < map->n_buckets; i++) {
        struct strmap_entry **place = &map->buckets[i];

        while (*place) {
            struct strmap_entry *entry = *place;

            if (visit(entry->key, entry->value, context)) {
                *place = entry->next;
                free(entry);
                map->n_entries--;
            } else {
                place = &entry->next;
            }
        }
    }
}

void strmap_free(struct strmap *map, void (*release)(void *value)) {
    for (size_t i = 0; i < map->n_buckets; i++) {
        struct strmap_entry *entry = map->buckets[i];

        while (entry) {
            struct strmap_entry *next = entry->next;

            if (release)
                release(entry->value);
            free(entry);
            entry = next;
        }
    }
    free(map->buckets);
    memset(map, 0, sizeof(*map));
}
