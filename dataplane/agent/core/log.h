/* One line to stderr: what was done and why. */
#pragma once

void agent_log(const char *level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define log_info(...) agent_log("info", __VA_ARGS__)
#define log_warning(...) agent_log("warning", __VA_ARGS__)
#define log_error(...) agent_log("error", __VA_ARGS__)
