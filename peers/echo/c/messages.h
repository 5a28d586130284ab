/* Counts the messages `id[8] | size: u32 LE | payload[size]` of a connection; for hosts that are little-endian. */
#ifndef MESSAGES_H
#define MESSAGES_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* An acknowledgement goes out with this many chunks that have none, or so many milliseconds after the last of them. */
enum { CHUNKS = 22, DELAY_MS = 5 };

typedef struct {
    char head[12];
    size_t has;      /* how much of the head is there */
    uint32_t payload; /* how much of the payload is still to come */
    /* Without an acknowledgement. */
    uint32_t chunks, count;
    char last[8];
} messages_t;

static inline void messages_take(messages_t *m, const char *chunk, size_t left) {
    uint32_t before = m->count;
    while (left > 0) {
        size_t n = 12 - m->has < left ? 12 - m->has : left;
        memcpy(m->head + m->has, chunk, n);
        m->has += n, chunk += n, left -= n;
        if (m->has < 12) break;
        if (n > 0) memcpy(&m->payload, m->head + 8, 4);
        n = m->payload < left ? m->payload : left;
        m->payload -= n, chunk += n, left -= n;
        if (m->payload == 0) {
            memcpy(m->last, m->head, 8);
            m->has = 0;
            m->count++;
        }
    }
    m->chunks += m->count > before;
}

/* The last id, and how many messages before it are acknowledged with it. */
static inline void messages_acknowledge(messages_t *m, char words[12]) {
    uint32_t skipped = m->count - 1;
    memcpy(words, m->last, 8);
    memcpy(words + 8, &skipped, 4);
    m->chunks = m->count = 0;
}
#endif
