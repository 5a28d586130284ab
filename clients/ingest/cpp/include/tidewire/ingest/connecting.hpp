// How a client connects, and connects again: addresses, pauses, servers that name another one. Nothing here opens a socket.
#pragma once

#include <functional>
#include <random>

#include "session.hpp"

namespace tidewire::ingest {

// The pause after a failed attempt doubles from `first` up to `longest`. The pause taken is drawn from its upper half, so that
// clients which lost a server together do not come back together.
struct Retry {
    unsigned attempts = 0;  // before giving up, counted from when the connection was lost; 1 makes no second one, 0 is no limit
    std::chrono::milliseconds within{60'000};  // for how long new attempts are begun
    std::chrono::milliseconds first{50};
    std::chrono::milliseconds longest{5'000};
    std::chrono::milliseconds timeout{10'000};  // of one attempt, TLS included
    bool at_first = false;  // whether the very first attempt is repeated as well, when it fails
    unsigned moves = 4;     // how often a server that names another one is followed without a pause
};

// TLS, where this was built with OpenSSL.
struct Tls {
    bool on = false;
    std::string ca_file;  // authorities in PEM form; empty for the system's
    std::string certificate_file, key_file;  // what the client shows, if the server asks for it
    std::string server_name;  // whom the server must prove to be; empty for the host of the address
};

enum class Severity { info, warning };

// How a client reaches its server.
struct Connecting {
    Retry retry;
    Tls tls;
    std::function<void(Severity, const std::string&)> log;  // hears of connections that are lost
};

namespace detail {

struct Address {
    std::string host, port, path;  // a path, of a Unix socket, begins with / or, in the abstract namespace, with @

    static Address parse(const std::string& text) {
        auto bad = [&](const char* why) { return std::invalid_argument("\"" + text + "\" is no address: " + why); };
        if (text.rfind("unix:", 0) == 0) {
            auto place = text.substr(5);
            if (place.size() < 2 || (place[0] != '/' && place[0] != '@') || place.size() > 107)
                throw bad("a Unix socket is unix:/PATH or unix:@NAME, of at most 107 bytes");
            return {"localhost", "", place};
        }
        auto colon = text.rfind(':');
        auto host = text.substr(0, colon), port = colon == std::string::npos ? "" : text.substr(colon + 1);
        bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
        if (in_brackets) host = host.substr(1, host.size() - 2);
        bool is_number = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
        if (!is_number || std::stoul(port) > 65535 || host.empty() || (!in_brackets && host.find(':') != std::string::npos))
            throw bad("it is not of the form HOST:PORT, [IPv6]:PORT, unix:/PATH or unix:@NAME");
        return {host, port, ""};
    }

    std::string shown() const {
        if (!path.empty()) return "unix:" + path;
        return host.find(':') == std::string::npos ? host + ":" + port : "[" + host + "]:" + port;
    }
};

// What was tried since the connection was lost, and what is tried next.
class Attempts {
public:
    Attempts(Address first, const Connecting& how) : first_(std::move(first)), retry_(how.retry), log_(how.log), chance_(std::random_device{}()) {}

    const Address& address() const { return at_named_ ? *named_ : first_; }

    // How long an answer to a hello may take; nothing where only the client's own silence bounds it.
    std::optional<std::chrono::milliseconds> time_left(Clock::duration elapsed) const {
        using std::chrono::milliseconds;
        if (retry_.attempts == 1) return std::nullopt;
        return std::max(std::chrono::duration_cast<milliseconds>(retry_.within - elapsed), milliseconds(250));
    }

    std::chrono::milliseconds time_for_one(Clock::duration elapsed) const {
        auto left = time_left(elapsed);
        return left ? std::min(*left, retry_.timeout) : retry_.timeout;
    }

    std::chrono::milliseconds timeout() const { return retry_.timeout; }

    void succeeded() {
        moves_ = failed_ = 0;
        is_first_ = false;
    }

    // How long to pause before the next attempt. Rethrows the failure, which is the current exception, or throws GaveUp, if there
    // is none.
    std::chrono::milliseconds pause_after(const Error& failure, Clock::duration elapsed) {
        using std::chrono::milliseconds;
        auto* refused = dynamic_cast<const Refused*>(&failure);
        if (refused && refused->reason == Reason::moved && follows(refused->text)) {
            say(Severity::info, "the server names another one: " + address().shown());
            return milliseconds(0);
        }
        // The other of the two servers is asked next.
        moves_ = 0;
        at_named_ = !at_named_ && named_;
        if (!failure.is_passing() || (is_first_ && !retry_.at_first)) throw;
        ++failed_;
        if ((retry_.attempts > 0 && failed_ >= retry_.attempts) || elapsed >= retry_.within) {
            if (failed_ == 1) throw;
            throw GaveUp("gave up after " + std::to_string(failed_) + " attempts: " + failure.what());
        }
        auto whole = std::min<long long>(retry_.first.count() << std::min(failed_ - 1, 20U), retry_.longest.count());
        auto drawn = std::uniform_int_distribution<long long>(whole / 2, whole)(chance_);
        if (refused) drawn = std::max<long long>(drawn, refused->retry_after_ms);
        auto left = std::chrono::duration_cast<milliseconds>(retry_.within - elapsed);
        auto pause = std::min(milliseconds(drawn), left);
        say(Severity::warning, "connecting again in " + std::to_string(pause.count()) + " ms: " + failure.what());
        return pause;
    }

    void say(Severity severity, const std::string& what) const {
        if (log_) log_(severity, what);
    }

private:
    // A server cannot name a socket on this host.
    bool follows(const std::string& text) {
        if (moves_ >= retry_.moves || text.rfind("unix:", 0) == 0) return false;
        try {
            named_ = Address::parse(text);
        } catch (const std::invalid_argument&) {
            return false;
        }
        ++moves_;
        at_named_ = true;
        return true;
    }

    Address first_;
    std::optional<Address> named_;
    Retry retry_;
    std::function<void(Severity, const std::string&)> log_;
    std::mt19937_64 chance_;
    bool at_named_ = false, is_first_ = true;
    unsigned moves_ = 0, failed_ = 0;
};

}  // namespace detail
}  // namespace tidewire::ingest
