// A socket that never blocks, with TLS or without, from the attempt to connect on.
#pragma once

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <system_error>
#include <vector>

#include "connecting.hpp"

#ifndef TIDEWIRE_INGEST_TLS
#define TIDEWIRE_INGEST_TLS 0
#endif
#if TIDEWIRE_INGEST_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#endif

namespace tidewire::ingest::detail {

#if TIDEWIRE_INGEST_TLS
// TLS over memory: what is received goes in, what is to be sent comes out. So the socket's own calls stay the only ones.
class TlsLayer {
public:
    TlsLayer(const Tls& tls, const Address& address) : to_(address.shown()) {
        ERR_clear_error();
        context_.reset(SSL_CTX_new(TLS_client_method()));
        if (!context_) fail("cannot be set up", false);
        SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
        SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
        bool is_set = tls.ca_file.empty() ? SSL_CTX_set_default_verify_paths(context_.get()) == 1
                                          : SSL_CTX_load_verify_locations(context_.get(), tls.ca_file.c_str(), nullptr) == 1;
        if (!is_set) fail("the authorities cannot be read", false);
        if (!tls.certificate_file.empty()
            && (SSL_CTX_use_certificate_chain_file(context_.get(), tls.certificate_file.c_str()) != 1
                || SSL_CTX_use_PrivateKey_file(context_.get(), tls.key_file.c_str(), SSL_FILETYPE_PEM) != 1))
            fail("the client's certificate cannot be read", false);
        ssl_.reset(SSL_new(context_.get()));
        if (!ssl_) fail("cannot be set up", false);
        in_ = BIO_new(BIO_s_mem());
        out_ = BIO_new(BIO_s_mem());
        SSL_set_bio(ssl_.get(), in_, out_);
        SSL_set_connect_state(ssl_.get());
        const auto& name = tls.server_name.empty() ? address.host : tls.server_name;
        bool is_ip = is_address(name);
        auto* param = SSL_get0_param(ssl_.get());
        bool is_named = is_ip ? X509_VERIFY_PARAM_set1_ip_asc(param, name.c_str()) == 1
                              : X509_VERIFY_PARAM_set1_host(param, name.c_str(), 0) == 1 && SSL_set_tlsext_host_name(ssl_.get(), name.c_str()) == 1;
        if (!is_named) fail("the server's name cannot be set", false);
    }

    // Whether the handshake is over.
    bool shake() {
        ERR_clear_error();
        int done = SSL_do_handshake(ssl_.get());
        if (done == 1) return true;
        check(done, "the handshake failed");
        return false;
    }

    void received(const char* data, std::size_t size) { BIO_write(in_, data, static_cast<int>(size)); }

    // Bytes of the other side; 0 at the end, -1 if there are none now.
    long read(char* to, std::size_t size) {
        ERR_clear_error();
        int got = SSL_read(ssl_.get(), to, static_cast<int>(std::min<std::size_t>(size, 1 << 20)));
        if (got > 0) return got;
        if (SSL_get_error(ssl_.get(), got) == SSL_ERROR_ZERO_RETURN) return 0;
        check(got, "reading failed");
        return -1;
    }

    void write(const char* data, std::size_t size) {
        // A memory takes all of it.
        ERR_clear_error();
        int put = SSL_write(ssl_.get(), data, static_cast<int>(size));
        if (put <= 0) check(put, "writing failed");
    }

    void farewell() {
        ERR_clear_error();
        SSL_shutdown(ssl_.get());
        ERR_clear_error();
    }

    // What is to be sent is appended.
    void output(std::string& to) {
        char buffer[16384];
        for (int got; (got = BIO_read(out_, buffer, sizeof buffer)) > 0;) to.append(buffer, static_cast<std::size_t>(got));
    }

private:
    struct Free {
        void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
        void operator()(SSL* ssl) const { SSL_free(ssl); }
    };

    static bool is_address(const std::string& name) {
        addrinfo hints{}, *found = nullptr;
        hints.ai_flags = AI_NUMERICHOST;
        bool is_ip = getaddrinfo(name.c_str(), nullptr, &hints, &found) == 0;
        if (found) freeaddrinfo(found);
        return is_ip;
    }

    void check(int result, const char* what) {
        int error = SSL_get_error(ssl_.get(), result);
        if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return;
        // A certificate that is not trusted stays so.
        fail(what, SSL_get_verify_result(ssl_.get()) == X509_V_OK);
    }

    [[noreturn]] void fail(const char* what, bool is_passing) const {
        std::string why;
        if (auto code = ERR_get_error()) {
            char text[256];
            ERR_error_string_n(code, text, sizeof text);
            why = std::string(": ") + text;
        }
        auto verified = ssl_ ? SSL_get_verify_result(ssl_.get()) : X509_V_OK;
        if (verified != X509_V_OK) why += std::string(": certificate: ") + X509_verify_cert_error_string(verified);
        throw Unreachable("cannot speak TLS with " + to_ + ": " + what + why, is_passing);
    }

    std::string to_;
    std::unique_ptr<SSL_CTX, Free> context_;
    std::unique_ptr<SSL, Free> ssl_;
    BIO* in_ = nullptr;   // of the SSL
    BIO* out_ = nullptr;  // of the SSL
};
#endif

class Stream {
public:
    Stream(const Address& address, const Tls& tls) : address_(address) {
#if TIDEWIRE_INGEST_TLS
        if (tls.on) tls_ = std::make_unique<TlsLayer>(tls, address);
#else
        if (tls.on) throw Unreachable("cannot speak TLS with " + address.shown() + ": this client was built without OpenSSL", false);
#endif
        resolve();
        try_next();
    }

    ~Stream() { shut(); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    int descriptor() const { return socket_; }

    // What to wait for at the descriptor, beside what the caller wants to write.
    short events() const {
        if (!is_connected_) return POLLOUT;
        return static_cast<short>(POLLIN | (pending_.empty() ? 0 : POLLOUT));
    }

    // Goes on with connecting; whether bytes can be exchanged now.
    bool is_ready() {
        if (!is_connected_) {
            pollfd waits{socket_, POLLOUT, 0};
            if (::poll(&waits, 1, 0) <= 0) return false;
            int error = 0;
            socklen_t size = sizeof error;
            getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
            if (error != 0) {
                last_error_ = error;
                try_next();
                return is_connected_ && is_ready();
            }
            is_connected_ = true;
        }
#if TIDEWIRE_INGEST_TLS
        if (tls_ && !is_secured_) {
            is_secured_ = tls_->shake();
            flush();
            if (!is_secured_ && fill()) {
                is_secured_ = tls_->shake();
                flush();
            }
            if (!is_secured_ && is_at_end_) throw Unreachable("cannot speak TLS with " + address_.shown() + ": the server closed the connection");
            return is_secured_;
        }
#endif
        return true;
    }

    // Sends what waits inside; whether nothing does any more.
    bool flush() {
#if TIDEWIRE_INGEST_TLS
        if (tls_) tls_->output(pending_);
#endif
        std::size_t done = 0;
        while (done < pending_.size()) {
            auto sent = put_out(pending_.data() + done, pending_.size() - done);
            if (sent == 0) break;
            done += sent;
        }
        pending_.erase(0, done);
        return pending_.empty();
    }

    // Writes what the socket takes now; how many bytes.
    std::size_t write(const char* data, std::size_t size) {
        if (!flush()) return 0;
#if TIDEWIRE_INGEST_TLS
        if (tls_) {
            size = std::min<std::size_t>(size, 256 << 10);
            tls_->write(data, size);
            flush();
            return size;
        }
#endif
        return put_out(data, size);
    }

    // What came: bytes, 0 at the end, -1 if there is nothing now.
    long read(char* to, std::size_t size) {
#if TIDEWIRE_INGEST_TLS
        if (tls_) {
            for (;;) {
                long got = tls_->read(to, size);
                if (got >= 0) return got;
                if (!fill()) return is_at_end_ ? 0 : -1;
            }
        }
#endif
        return take_in(to, size);
    }

    // Says that nothing more comes; reading goes on.
    void end_writing() {
#if TIDEWIRE_INGEST_TLS
        if (tls_) tls_->farewell();
#endif
        if (flush()) ::shutdown(socket_, SHUT_WR);
    }

private:
    void shut() {
        if (socket_ >= 0) ::close(socket_);
        socket_ = -1;
    }

    [[noreturn]] void fail(const char* what, int error) const {
        throw Unreachable(std::string("cannot ") + what + " " + address_.shown() + ": " + std::generic_category().message(error));
    }

    void resolve() {
        if (!address_.path.empty()) return;
        addrinfo hints{}, *found = nullptr;
        hints.ai_socktype = SOCK_STREAM;
        int error = getaddrinfo(address_.host.c_str(), address_.port.c_str(), &hints, &found);
        if (error != 0) throw Unreachable("cannot look up " + address_.shown() + ": " + gai_strerror(error));
        for (auto* one = found; one; one = one->ai_next) {
            Place place;
            place.family = one->ai_family;
            place.size = one->ai_addrlen;
            std::memcpy(&place.storage, one->ai_addr, one->ai_addrlen);
            places_.push_back(place);
        }
        freeaddrinfo(found);
    }

    // Begins to connect to the next address that there is.
    void try_next() {
        if (!address_.path.empty()) {
            sockaddr_un to{};
            to.sun_family = AF_UNIX;
            std::memcpy(to.sun_path, address_.path.data(), address_.path.size());
            if (to.sun_path[0] == '@') to.sun_path[0] = '\0';
            auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.path.size() + (address_.path[0] == '@' ? 0 : 1));
            begin(AF_UNIX, reinterpret_cast<const sockaddr*>(&to), size);
            if (socket_ < 0) fail("connect to", last_error_);
            return;
        }
        while (next_place_ < places_.size()) {
            auto& place = places_[next_place_++];
            begin(place.family, reinterpret_cast<const sockaddr*>(&place.storage), place.size);
            if (socket_ >= 0) return;
        }
        fail("connect to", last_error_);
    }

    void begin(int family, const sockaddr* to, socklen_t size) {
        shut();
        socket_ = ::socket(family, SOCK_STREAM, 0);
        if (socket_ < 0) {
            last_error_ = errno;
            return;
        }
        fcntl(socket_, F_SETFD, FD_CLOEXEC);
        fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
        if (family != AF_UNIX) {
            int yes = 1;
            setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        }
        if (::connect(socket_, to, size) == 0) {
            is_connected_ = true;
        } else if (errno != EINPROGRESS) {
            last_error_ = errno;
            shut();
        }
    }

    std::size_t put_out(const char* data, std::size_t size) {
        for (;;) {
            auto sent = ::send(socket_, data, size, MSG_NOSIGNAL);
            if (sent >= 0) return static_cast<std::size_t>(sent);
            if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
            if (errno != EINTR) fail("write to", errno);
        }
    }

    long take_in(char* to, std::size_t size) {
        for (;;) {
            auto got = ::recv(socket_, to, size, 0);
            if (got >= 0) return static_cast<long>(got);
            if (errno == EAGAIN || errno == EWOULDBLOCK) return -1;
            if (errno != EINTR) fail("read from", errno);
        }
    }

#if TIDEWIRE_INGEST_TLS
    // Receives for TLS; whether there was something.
    bool fill() {
        char buffer[32768];
        long got = take_in(buffer, sizeof buffer);
        if (got == 0) is_at_end_ = true;
        if (got > 0) tls_->received(buffer, static_cast<std::size_t>(got));
        return got > 0;
    }

    std::unique_ptr<TlsLayer> tls_;
    bool is_secured_ = false, is_at_end_ = false;
#endif

    struct Place {
        int family = 0;
        socklen_t size = 0;
        sockaddr_storage storage{};
    };

    Address address_;
    std::vector<Place> places_;
    std::size_t next_place_ = 0;
    int socket_ = -1, last_error_ = 0;
    bool is_connected_ = false;
    std::string pending_;
};

// A connection that is made again when it is lost, with the pauses between.
class Link {
public:
    Link(const std::string& address, const Connecting& how) : tls_(how.tls), attempts_(Address::parse(address), how), since_(Clock::now()) {}

    enum class State { up, just_up, down };

    // Goes on with connecting.
    State drive(Clock::time_point now) {
        if (is_up_) return State::up;
        if (!stream_) {
            if (now < not_before_) return State::down;
            began_ = now;
            stream_ = std::make_unique<Stream>(attempts_.address(), tls_);
        }
        if (!stream_->is_ready()) {
            if (now >= began_ + attempts_.time_for_one(began_ - since_))
                throw Unreachable("cannot connect to " + attempts_.address().shown() + ": no connection in time");
            return State::down;
        }
        is_up_ = true;
        up_at_ = now;
        return State::just_up;
    }

    // To be called in a handler of the failure: plans the next attempt, or rethrows what is final.
    void lost(const Error& failure, Clock::time_point now) {
        stream_.reset();
        if (was_welcomed_) since_ = now;
        is_up_ = was_welcomed_ = false;
        not_before_ = now + attempts_.pause_after(failure, now - since_);
    }

    void welcomed() {
        attempts_.succeeded();
        was_welcomed_ = true;
    }

    // When an answer to the hello is too late, if that is bounded.
    std::optional<Clock::time_point> welcome_due() const {
        auto left = attempts_.time_left(up_at_ - since_);
        return left ? std::optional(up_at_ + *left) : std::nullopt;
    }

    // When `drive` has something to do though nothing comes.
    std::optional<Clock::time_point> deadline() const {
        if (is_up_) return std::nullopt;
        return stream_ ? began_ + attempts_.time_for_one(began_ - since_) : not_before_;
    }

    void close() {
        stream_.reset();
        is_up_ = false;
        not_before_ = Clock::time_point::max();
    }

    bool is_up() const { return is_up_; }
    Stream* stream() const { return stream_.get(); }
    const Attempts& attempts() const { return attempts_; }

private:
    Tls tls_;
    Attempts attempts_;
    std::unique_ptr<Stream> stream_;
    Clock::time_point since_, began_, up_at_, not_before_;
    bool is_up_ = false, was_welcomed_ = false;
};

// Milliseconds for poll(2), rounded up; -1 for no end.
inline int until(std::optional<Clock::time_point> at, Clock::time_point now) {
    if (!at || *at == Clock::time_point::max()) return -1;
    if (*at <= now) return 0;
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*at - now).count() + 1;
    return static_cast<int>(std::min<long long>(left, 86'400'000));
}

inline std::optional<Clock::time_point> sooner(std::optional<Clock::time_point> a, std::optional<Clock::time_point> b) {
    return !a ? b : !b ? a : std::min(*a, *b);
}

}  // namespace tidewire::ingest::detail
