/* A small text file of the state folder, replaced as a whole: a reader finds what was written before or what is written
 * now, also after a loss of power. */
#pragma once

/* 0 when it is on disk, or a negative errno; then the file of before stands. */
int state_file_write(const char *directory, const char *name, const char *text);
