// What the clients throw. Every error says what failed, on what, and why.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tidewire::ingest {

// What an acknowledgement means.
enum class Level : std::uint8_t {
    received = 1,    // handed to the log's queue: a crash of the server may lose it
    durable = 2,     // committed: synced to the server's disk
    replicated = 3,  // committed, and stored at the home of the server's log
};

inline const char* name(Level level) {
    switch (level) {
        case Level::received: return "received";
        case Level::durable: return "durable";
        case Level::replicated: return "replicated";
    }
    return "unknown";
}

// Why a server refuses. A later version may give others.
enum class Reason : std::uint16_t {
    malformed = 1, too_large, disk_full, over_quota, out_of_order, fenced, unauthorised, log_failed, stopping, too_many, gone,
    damaged, beyond_the_end, no_such_stream, too_slow, stream_full, exists, unsupported, no_such_cursor, moved,
};

inline std::string name(Reason reason) {
    static const char* const names[] = {"", "malformed", "too large", "disk full", "over quota", "out of order", "fenced",
        "unauthorised", "log failed", "stopping", "too many", "gone", "damaged", "beyond the end", "no such stream", "too slow",
        "stream full", "exists", "unsupported", "no such cursor", "moved"};
    auto code = static_cast<std::uint16_t>(reason);
    if (code >= 1 && code <= 20) return names[code];
    return "reason " + std::to_string(code);
}

namespace detail {

// A text of the server's, with escapes for what a terminal would obey. Bytes above 127 stay: the text is UTF-8, of which only
// C1 controls (C2 80 to C2 9F) and marks of direction (E2 80 xx, E2 81 xx) are obeyed.
inline std::string printable(std::string_view text) {
    std::string shown;
    for (std::size_t at = 0; at < text.size(); ++at) {
        auto byte = static_cast<unsigned char>(text[at]);
        auto next = at + 1 < text.size() ? static_cast<unsigned char>(text[at + 1]) : 0;
        bool is_obeyed = byte < 0x20 || byte == 0x7f || (byte == 0xc2 && next < 0xa0) || (byte == 0xe2 && (next == 0x80 || next == 0x81));
        if (is_obeyed) {
            char escaped[5];
            std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
            shown += escaped;
        } else {
            shown += text[at];
        }
    }
    return shown;
}

}  // namespace detail

// The base of all errors.
class Error : public std::runtime_error {
public:
    explicit Error(const std::string& what, bool is_passing = false) : std::runtime_error(what), is_passing_(is_passing) {}
    // Whether a new connection may help. The clients make one by themselves then.
    bool is_passing() const { return is_passing_; }

private:
    bool is_passing_;
};

// No connection could be made, or the connection broke.
struct Unreachable : Error {
    explicit Unreachable(const std::string& what, bool is_passing = true) : Error(what, is_passing) {}
};

// The server sent nothing for too long, though an answer is due.
struct Unanswered : Error {
    explicit Unanswered(const std::string& what) : Error(what, true) {}
};

// A hello of an earlier connection of this client, which the server read late, fenced this one.
struct Overtaken : Error {
    Overtaken() : Error("a session of this producer has begun elsewhere, perhaps by an earlier connection of this client", true) {}
};

// The server refused, and closed the connection.
struct Refused : Error {
    Refused(Reason reason, std::uint64_t id, const std::string& text, std::uint32_t retry_after_ms)
        : Error("the server refused: " + name(reason)
                    + (text.empty() || text == name(reason) ? "" : ": " + detail::printable(text)),
                reason == Reason::stopping || reason == Reason::disk_full || reason == Reason::over_quota
                    || reason == Reason::stream_full || reason == Reason::moved),
          reason(reason), id(id), text(text), retry_after_ms(retry_after_ms) {}
    Reason reason;
    std::uint64_t id;  // the first message refused, or the position of a reader; 0 for a hello
    std::string text;
    std::uint32_t retry_after_ms;
};

// The server grants less than was asked for; see ProducerSettings::accept_lower.
struct LevelNotGranted : Error {
    LevelNotGranted(Level wanted, Level granted)
        : Error(std::string("the server grants level ") + name(granted) + " only, " + name(wanted) + " was asked for"),
          wanted(wanted), granted(granted) {}
    Level wanted, granted;
};

// The producer was away for longer than the server remembers producers; see ProducerSettings::accept_duplicates.
struct Forgotten : Error {
    Forgotten() : Error("the server has forgotten this producer: it cannot tell what it has stored, and may store it again") {}
};

// The server no longer has messages that it acknowledged.
struct Lost : Error {
    Lost(std::uint64_t acknowledged, std::optional<std::uint64_t> mark)
        : Error("messages were acknowledged up to " + std::to_string(acknowledged) + ", but the server has lost those after "
                + (mark ? std::to_string(*mark) : "the beginning")),
          acknowledged(acknowledged), mark(mark) {}
    std::uint64_t acknowledged;
    std::optional<std::uint64_t> mark;
};

// Another program sends under this producer's name.
struct NameTaken : Error {
    NameTaken(std::uint64_t sent, std::uint64_t mark)
        : Error("the server has messages up to " + std::to_string(mark) + " of this producer, but only those up to "
                + std::to_string(sent) + " were sent here: another program uses its name"),
          sent(sent), mark(mark) {}
    std::uint64_t sent, mark;
};

// What the server sent is not the native protocol, version 1.
struct ProtocolError : Error {
    explicit ProtocolError(const std::string& what) : Error("the server does not speak the native protocol, version 1: " + what) {}
};

// Records were removed between two connections, before they were read.
struct Gap : Error {
    Gap(std::uint64_t next, std::uint64_t start)
        : Error("the records from " + std::to_string(next) + " up to " + std::to_string(start) + " were removed before they were read"),
          next(next), start(start) {}
    std::uint64_t next, start;
};

// All attempts to reach the server are used up.
struct GaveUp : Error {
    using Error::Error;
};

// Not everything was acknowledged, or no record came, in the time given. The client stays usable.
struct TimedOut : Error {
    using Error::Error;
};

// A message above what the server takes.
struct MessageTooLarge : Error {
    MessageTooLarge(std::size_t size, std::uint32_t most)
        : Error("a message of " + std::to_string(size) + " bytes is too large: the server takes at most " + std::to_string(most)) {}
};

// Ids must rise, and by one unless the producer has sparse ids.
struct WrongId : Error {
    using Error::Error;
};

// The producer or reader was closed.
struct Closed : Error {
    Closed() : Error("closed") {}
};

}  // namespace tidewire::ingest
