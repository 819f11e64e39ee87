/* What cppcheck needs to know of headers it does not read. */
#define cJSON_ArrayForEach(item, array) for (item = (array)->child; item; item = item->next)
