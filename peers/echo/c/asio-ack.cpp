// Asynchronous acknowledgements on asio: one io_context told that one thread runs it, reads and a timer for each connection.
#include "messages.h"
#include <array>
#include <asio.hpp>
#include <chrono>
#include <deque>
#include <iostream>
#include <memory>

using asio::ip::tcp;

struct Session : std::enable_shared_from_this<Session> {
    explicit Session(tcp::socket s) : socket(std::move(s)), timer(socket.get_executor()) {}

    void read() {
        auto self = shared_from_this();
        socket.async_read_some(asio::buffer(buffer), [this, self](std::error_code error, std::size_t n) {
            if (error) {
                timer.cancel();
                return;
            }
            messages_take(&messages, buffer.data(), n);
            if (messages.chunks >= CHUNKS) {
                timer.cancel();
                acknowledge();
            } else if (messages.chunks > 0) {
                timer.expires_after(std::chrono::milliseconds(DELAY_MS));
                timer.async_wait([this, self](std::error_code error) {
                    // A timer that was set anew while this call was queued: those messages have an acknowledgement.
                    if (!error && messages.chunks > 0) acknowledge();
                });
            }
            read();
        });
    }

    void acknowledge() {
        replies.emplace_back();
        messages_acknowledge(&messages, replies.back().data());
        if (replies.size() == 1) write();
    }

    void write() {
        auto self = shared_from_this();
        asio::async_write(socket, asio::buffer(replies.front()), [this, self](std::error_code error, std::size_t) {
            if (error) return;
            replies.pop_front();
            if (!replies.empty()) write();
        });
    }

    tcp::socket socket;
    asio::steady_timer timer;
    messages_t messages{};
    std::deque<std::array<char, 12>> replies;
    std::array<char, 64 * 1024> buffer;
};

void accept(tcp::acceptor &acceptor) {
    acceptor.async_accept([&acceptor](std::error_code error, tcp::socket socket) {
        if (!error) {
            socket.set_option(tcp::no_delay(true));
            std::make_shared<Session>(std::move(socket))->read();
        }
        accept(acceptor);
    });
}

int main() {
    asio::io_context context(1);
    tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
    std::cout << "listening addr=" << acceptor.local_endpoint() << std::endl;
    accept(acceptor);
    context.run();
}
