/* Echo on libuv: one loop, reads into a buffer of the connection, which is written from and then read into again. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

typedef struct {
    uv_tcp_t tcp;
    uv_write_t write;
    char buffer[64 * 1024];
} conn_t;

static void closed(uv_handle_t *handle) { free(handle); }

static void allocate(uv_handle_t *handle, size_t wanted, uv_buf_t *buf) {
    (void)wanted;
    conn_t *conn = (conn_t *)handle;
    *buf = uv_buf_init(conn->buffer, sizeof conn->buffer);
}

static void received(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);

static void written(uv_write_t *write, int status) {
    if (status < 0) {
        if (!uv_is_closing((uv_handle_t *)write->handle)) uv_close((uv_handle_t *)write->handle, closed);
    } else {
        uv_read_start(write->handle, allocate, received);
    }
}

static void received(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    conn_t *conn = (conn_t *)stream;
    if (n < 0) {
        uv_close((uv_handle_t *)stream, closed);
    } else if (n > 0) {
        uv_buf_t reply = uv_buf_init(buf->base, n);
        int sent = uv_try_write(stream, &reply, 1);
        if (sent == n) return;
        /* The rest goes when it can; the buffer is not read into meanwhile. */
        if (sent < 0) sent = 0;
        reply = uv_buf_init(buf->base + sent, n - sent);
        uv_read_stop(stream);
        uv_write(&conn->write, stream, &reply, 1, written);
    }
}

static void connected(uv_stream_t *listener, int status) {
    if (status < 0) return;
    conn_t *conn = malloc(sizeof *conn);
    uv_tcp_init(listener->loop, &conn->tcp);
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp) == 0) {
        uv_tcp_nodelay(&conn->tcp, 1);
        uv_read_start((uv_stream_t *)&conn->tcp, allocate, received);
    } else {
        uv_close((uv_handle_t *)&conn->tcp, closed);
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
