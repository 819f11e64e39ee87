/* Reads a load report (chart.v1.LinkLoadReport) straight into numbers: see loads.py. Plain C, no state, no allocation.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What is unusual (too large, names beyond ASCII, groups) is left to protobuf. */
enum { UNREADABLE = -1, UNUSUAL = -2 };
enum { VARINT = 0, FIXED64 = 1, SIZED = 2, FIXED32 = 5 };
/* Numbers of the report's fields and of a link's. */
enum { NODE = 1, INTERVAL_US = 4, LINKS = 5, USER_FLOWS = 6 };
enum { LINK_ID = 1, LAST_OF_LINK = 13 };
/* Of a link: the numbers that are asked for. */
enum { COLUMNS = 9 };

/* Column of each field of a link, -1: not asked for; and which of them have 32 bits. */
static const int8_t column_of[LAST_OF_LINK + 1] = {-1, -1, -1, 0, 1, -1, 2, 3, -1, 5, 4, 6, 7, 8};
static const bool is_short[LAST_OF_LINK + 1] = {[8] = true, [9] = true, [10] = true, [13] = true};

struct cursor {
    const uint8_t *at;
    const uint8_t *end;
};

struct field {
    uint64_t number;
    unsigned int kind;
    uint64_t value;
    /* Of one with a length. */
    struct cursor content;
};

static bool read_varint(struct cursor *from, uint64_t *value) {
    *value = 0;
    for (unsigned int shift = 0; shift < 70 && from->at < from->end; shift += 7) {
        uint8_t octet = *from->at++;

        if (shift < 64)
            *value |= (uint64_t)(octet & 0x7f) << shift;
        if (octet < 0x80)
            return shift < 63 || octet < 2;
    }
    return false;
}

static bool skip(struct cursor *from, uint64_t octets) {
    if (octets > (uint64_t)(from->end - from->at))
        return false;
    from->at += octets;
    return true;
}

static int read_field(struct cursor *from, struct field *field) {
    uint64_t tag;

    if (!read_varint(from, &tag) || tag > UINT32_MAX || tag < 8)
        return UNREADABLE;
    field->number = tag >> 3;
    field->kind = tag & 7;
    switch (field->kind) {
    case VARINT:
        return read_varint(from, &field->value) ? 0 : UNREADABLE;
    case FIXED64:
        return skip(from, 8) ? 0 : UNREADABLE;
    case FIXED32:
        return skip(from, 4) ? 0 : UNREADABLE;
    case SIZED:
        if (!read_varint(from, &field->value))
            return UNREADABLE;
        field->content.at = from->at;
        if (!skip(from, field->value))
            return UNREADABLE;
        field->content.end = from->at;
        return 0;
    default:
        return UNUSUAL;
    }
}

static bool is_plain(struct cursor text) {
    for (; text.at < text.end; text.at++)
        if (*text.at == 0 || *text.at >= 0x80)
            return false;
    return true;
}

/* Texts, each with a zero behind it. */
struct names {
    char *at;
    size_t room;
};

static int put_name(struct names *to, struct cursor name) {
    size_t length = (size_t)(name.end - name.at);

    if (length + 1 > to->room)
        return UNUSUAL;
    memcpy(to->at, name.at, length);
    to->at[length] = 0;
    to->at += length + 1;
    to->room -= length + 1;
    return 0;
}

static int read_link(struct cursor from, struct names *names, double *values) {
    static const uint8_t nothing[1];
    struct cursor name = {nothing, nothing};
    struct field field;

    memset(values, 0, COLUMNS * sizeof(*values));
    while (from.at < from.end) {
        int outcome = read_field(&from, &field);

        if (outcome < 0)
            return outcome;
        if (field.kind == SIZED && field.number == LINK_ID) {
            if (!is_plain(field.content))
                return UNUSUAL;
            name = field.content;
        }
        if (field.kind != VARINT || field.number > LAST_OF_LINK || column_of[field.number] < 0)
            continue;
        values[column_of[field.number]] = is_short[field.number] ? (double)(uint32_t)field.value : (double)field.value;
    }
    return put_name(names, name);
}

/*
 * `names`: the links' ids and at last the node, each with a zero behind it; `values`: nine numbers for each link, in
 * the order of links.LOAD_FIELDS; `users`: the fields of users with several flows as they are, a report of nothing
 * else. Sizes are the room before and what was written afterwards. Returns the number of links, -1 for what is no
 * report, -2 when protobuf has to read it.
 */
int loads_decode(const uint8_t *octets, size_t size, uint32_t *interval_us, char *names, size_t *names_size,
                 double *values, int links_most, uint8_t *users, size_t *users_size) {
    static const uint8_t nothing[1];
    struct cursor from = {octets, octets + size}, node = {nothing, nothing};
    struct names to = {names, *names_size};
    struct field field;
    size_t users_room = *users_size;
    int links = 0, outcome;

    *interval_us = 0;
    *users_size = 0;
    while (from.at < from.end) {
        const uint8_t *begin = from.at;

        outcome = read_field(&from, &field);
        if (outcome < 0)
            return outcome;
        if (field.kind == VARINT && field.number == INTERVAL_US)
            *interval_us = (uint32_t)field.value;
        if (field.kind == SIZED && field.number == NODE) {
            if (!is_plain(field.content))
                return UNUSUAL;
            node = field.content;
        }
        if (field.kind == SIZED && field.number == USER_FLOWS) {
            if ((size_t)(from.at - begin) > users_room - *users_size)
                return UNUSUAL;
            memcpy(users + *users_size, begin, (size_t)(from.at - begin));
            *users_size += (size_t)(from.at - begin);
        }
        if (field.kind != SIZED || field.number != LINKS)
            continue;
        if (links == links_most)
            return UNUSUAL;
        outcome = read_link(field.content, &to, values + (size_t)links * COLUMNS);
        if (outcome < 0)
            return outcome;
        links++;
    }
    outcome = put_name(&to, node);
    if (outcome < 0)
        return outcome;
    *names_size -= to.room;
    return links;
}
