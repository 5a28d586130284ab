/* Asynchronous acknowledgements on libuv: one loop, a timer for each connection. */
#include "messages.h"
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

typedef struct {
    uv_tcp_t tcp;
    uv_timer_t timer;
    int open; /* handles that are */
    messages_t messages;
} conn_t;

typedef struct {
    uv_write_t write;
    char words[12];
} reply_t;

static char buffer[64 * 1024];

static void closed(uv_handle_t *handle) {
    conn_t *conn = handle->data;
    if (--conn->open == 0) free(conn);
}

static void end(conn_t *conn) {
    if (uv_is_closing((uv_handle_t *)&conn->tcp)) return;
    uv_close((uv_handle_t *)&conn->tcp, closed);
    uv_close((uv_handle_t *)&conn->timer, closed);
}

static void written(uv_write_t *write, int status) {
    if (status < 0) end(write->handle->data);
    free(write);
}

static void acknowledge(conn_t *conn) {
    char words[12];
    messages_acknowledge(&conn->messages, words);
    uv_timer_stop(&conn->timer);
    uv_buf_t buf = uv_buf_init(words, sizeof words);
    int sent = uv_try_write((uv_stream_t *)&conn->tcp, &buf, 1);
    if (sent == sizeof words) return;
    if (sent < 0) sent = 0;
    reply_t *reply = malloc(sizeof *reply);
    memcpy(reply->words, words, sizeof words);
    buf = uv_buf_init(reply->words + sent, sizeof words - sent);
    uv_write(&reply->write, (uv_stream_t *)&conn->tcp, &buf, 1, written);
}

static void due(uv_timer_t *timer) { acknowledge(timer->data); }

static void allocate(uv_handle_t *handle, size_t wanted, uv_buf_t *buf) {
    (void)handle, (void)wanted;
    *buf = uv_buf_init(buffer, sizeof buffer);
}

static void received(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    conn_t *conn = stream->data;
    if (n < 0) {
        end(conn);
    } else if (n > 0) {
        messages_take(&conn->messages, buf->base, n);
        if (conn->messages.chunks >= CHUNKS) acknowledge(conn);
        else if (conn->messages.chunks > 0) uv_timer_start(&conn->timer, due, DELAY_MS, 0);
    }
}

static void connected(uv_stream_t *listener, int status) {
    if (status < 0) return;
    conn_t *conn = calloc(1, sizeof *conn);
    uv_tcp_init(listener->loop, &conn->tcp);
    uv_timer_init(listener->loop, &conn->timer);
    conn->tcp.data = conn->timer.data = conn;
    conn->open = 2;
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp) == 0) {
        uv_tcp_nodelay(&conn->tcp, 1);
        uv_read_start((uv_stream_t *)&conn->tcp, allocate, received);
    } else {
        end(conn);
    }
}

int main(void) {
    uv_tcp_t listener;
    struct sockaddr_in addr;
    int size = sizeof addr;
    uv_tcp_init(uv_default_loop(), &listener);
    uv_ip4_addr("127.0.0.1", 0, &addr);
    uv_tcp_bind(&listener, (const struct sockaddr *)&addr, 0);
    if (uv_listen((uv_stream_t *)&listener, 4096, connected) != 0) return 1;
    uv_tcp_getsockname(&listener, (struct sockaddr *)&addr, &size);
    printf("listening addr=127.0.0.1:%d\n", ntohs(addr.sin_port));
    fflush(stdout);
    return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
