/* The four ways in which chart-blast moves octets. Each runs one flow to its end and closes the account. The octets are
 * those of a generator that both sides know nothing of; over TCP their SHA-256 tells whether they arrived as they were
 * sent. Functions return 0 or a negative errno, after a sentence on standard error. */
#ifndef BLAST_FLOW_H
#define BLAST_FLOW_H

#include "net.h"

/* An odd length: the same octets do not come again at the same place of a segment or a page. */
#define BLAST_BLOCK_BYTES 1048573u

void blast_fill(uint8_t *block, size_t length);

int blast_stream_send(struct blast_account *account, int socket);
int blast_stream_receive(struct blast_account *account, int socket);
int blast_datagram_send(struct blast_account *account, int socket);
int blast_datagram_receive(struct blast_account *account, int socket);

#endif
