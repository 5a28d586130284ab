// Echo on asio: one io_context told that one thread runs it, a read and a write in turn for each connection.
#include <array>
#include <asio.hpp>
#include <iostream>
#include <memory>

using asio::ip::tcp;

struct Session : std::enable_shared_from_this<Session> {
    explicit Session(tcp::socket s) : socket(std::move(s)) {}

    void read() {
        auto self = shared_from_this();
        socket.async_read_some(asio::buffer(buffer), [this, self](std::error_code error, std::size_t n) {
            if (!error) write(n);
        });
    }

    void write(std::size_t n) {
        auto self = shared_from_this();
        asio::async_write(socket, asio::buffer(buffer, n), [this, self](std::error_code error, std::size_t) {
            if (!error) read();
        });
    }

    tcp::socket socket;
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
